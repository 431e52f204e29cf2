"""The program file: equal bytes for equal programs, and an error for everything else."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate, small_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.graph import FixedGraph, q_point_scales
from tvm_npu.codegen.ops import FixedConv, FixedPool
from tvm_npu.codegen.program import format as program_format
from tvm_npu.codegen.program.annotate import LONGEST_COMMENT, code_comments
from tvm_npu.codegen.program.format import FORMAT_VERSION, PROLOGUE, Program, Segment
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.streams import Stream


def make_program() -> Program:
    generator = np.random.default_rng(1)
    conv = FixedConv(
        "conv", ("x",), ("y",), source=("Conv_0", "Relu_1"),
        weight=generator.integers(-99, 99, (6, 4, 3, 3)).astype(np.int16),
        bias=generator.integers(-9999, 9999, 6).astype(np.int32), padding=(1, 1, 1, 1), shift=6,
        low=0, high=32767,
    )  # fmt: skip
    pool = FixedPool(
        "pool", ("y",), ("z",), kind="max", kernel=(2, 2), stride=(2, 2), shift=0, low=-32768,
        high=32767,
    )  # fmt: skip
    shapes = {"x": (4, 10, 10), "y": (6, 10, 10), "z": (6, 5, 5)}
    fixed = FixedGraph(
        (conv, pool), shapes, ("x",), ("z",), q_point_scales(dict.fromkeys("xyz", 8)), 2
    )
    return compile_fixed(fixed, small_machine(2, 2), "exact-dma")  # two layers, no forwards


PROGRAM = make_program()
DATA = PROGRAM.to_bytes()


def rebuilt(edit: Callable[[dict[str, Any]], None], version: int = FORMAT_VERSION) -> bytes:
    """The file with another header and correct sums, as somebody could forge it."""
    magic, _, size, _, _ = PROLOGUE.unpack_from(DATA)
    header = json.loads(DATA[PROLOGUE.size : PROLOGUE.size + size])
    edit(header)
    text = json.dumps(header).encode()
    rest = DATA[PROLOGUE.size + size :]
    total = PROLOGUE.size + len(text) + len(rest)
    return PROLOGUE.pack(magic, version, len(text), total, hashlib.sha256(text).digest()) + (
        text + rest
    )


def test_round_trip() -> None:
    again = Program.from_bytes(DATA)
    assert again.to_bytes() == DATA
    assert again.layers == PROGRAM.layers
    assert again.inputs == PROGRAM.inputs and again.outputs == PROGRAM.outputs
    assert again.machine_description() == small_machine(2, 2)
    assert np.array_equal(again.code, PROGRAM.code)
    assert np.array_equal(again.debug, PROGRAM.debug)


def test_makers_of_inputs() -> None:
    """Are in a file where they are known, and left out as files leave them out that are older."""
    assert b'"source":""' not in DATA
    inputs = tuple(replace(slot, source="the_log") for slot in PROGRAM.inputs)
    again = Program.from_bytes(replace(PROGRAM, inputs=inputs).to_bytes())
    assert [slot.source for slot in again.inputs] == ["the_log"]
    assert replace(again, inputs=PROGRAM.inputs).to_bytes() == DATA


def test_a_tensor_of_very_many_extents_is_refused_at_once() -> None:
    def edit(header: dict[str, Any]) -> None:
        header["inputs"][0]["shape"] = [1 << 32] * 60_000

    begin = time.process_time()
    with pytest.raises(ProgramError, match="inputs.0.shape: .* at most 16 items"):
        Program.from_bytes(rebuilt(edit))
    assert time.process_time() - begin < 2


def test_outputs_that_are_much_more_than_the_memory_are_refused() -> None:
    """Each is read out, wherever it lies."""

    def edit(header: dict[str, Any], count: int) -> None:
        header["outputs"] *= count

    Program.from_bytes(rebuilt(lambda header: edit(header, 8)))
    with pytest.raises(ProgramError, match="size of all outputs is 3000000, expected at most"):
        Program.from_bytes(rebuilt(lambda header: edit(header, 10_000)))


def test_deterministic() -> None:
    assert make_program().to_bytes() == DATA


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "net.npu"
    path.write_bytes(b"old")
    PROGRAM.to_file(path)
    assert Program.from_file(path).to_bytes() == DATA
    assert list(tmp_path.iterdir()) == [path]
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode, "others may read it as any file"


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.npu"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk"):
        PROGRAM.to_file(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def positions() -> list[int]:
    """All of the prologue, then every 37th byte, then the last."""
    return [*range(PROLOGUE.size), *range(PROLOGUE.size, len(DATA), 37), len(DATA) - 1]


def test_every_altered_byte_is_found() -> None:
    for position in positions():
        altered = bytearray(DATA)
        altered[position] ^= 0x10
        with pytest.raises(ProgramError):
            Program.from_bytes(bytes(altered))


def test_every_truncation_is_found() -> None:
    for length in (*positions(), 0):
        with pytest.raises(ProgramError, match="length"):
            Program.from_bytes(DATA[:length])
    with pytest.raises(ProgramError, match=f"length is {len(DATA) + 1}, expected {len(DATA)}"):
        Program.from_bytes(DATA + b"\0")


@given(st.binary(max_size=300))
def test_foreign_bytes(data: bytes) -> None:
    with pytest.raises(ProgramError):
        Program.from_bytes(data)


def test_foreign_and_newer_files_are_named() -> None:
    with pytest.raises(ProgramError, match="magic is b'PK"):
        Program.from_bytes(b"PK\3\4" + DATA[4:])
    newer = rebuilt(lambda header: None, FORMAT_VERSION + 1)
    with pytest.raises(ProgramError, match="version is 3, expected 2; it was written by a newer"):
        Program.from_bytes(newer)
    older = rebuilt(lambda header: None, 1)
    with pytest.raises(ProgramError, match="version is 1, expected 2; compile the model again"):
        Program.from_bytes(older)


def test_huge_header_length_allocates_nothing() -> None:
    magic, version, _, total, digest = PROLOGUE.unpack_from(DATA)
    forged = PROLOGUE.pack(magic, version, 0xFFFF_FFFF, total, digest) + DATA[PROLOGUE.size :]
    with pytest.raises(ProgramError, match="header length is 4294967295"):
        Program.from_bytes(forged)


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def edit(header: dict[str, Any]) -> None:
        target: Any = header
        for key in keys:
            target = target[key]
        target[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (_set("layers", 0, "plan", {"x": [[]] * 300}), r"header: [0-9]+ values.*; at most 500"),
        (_set("layers", 0, "source", [0] * 300), r"header: [0-9]+ values.*; compile a model in"),
        (_set("name", "n" * 9000), "header length is [0-9]+, expected at most 9000"),
    ],
)  # fmt: skip
def test_headers_are_bounded_before_they_are_parsed(
    edit: Callable[[dict[str, Any]], None], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value takes a hundred bytes as an object, and a thousand as a mistake."""
    monkeypatch.setattr(program_format, "MOST_HEADER_VALUES", 500)
    monkeypatch.setattr(program_format, "LARGEST_HEADER_BYTES", 9000)
    Program.from_bytes(DATA)
    monkeypatch.setattr(program_format, "_HEADER", None)
    with pytest.raises(ProgramError, match=named):
        Program.from_bytes(rebuilt(edit))


