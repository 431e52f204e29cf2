"""Machine files: those of the package, extending one, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tvm_npu.sim import machine_file
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_file import load_machine, machine_from_toml, machine_names
from tvm_npu.sim.nmp.machine import (
    NmpMachine,
    load_nmp_machine,
    nmp_machine_from_dict,
    nmp_machine_from_toml,
)
from tvm_npu.sim.texts import lines_of_keys


def different(one: NmpMachine, other: NmpMachine) -> dict[str, Any]:
    """What ``other`` has that ``one`` does not, apart from name and description."""
    mine, theirs = (m.model_dump(exclude={"name", "description"}) for m in (one, other))
    return {key: theirs[key] for key in mine if mine[key] != theirs[key]}


def test_a_file_that_is_no_text_is_no_machine_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"ab\x90")
    told = r"^cannot read machine file '.*model.onnx': not text \(byte 2: invalid start byte\)$"
    with pytest.raises(MachineError, match=told):
        load_machine(tmp_path / "model.onnx")


def test_only_problems_that_are_told_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are like a wrong one take milliseconds to find."""
    asked: list[object] = []
    monkeypatch.setattr(
        machine_file, "did_you_mean", lambda given, known: asked.append(given) or "; near"
    )
    text = 'name = "x"\nextends = "nmp-4x8"\n' + "".join(f"k{k} = 1\n" for k in range(1000))
    with pytest.raises(MachineError) as caught:
        machine_from_toml(text, "x.toml")
    assert str(caught.value).count("; near") == len(asked) == machine_file.MOST_PROBLEMS
    assert str(caught.value).endswith("(line 22); and 980 more")


def test_machines_of_the_package() -> None:
    nmps = ("nmp-4x8", "nmp-4x8-dual", "nmp-4x8-int8", "nmp-4x8-paper", "nmp-4x8-scale")
    assert set(nmps) <= set(machine_names())
    for name in machine_names():
        assert load_machine(name).name == name
    assert [name for name in machine_names() if load_machine(name).isa == "nmp"] == list(nmps)
    base = load_nmp_machine("nmp-4x8")
    assert base.ring is not None and base.memories.ports == 1
    assert (base.ring.bytes_per_cycle, base.ring.hop_cycles) == (16.0, 4.0)
    assert different(base, load_nmp_machine("nmp-4x8-int8")) == {"default_precision": "int8"}
    paper = different(base, load_nmp_machine("nmp-4x8-paper"))
    assert paper == {"mac": {**base.mac.model_dump(), "requantization": "tensor"}}
    scale = different(base, load_nmp_machine("nmp-4x8-scale"))
    assert scale == {
        "default_precision": "int8",
        "mac": {**base.mac.model_dump(), "requantization": "scale"},
        "memories": {**base.memories.model_dump(), "bias_bytes": 16384},
    }
    dual = different(base, load_nmp_machine("nmp-4x8-dual"))
    assert dual == {"memories": {**base.memories.model_dump(), "ports": 2}}


def test_values_from_before_rings_and_ports() -> None:
    """A serialized description without them has neither rings nor a second port."""
    values = load_nmp_machine("nmp-4x8").model_dump()
    del values["ring"], values["memories"]["ports"]
    machine = nmp_machine_from_dict(values)
    assert machine.ring is None and machine.memories.ports == 1
    assert nmp_machine_from_dict(machine.model_dump()) == machine
    assert machine.with_cores(2, 3).ring is None


