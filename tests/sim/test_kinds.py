"""Kinds of machines: the list, kinds from outside, and what is not imported too early."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from tvm_npu.sim import kinds, machine_file
from tvm_npu.sim.errors import KindError, MachineError, SimError
from tvm_npu.sim.image import CodeImage, MemoryRange, ProgramImage
from tvm_npu.sim.kinds import RunsElf, isa_names, load_program, machine_kind, outside_problems
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.machine_file import load_machine, machine_from_dict, machine_names
from tvm_npu.sim.machine_parts import Precision

ROOT = Path(__file__).parents[2]

KIND = """
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.isa.table import Instruction, Isa


class Toy(MachineDescription):
    isa: Literal["{isa}"]


class Simulator:
    def __init__(self, image):
        self.dram = np.zeros(image.end_address, np.uint8)

    def write(self, address, data):
        self.dram[address : address + data.size] = data

    def run(self, *, timing=True):
        self.dram += 1


@dataclass(frozen=True)
class Kind:
    description: type = Toy
    isa: Isa = Isa("{isa}", "Toy", (Instruction("stop", 0, (), "", "ends", "stop"),))
    holds_addresses: bool = False
    hidden_locations: tuple = ()
    readers: dict = field(default_factory=dict)
    machines: Path = Path(__file__).parent / "{module}_machines"

    def drop_alternatives(self, base, values):
        pass

    def code_fault(self, words, machine):
        return None

    def load(self, image, machine, limits):
        return Simulator(image)


KIND = Kind()
"""
MACHINE = """
name = "{name}"
isa = "{isa}"
frequency_mhz = 1.0
default_precision = "int8"
[dram]
base_address = 0
capacity_bytes = 65536
"""

Install = Callable[..., None]


def forget() -> None:
    kinds._outside.cache_clear()
    kinds.machine_kind.cache_clear()
    kinds.outside_problems.cache_clear()
    machine_file._built_in.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with an entry point on the path, as pip does."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(
        package: str, isa: str, code: str | None = None, value: str = "", machine: str = ""
    ) -> None:
        module = package.replace("-", "_")
        text = KIND.replace("{isa}", isa) if code is None else code
        (tmp_path / f"{module}.py").write_text(text.replace("{module}", module), "utf-8")
        folder = tmp_path / f"{module}_machines"
        folder.mkdir()
        if machine:
            (folder / f"{machine}.toml").write_text(MACHINE.format(name=machine, isa=isa), "utf-8")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        point = f"[{kinds.ENTRY_POINTS}]\n{isa} = {value or f'{module}:KIND'}\n"
        (info / "entry_points.txt").write_text(point, "utf-8")
        sys.modules.pop(module, None)
        forget()

    yield put
    forget()


def image(data: np.ndarray, precisions: tuple[Precision, ...] = ()) -> ProgramImage:
    words = np.zeros(1, np.uint32)
    code = CodeImage(words, 0, 0, np.full(1, -1, np.int32), np.zeros(1, np.int8))
    names = tuple(f"layer{k}" for k in range(len(precisions)))
    return ProgramImage(
        "p", (code,), MemoryRange(8, data.size), MemoryRange(16, 0), {8: data}, 8, 64, names,
        precisions, "int8",
    )  # fmt: skip


def test_every_kind_has_its_name_and_machines() -> None:
    assert isa_names()[: len(kinds.BUILT_IN)] == tuple(kinds.BUILT_IN)
    assert set(kinds.BUILT_IN) == {load_machine(name).isa for name in machine_names()}
    for isa in kinds.BUILT_IN:
        kind = machine_kind(isa)
        assert kind.isa.name == isa
        assert all(hasattr(kind, part) for part in kinds._PARTS)
    assert isinstance(machine_kind("nmp"), RunsElf)
    assert not isinstance(machine_kind("tiles"), RunsElf)


def test_names_of_machines_by_kind(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that load, of built-in kinds and one from outside; to say them, none is validated."""
    install("toy-npu", "toy", machine="toy-1")
    folder = machine_kind("toy").machines
    assert isinstance(folder, Path)
    (folder / "toy-2.toml").write_text('name = "toy-2"\nextends = "toy-1"\n', "utf-8")
    (folder / "wide.toml").write_text('name = "wide"\nextends = "nmp-4x8"\n', "utf-8")
    of_kinds = {
        isa: tuple(name for name in machine_names() if load_machine(name).isa == isa)
        for isa in isa_names()
    }
    assert of_kinds["toy"] == ("toy-1", "toy-2") and "wide" in of_kinds["nmp"]
    unreadable = ("name = ", 'name = "x"', 'extends = "nothing"', 'extends = "lost-3"')
    for number, text in enumerate(unreadable):
        (folder / f"lost-{number}.toml").write_text(text, "utf-8")
    (folder / "no-text.toml").write_bytes(b"\xff")
    monkeypatch.setattr(machine_file, "machine_from_dict", None)
    assert {isa: machine_names(isa) for isa in isa_names()} == of_kinds
    assert {"lost-0", "no-text"} <= set(machine_names()) and not machine_names("abacus")


def test_an_unknown_kind_is_told_with_the_known_ones() -> None:
    with pytest.raises(KindError, match="isa 'abacus'; there are 'nmp', .*'tiles'"):
        machine_kind("abacus")
    with pytest.raises(KindError, match="(?s)isa: no such kind .*'abacus'.*'nmp', .*'tiles'"):
        machine_from_dict({"isa": "abacus"})