def test_a_program_that_no_reader_takes_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_format, "MOST_HEADER_VALUES", 50)
    with pytest.raises(ProgramError, match="header: [0-9]+ values"):
        PROGRAM.to_bytes()


def test_scopes_name_no_more_loops_than_there_are_registers() -> None:
    for scope, named in (
        ({f"l{number}": 1 for number in range(33)}, "scopes.0: .* at most 32"),
        ({"l" * 65: 1}, "scopes.0.*at most 64"),
    ):
        with pytest.raises(ProgramError, match=named):
            Program.from_bytes(rebuilt(_set("scopes", 0, scope)))


def test_comments_do_not_grow_with_the_names_of_layers() -> None:
    """Every instruction may be of another layer than the one before."""
    long = "n" * 60_000
    layers = tuple(replace(one, name=long, source=(long, long)) for one in PROGRAM.layers)
    debug = PROGRAM.debug.copy()
    debug["layer"] = np.arange(len(debug)) % 2
    comments = code_comments(replace(PROGRAM, layers=layers, debug=debug))
    assert len(comments) == len(PROGRAM.code)
    assert max(map(len, comments.values())) <= 4 * (LONGEST_COMMENT + 1)
    assert "nnn..." in comments[1]


SLOT: dict[str, Any] = {
    "name": "h", "shape": [4], "scale": {"shifts": [8], "multipliers": [1], "zero_points": [0]},
    "element_type": "int16", "segment": "states", "offset": 16, "stored_bytes": 2,
}  # fmt: skip
TABLE: dict[str, Any] = {
    "name": "sigmoid", "function": "1 / (1 + exp(-x))", "element_type": "int16",
    "entries": 1 << 20, "offset": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (_set("unknown", 1), "unknown"),
        (_set("precision", "int4"), "precision"),
        (_set("precision", "int8"), "precision is int8, expected one of .'int16'"),
        (_set("inputs", 0, "element_type", "int8"), "element type of tensor 'x' is int8"),
        (_set("layers", 1, "precision", "int4"), "precision"),
        (_set("machine", "cores", "tles", 0), "cores.tles"),
        (_set("machine", {}), "cores"),
        (_set("segments", "activations", "size_bytes", 1 << 40), "memory of all segments"),
        (_set("segments", "activations", "size_bytes", 1 << 41), "size_bytes"),
        (_set("segments", "activations", "size_bytes", -1), "size_bytes"),
        (_set("segments", "code", "size_bytes", 4), "size of segment code is 4"),
        (_set("segments", "heap", {"size_bytes": 1, "alignment_bytes": 1}), "heap"),
        (_set("segments", "code", "alignment_bytes", 0), "alignment_bytes"),
        (_set("inputs", 0, "offset", 1 << 30), "end of tensor 'x'"),
        (_set("inputs", 0, "offset", 1), "offset of tensor 'x' is 1"),
        (_set("inputs", 0, "shape", [0, 3]), "shape"),
        (_set("inputs", 0, "shape", [1 << 32, 1 << 32]), "end of tensor 'x'"),
        (_set("inputs", 0, "scale", "shifts", [1.5]), "shifts"),
        (_set("inputs", 0, "scale", "multipliers", [4]), "multiplier 4 of a scale is not odd"),
        (_set("outputs", 0, "scale", "zero_points", [1 << 32]), "zero point 4294967296 of a scale"),
        (_set("inputs", 0, "scale", "shifts", [1, 2]), "channels in the scale of tensor 'x' is 2"),
        (_set("images", []), "images"),
        (_set("images", 0, "begin", 4), "code image 0 is .4, "),
        (_set("images", 0, "end", 8), "end of the last code image is 8"),
        (_set("layers", 0, "code", []), "number of images in the code of layer 'conv' is 0"),
        (_set("states", [SLOT]), "end of tensor 'h' is 24, expected at most 0"),
        (_set("states", [{**SLOT, "segment": "activations"}]), "segment of state 'h' is activ"),
        (_set("tables", [TABLE]), "end of lookup table 'sigmoid'"),
        (_set("tables", [{**TABLE, "offset": 1, "entries": 2}]), "offset of lookup table"),
        (_set("inputs", 0, "segment", "stack"), "segment"),
        (_set("parameter_offset", 1 << 30), "offset of the parameters"),
        (_set("layers", 0, "code", 0, "end", 1 << 20), "code of layer 'conv'"),
        (_set("layers", 0, "code", 0, "begin", 2), "code of layer 'conv'"),
        (_set("layers", 1, "plan", {"a": [1, {"b": float("nan")}]}), "layer 'pool' is .nan"),
        (_set("layers", 0, "plan", {"a": -float("inf")}), "layer 'conv' is .-inf."),
        (_set("layers", 0, "predicted_cycles", float("nan")), "predicted_cycles"),
        (_set("machine", "mac", "efficiency", float("nan")), "mac.efficiency"),
        (_set("layers", []), "layers in the debug map"),
        (_set("scopes", []), "a scope in the debug map"),
        (_set("scopes", 0, {"row": 32}), "scopes"),
        (_set("sections", 0, "size_bytes", 0), "size of all sections"),
        (_set("sections", 0, "name", "data"), "list of sections"),
        (_set("sections", 0, "sha256", "0" * 64), "SHA-256 of code"),
    ],
)
def test_inconsistent_headers(edit: Callable[[dict[str, Any]], None], named: str) -> None:
    with pytest.raises(ProgramError, match=named):
        Program.from_bytes(rebuilt(edit))


