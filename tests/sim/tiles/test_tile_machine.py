"""Files of tile machines: what extends what, and what is refused, in words about the file."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_file import machine_from_toml
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

TEXT = (resources.files("tvm_npu.sim") / "machines" / "setup-a.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("input_bytes = 262144", "", "memories.input_bytes: Field required"),
        ("input_bytes = 262144", "input_bytes = 1001",
         "memories.input_bytes: Input should be a multiple of 8 (value: 1001)"),
        ("input_bytes = 262144", "shared_bytes = 262144",
         "memories.weight_bytes: Extra inputs are not permitted (value: 131072) (line 16); "
         "memories.output_bytes: Extra inputs are not permitted (value: 262144)"),
        ("[memories]", "[memory]", "memories: Field required; memory: Extra inputs"),
        ('column_mapping = "IC"', 'column_mapping = "XX"',
         "array.column_mapping: Input should be 'IC', 'OC', 'OH' or 'OW' (value: 'XX')"),
        ('column_mapping = "IC"', 'column_mapping = "OC"',
         "array: column_mapping = row_mapping = 'OC'; they take different loops"),
        ("setup_cycles = 16", "setup_cycles = 16\ntaps_at_once = 17",
         "array: taps_at_once = 17; at most 16, as many PEs as the loop IC is spread over"),
        ("int8_bytes = 4", "int8_bytes = 3",
         "words.int8_bytes: Input should be 1, 2 or 4 (value: 3)"),
        ('isa = "tiles"', 'isa = "tile"',
         "isa: no such kind of machine (value: 'tile'); there are 'nmp', .*'tiles'"),
        ('isa = "tiles"', "isa = 3", "isa: no such kind of machine (value: 3)"),
        ("bytes_per_cycle = 58.8", "bytes_per_cycle = 0.0", "mover.bytes_per_cycle: .* (value: 0"),
        ("base_address = 0x80000000", "base_address = 0x1000", "below 0x40000000"),
    ],
)  # fmt: skip
def test_mistakes_are_named(old: str, new: str, message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(MachineError, match=f"machine file a.toml: .*{pattern}") as caught:
        machine_from_toml(TEXT.replace(old, new, 1), "a.toml")
    assert "SplitMemories" not in str(caught.value)


@pytest.mark.parametrize("table", ["array", "mover"])
def test_a_machine_has_one_of_each(table: str) -> None:
    other = {"array": "core", "mover": "dmac"}[table]
    without = re.sub(rf"\[{table}\].*?(?=\n\[)", "", TEXT, flags=re.DOTALL)
    with pytest.raises(MachineError, match=rf"neither of \[{table}\] and \[{other}\] given"):
        machine_from_toml(without, "a.toml")


DMAC = "\n[dmac]\nchannels = 2\n"


def test_both_of_a_pair() -> None:
    with pytest.raises(MachineError, match=r"both of \[mover\] and \[dmac\] given"):
        machine_from_toml(TEXT + DMAC, "a.toml")


def test_extending_replaces_alternatives() -> None:
    mover = "[mover]\nsetup_cycles = 1\nsegment_cycles = 0\nbytes_per_cycle = 2\n"
    found = machine_from_toml('extends = "zynq-7020"\nname = "mine"\n' + mover, "a.toml")
    assert isinstance(found, TileMachine)
    assert found.mover is not None and found.dmac is None and found.core is not None
    start = 'extends = "setup-a"\nname = "mine"\n'
    found = machine_from_toml(start + "[memories]\nshared_bytes = 1024\n", "a.toml")
    assert isinstance(found, TileMachine)
    assert found.memories == SharedMemory(shared_bytes=1024, bias_bytes=131072)
    found = machine_from_toml(start + "[memories]\ninput_bytes = 1024\n", "a.toml")
    assert isinstance(found, TileMachine)
    assert found.memories.model_dump()["weight_bytes"] == 131072


def test_pes_over_a_loop() -> None:
    found = machine_from_toml(TEXT.replace("width = 16", "width = 8"), "a.toml")
    assert isinstance(found, TileMachine) and found.array is not None
    assert [found.array.pes_over(axis) for axis in ("IC", "OC", "OH", "OW")] == [8, 16, 1, 1]


def test_a_dma_controller_serves_a_core_and_one_memory() -> None:
    text = 'extends = "setup-a"\nname = "mine"\n' + DMAC
    with pytest.raises(MachineError, match=r"\[dmac\] without \[core\]"):
        machine_from_toml(text, "a.toml")
    text = (
        'extends = "zynq-7020"\nname = "mine"\n[memories]\ninput_bytes = 1024\n'
        "weight_bytes = 1024\noutput_bytes = 1024\n"
    )
    with pytest.raises(MachineError, match=r"\[dmac\] without memories.shared_bytes"):
        machine_from_toml(text, "a.toml")