def test_extending() -> None:
    text = 'extends = "nmp-4x8"\nname = "mine"\n[ring]\nhop_cycles = 9.0\n[cores]\ntles = 2\n'
    machine = nmp_machine_from_toml(text, "mine.toml")
    base = load_nmp_machine("nmp-4x8")
    assert (machine.name, machine.description) == ("mine", "")
    assert different(base, machine) == {
        "ring": {"bytes_per_cycle": 16.0, "hop_cycles": 9.0},
        "cores": {**base.cores.model_dump(), "tles": 2},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "nmp-4x8"\n', "name: Field required"),
        ('extends = "nmp-9"\nname = "a"\n', "extends: no machine .*'nmp-9'.*nmp-4x8"),
        ('extends = 3\nname = "a"\n', "extends: no machine .*3"),
        ('extends = "nmp-4x8"\nname = "a"\nring = 4\n', "ring: .*4"),
        ('extends = "nmp-4x8"\nname = "a"\n[ring]\nhops = 1\n', "ring.hops: "),
        ('extends = "nmp-4x8"\nname = "a"\n[memories]\nports = 3\n', "memories.ports: .*3"),
        ('extends = "nmp-4x8"\nname = "a"\n[ring]\nbytes_per_cycle = 0.0\n',
         r"ring.bytes_per_cycle: .*0\.0"),
        ('extends = "nmp-4x8"\nname = "a"\n[ring]\nhop_cycles = -1.0\n', r"ring.hop_cycles: .*-1"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(MachineError, match=f"(?s)a.toml.*{message}"):
        load_nmp_machine(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": {"instruction_cache_bytes": 256, "instruction_line_bytes": 512}},
         "cores: instruction_cache_bytes = 256 does not hold .* instruction_line_bytes = 512$"),
        ({"cores": {"instruction_line_bytes": 18}}, "cores.instruction_line_bytes: .* 4 .*18"),
        ({"memories": {f"mb{k}_bytes": 1 << 24 for k in range(3)}},
         "mb0_bytes .* = 50335744 in .* = 32 TLTs are 1610743808 bytes.*at most 1073741824$"),
        ({"dme": {"bytes_per_cycle": 0.001}}, r"dme.bytes_per_cycle: .* 0\.01 .*0\.001"),
        ({"ring": {"bytes_per_cycle": 1e-9}}, r"ring.bytes_per_cycle: .* 0\.01 .*1e-09"),
        ({"ring": {"hop_cycles": 2e3}}, r"ring.hop_cycles: .* 1000 .*2000"),
        ({"mac": {"efficiency": 1e-5}}, r"mac.efficiency: .* 0\.001 .*1e-05"),
        ({"frequency_mhz": 0.0}, r"frequency_mhz: .* 0\.001 .*0\.0"),
        ({"cores": {"tles": True}}, "cores.tles: .*integer.*True"),
        ({"cores": {"tles": "4"}}, "cores.tles: .*integer.*'4'"),
        ({"dme": {"bytes_per_cycle": True}}, "dme.bytes_per_cycle: .*number.*True"),
        ({"memories": {"ports": True}}, "memories.ports: .*integer.*True"),
        ({"memories": {"ports": 0}}, "memories.ports: .* 1 .*0"),
        ({"dram": {"base_address": 1 << 20}}, "dram.base_address = 0x100000 is below 0x40000000"),
    ],
)  # fmt: skip
def test_absurd_machines(changes: dict[str, Any], message: str) -> None:
    """The text names the key, its value and the limit."""
    values = load_nmp_machine("nmp-4x8").model_dump()
    for key, change in changes.items():
        values[key] = {**values[key], **change} if isinstance(change, dict) else change
    with pytest.raises(MachineError, match=message):
        nmp_machine_from_dict(values)


def test_whole_numbers_are_numbers() -> None:
    values = load_nmp_machine("nmp-4x8").model_dump()
    values["ring"]["bytes_per_cycle"] = 8
    machine = nmp_machine_from_dict(values)
    assert machine.ring is not None and machine.ring.bytes_per_cycle == 8.0


@pytest.mark.parametrize("name", machine_names())
def test_messages_tell_the_line_of_a_key(name: str) -> None:
    """A key of every line of every shipped file gets another name, one at a time."""
    file = Path(__file__).parents[2] / "sim" / "machines" / f"{name}.toml"
    lines = file.read_text("utf-8").split("\n")
    table = ""
    for number, line in enumerate(lines, 1):
        if line.startswith("["):
            table = line
        key, equals, _ = line.partition(" = ")
        if not equals or line.startswith("#") or key in ("name", "isa", "extends"):
            continue
        changed = [*lines[: number - 1], f"{key}x{line[len(key) :]}", *lines[number:]]
        with pytest.raises(MachineError, match=rf"{key}x: Extra .*\(line {number}\)") as caught:
            machine_from_toml("\n".join(changed), "a.toml")
        heading = lines.index(table) + 1 if table else 0
        for told in re.findall(r"Field required \(line (\d+)\)", str(caught.value)):
            assert int(told) == heading  # a key that is missing should stand in the table


def test_arrays_of_arrays_are_no_tables() -> None:
    text = "[a] # one\nb = [\n  [1, 2],\n  [3, 4]\n]\n'c d'.e = 5\n[[ f . \"g\" ]]\nh = 6\n"
    assert lines_of_keys(text) == {
        ("a",): 1, ("a", "b"): 2, ("a", "c d", "e"): 6, ("f", "g"): 7, ("f", "g", "h"): 8,
    }  # fmt: skip


def test_lines_inside_of_long_texts_are_no_keys() -> None:
    text = 'extends = "nmp-4x8"\nname = "a"\ndescription = """\n[dme]\nx = 1\n"""\n[dme]\nx = 1\n'
    with pytest.raises(MachineError, match=r"dme\.x: Extra .*\(line 8\)"):
        machine_from_toml(text, "a.toml")


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b'base = "nmp-4x8"\n')
    with pytest.raises(MachineError, match="byte order mark.*save it as UTF-8 without one"):
        load_machine(path)