def test_a_scope_that_is_not_there() -> None:
    debug = PROGRAM.debug.copy()
    debug["scope"] = 0
    with pytest.raises(ProgramError, match="a scope in the debug map is 0, expected < 0"):
        replace(PROGRAM, scopes=(), debug=debug).to_bytes()


def test_relocation_outside_its_segment() -> None:
    relocations = PROGRAM.relocations.copy()
    for column, value, named in (
        ("offset", len(PROGRAM.constants), "offset of a relocation in constants"),
        ("offset", 2, "misaligned"),
        ("target", 4, "target of a relocation"),
        ("segment", 2, "offset of a relocation in activations"),
    ):
        altered = relocations.copy()
        altered[column][0] = value
        fields = {**PROGRAM.__dict__, "relocations": altered}
        with pytest.raises(ProgramError, match=named):
            Program(**fields).to_bytes()


def test_a_machine_description_without_rings_and_ports() -> None:
    """As files had it before machines could have them."""

    def edit(header: dict[str, Any]) -> None:
        del header["machine"]["ring"], header["machine"]["memories"]["ports"]

    program = Program.from_bytes(rebuilt(edit))
    machine = program.machine_description()
    assert machine.ring is None and machine.memories.ports == 1
    assert np.array_equal(program.code, PROGRAM.code)