def test_a_kind_from_outside(install: Install) -> None:
    install("toy-npu", "toy", machine="toy-1")
    assert isa_names() == (*kinds.BUILT_IN, "toy") and not outside_problems()
    machine = load_machine("toy-1")
    assert "toy-1" in machine_names() and machine.isa == "toy"
    data = np.arange(5, dtype=np.uint8)
    found = load_program(image(data), machine)
    found.run()
    assert found.dram[8:13].tolist() == [1, 2, 3, 4, 5] and found.dram[0] == 1


BROKEN = {
    "error": ("raise ZeroDivisionError('at once')", "ZeroDivisionError: at once"),
    "nothing": ("", "AttributeError: .*KIND"),
    "poor": ("class KIND:\n    isa = None\n    load = None", "has no description, .*code_fault$"),
    "misnamed": (KIND.replace("{isa}", "other"), "has an isa called 'other'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_kind_is_told_and_leaves_the_others(what: str, install: Install) -> None:
    code, reason = BROKEN[what]
    install("broken-npu", "toy", code, machine="toy-1")
    install("good-npu", "fine", machine="fine-1")
    message = f"'toy' of package 'broken-npu' .broken_npu:KIND.*{reason}"
    with pytest.raises(KindError, match=message):
        machine_kind("toy")
    assert len(outside_problems()) == 1 and load_machine("fine-1").isa == "fine"
    assert load_machine("nmp-4x8").isa == "nmp" and "toy-1" not in machine_names()
    with pytest.raises(MachineError, match=f"unknown machine 'toy-1'.*fine-1.*; .*{message}"):
        load_machine("toy-1")
    with pytest.raises(MachineError, match=f"machine file machine: isa: .*{message}"):
        machine_from_dict({"isa": "toy"})


def test_a_built_in_name_is_refused(install: Install) -> None:
    install("greedy-npu", "tiles", machine="nmp-4x8")
    assert isa_names() == tuple(kinds.BUILT_IN)
    assert machine_kind("tiles").description.__name__ == "TileMachine"
    (problem,) = outside_problems()
    assert "'tiles' of package 'greedy-npu' (greedy_npu:KIND) is refused" in problem
    assert load_machine("nmp-4x8").isa == "nmp"


def test_one_name_from_two_packages_is_refused(install: Install) -> None:
    install("first-npu", "toy")
    install("second-npu", "toy")
    with pytest.raises(KindError, match="'toy' comes more than once: .*first-npu.*second-npu"):
        machine_kind("toy")


def test_machines_of_the_package_keep_their_names(install: Install) -> None:
    install("toy-npu", "toy", machine="setup-a")
    assert load_machine("setup-a").isa == "tiles"


def test_a_program_that_a_machine_cannot_hold() -> None:
    mixed = image(np.zeros(4, np.uint8), ("int8", "int16"))
    for name in ("snowflake-1cc", "setup-a"):
        with pytest.raises(SimError, match="'p': layer 'layer1' is int16, the program is int8"):
            load_program(mixed, load_machine(name))
    one = image(np.zeros(4, np.uint8))
    two = ProgramImage(
        one.name, one.codes * 2, one.constants, one.activations, one.content, 8, 64, (), (), "int8"
    )
    for name in ("nmp-4x8", "setup-a"):
        with pytest.raises(SimError, match="'p' has 2 codes; the machine runs one"):
            load_program(two, load_machine(name))


def test_layers_times_units_are_bounded() -> None:
    """Statistics have a row for each unit of each layer."""
    machine = load_machine("nmp-4x8")
    empty = image(np.zeros(0, np.uint8))
    base = machine.dram.base_address
    code = replace(empty.code, address=base, entry_address=base)
    empty = replace(empty, codes=(code,), end_address=base + 64, content={})
    many = replace(empty, layer_names=("a",) * 20_000)
    with pytest.raises(SimError, match="20000 layers on nmp-4x8 have 1360068 rows"):
        load_program(many, machine)
    some = replace(many, layer_names=("a",) * 1000)
    with pytest.raises(LimitError, match="limit host_bytes allows"):
        needed = kinds.host_bytes(machine, 64, code.words)
        load_program(some, machine, Limits(host_bytes=needed + 1_000_000))


def test_memory_counts_what_machines_say_of_caches_and_programs() -> None:
    for name, key, changes, more in (
        ("nmp-4x8", "cores", {"instruction_cache_bytes": 1 << 24, "instruction_line_bytes": 16},
         4 * 8 * ((1 << 20) - 128)),
        ("zynq-7020", "dmac", {"program_bytes": 1 << 22}, 1 << 22),
    ):  # fmt: skip
        values = load_machine(name).model_dump(exclude_none=True)
        large = machine_from_dict(values | {key: values[key] | changes})
        assert kinds.host_bytes(large, 0) - kinds.host_bytes(load_machine(name), 0) >= more


def test_nothing_compiles_before_a_program_is_loaded() -> None:
    program = (
        "import sys\n"
        "from tvm_npu.sim import kinds, machine_file\n"
        "for name in machine_file.machine_names():\n"
        "    machine_file.load_machine(name)\n"
        "for isa in kinds.isa_names():\n"
        "    print(kinds.machine_kind(isa).isa.title)\n"
        "late = {'numba', 'scipy', 'elftools'} & set(sys.modules)\n"
        "assert not late, late\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, result.stderr
    assert "RV32IM" in result.stdout
