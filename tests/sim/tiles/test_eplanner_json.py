"""e-PlaNNer's JSON machine description: the figure's example, and every way to get it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.machine import SplitMemories, TileMachine

FIGURE = """\
{
     "bandwidth": 1.6,          // off-chip bandwidth (GB/s)
                                // PE clock frequency (GHz)
     "frequency": 1.2,
     "mem_size": [368,288,144], // on-chip memories (KiB)
                                // (input, weight, output)
     "pe_len": [32, 32],        // PE array (width, height)
     "pe_mapping":
       [ ["IC"],                // PE column mapping
         ["OC"] ]               // PE row mapping
}
"""


def load(tmp_path: Path, text: str) -> TileMachine:
    path = tmp_path / "tx 2.json"
    path.write_text(text)
    machine = load_machine(path)
    assert isinstance(machine, TileMachine)
    return machine


def test_the_thesis_example(tmp_path: Path) -> None:
    machine = load(tmp_path, FIGURE)
    memories = machine.memories
    assert isinstance(memories, SplitMemories)
    sizes = (memories.input_bytes, memories.weight_bytes, memories.output_bytes)
    assert sizes == (368 * 1024, 288 * 1024, 144 * 1024)
    assert machine.name == "tx-2" and machine.frequency_mhz == 1200
    assert machine.array is not None and machine.mover is not None
    assert (machine.array.width, machine.array.height) == (32, 32)
    assert (machine.array.column_mapping, machine.array.row_mapping) == ("IC", "OC")
    assert machine.mover.bytes_per_cycle == pytest.approx(1.6 / 1.2)  # bytes in a nanosecond
    assert machine_from_dict(machine.model_dump()) == machine


def test_set_up_a_from_its_numbers(tmp_path: Path) -> None:
    text = """{"bandwidth": 59.976, "frequency": 1.02, "mem_size": [256, 128, 256],
               "pe_len": [16, 16], "pe_mapping": [["IC"], ["OC"]]}"""
    built_in = load_machine("setup-a")
    expected = {**built_in.model_dump(), "name": "tx-2"}
    found = load(tmp_path, text).model_dump()
    assert found["mover"].pop("bytes_per_cycle") == pytest.approx(58.8)
    assert expected["mover"].pop("bytes_per_cycle") == 58.8
    assert {**found, "description": ""} == {**expected, "description": ""}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"IC"', '"KW"', r'line 9: pe_mapping: unknown mapping "KW"; known are IC, OC, OH, OW'),
        ('"OC"', '"OC", "OH"', r"line 10: pe_mapping: expected a list of 1 \(one loop each"),
        ('"OC"', '"IC"', "line 10: pe_mapping: 'IC' for columns and rows; they take different"),
        ('["IC"]', "7", "line 9: pe_mapping: expected a list of 1"),
        ("1.6", '"fast"', 'line 2: bandwidth: expected a number, found "fast"'),
        ("1.6", "true", "line 2: bandwidth: expected a number, found true"),
        ("1.6", "-2", r"line 2: bandwidth = -2 GB/s; from 0.001 to 100000"),
        ("1.6", "1.6.2", "line 2: not JSON: '1.6.2' where a value is expected"),
        ("1.2", "1e9", r"line 4: frequency = 1000000000.0 GHz; from 0.001 to 100"),
        ("368,288,144", "368,288", r"line 5: mem_size: expected a list of 3 \(input, weight and"),
        ("368,288,144", "368,\n288,\n0", "line 7: mem_size = 0 KiB; from 1 to 16384"),
        ("368,", "1.001,", "line 5: mem_size: 1.001 KiB is no multiple of 8 bytes"),
        ("[32, 32]", "[32, 1.5]", "line 7: pe_len: expected an integer from 1 to 65536, found 1.5"),
        ('"frequency"', '"clock"', "line 4: unknown key 'clock'; the keys are bandwidth, freq"),
        ('"frequency"', '"bandwidth"', "line 4: key 'bandwidth' is given twice"),
        ('     "frequency": 1.2,\n', "", "line 10: missing keys: frequency"),
        ('"frequency"', "frequency", "line 4: not JSON: 'frequency' where a key is expected"),
        ("1.2,", "1.2;", "line 4: not JSON: unexpected ';'"),
        ("1.2,", "1.2", "line 5: not JSON: '\"mem_size\"' where ',' is expected"),
        ('["OC"] ]', '["OC"]', "line 11: not JSON: '}' where ',' is expected"),
        ("// PE row mapping\n}", "}\n{", "line 11: not JSON: '{' behind the last }"),
        (FIGURE, "", "line 1: not JSON: 'the end of the file' where '{' is expected"),
        ("1.6", "9" * 400, "line 2: bandwidth = 99999999999999999999999999999999999999"),
        ("1.6", "9" * 5000, "line 2: not JSON: '999"),
        ("1.6", "[" * 5000 + "]" * 5000, "line 2: lists in lists; 2 deep is possible"),
        ("1.6", "\x0b1.6", r"line 2: not JSON: unexpected '\\x0b'"),
        ("1.6", "[" + "1," * 33_000, "line 1: a text of [0-9]+ characters; at most 65536"),
        (FIGURE, "[]", r"line 1: not JSON: '\[' where '{' is expected"),
    ],
)  # fmt: skip
def test_errors_have_lines(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FIGURE
    with pytest.raises(MachineError, match=r"machine file .*tx 2\.json, " + message):
        load(tmp_path, FIGURE.replace(old, new, 1))