def test_forwards_need_a_ring() -> None:
    code = PROGRAM.code.copy()
    code[3] = NMP_ISA.encode("nmp_forward3d", sem=1, rs1=2, rs2=3)
    fields = {**PROGRAM.__dict__, "code": code}
    Program(**fields).to_bytes()
    fields["machine"] = {**PROGRAM.machine, "ring": None}
    with pytest.raises(
        ProgramError, match="number of nmp_forward3d .* is 1, expected 0 on machine .* no ring bus"
    ):
        Program(**fields).to_bytes()


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_forged_headers_raise_nothing_else(data: st.DataObject) -> None:
    """Any value anywhere in the header: a ProgramError or a program, never another error."""
    value = data.draw(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
        | st.just([]) | st.just({}) | st.sampled_from((1 << 62, -1, "code", "-1")),
    )  # fmt: skip

    def edit(header: dict[str, Any]) -> None:
        target: Any = header
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(target[key], dict | list) or not target[key]:
                break
            if data.draw(st.integers(0, 5)) == 0:
                break
            target = target[key]
        target[key] = value

    try:
        Program.from_bytes(rebuilt(edit))
    except ProgramError:
        pass


def test_relocation_to_two_addresses() -> None:
    """The program computes the same wherever it lies, and only parameter words differ."""
    base = PROGRAM.machine_description().dram.base_address
    first, second = PROGRAM.image(base), PROGRAM.image(base + 0x12340)
    assert np.array_equal(first.code, second.code)
    words = [np.frombuffer(image.constants, "<u4").astype(np.int64) for image in (first, second)]
    moved = np.flatnonzero(words[0] != words[1])
    assert set((4 * moved).tolist()) == set(PROGRAM.relocations["offset"].tolist())
    shift = second.addresses[Segment.CODE] - first.addresses[Segment.CODE]
    assert shift >= 0x12340
    assert set((words[1] - words[0])[moved].tolist()) == {shift}
    x = {"x": np.random.default_rng(2).integers(-999, 999, (4, 10, 10)).astype(np.int16)}
    outputs = [simulate(PROGRAM, x, offset)[0]["z"] for offset in (0, 0x12340)]
    assert np.array_equal(outputs[0], outputs[1])


def test_placement_outside_the_address_space() -> None:
    with pytest.raises(ProgramError, match="32-bit address space"):
        PROGRAM.placement((1 << 32) - 256)


def test_segments_are_aligned_and_disjoint() -> None:
    placed = PROGRAM.placement(0x8000_0001)
    end = 0x8000_0001
    for segment, address in placed.items():
        size = PROGRAM.segments[segment]
        assert address >= end and address % size.alignment_bytes == 0
        end = address + size.size_bytes


def test_debug_map_names_layer_stream_and_tile() -> None:
    streams = set()
    for number, layer in enumerate(PROGRAM.layers):
        rows = range(layer.code[0].begin // 4, layer.code[0].end // 4)
        assert {PROGRAM.origin(row).layer for row in rows} == {number}
        streams |= {(layer.name, PROGRAM.origin(row).stream) for row in rows}
    assert PROGRAM.origin(0).layer is None
    assert PROGRAM.origin(len(PROGRAM.code) - 1).layer is None
    expected = {Stream.OTHER, Stream.IN, Stream.WEIGHT, Stream.BIAS, Stream.OUT}
    assert {stream for name, stream in streams if name == "conv"} == expected
    assert PROGRAM.layers[0].source == ("Conv_0", "Relu_1")
    assert PROGRAM.layers[0].macs == 6 * 4 * 9 * 100
