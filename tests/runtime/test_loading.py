"""From program files to images: several code images, states, and each tensor's own scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.program.test_program import PROGRAM
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.graph import Scale
from tvm_npu.codegen.program.annotate import code_comments
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import (
    CodeRange,
    LookupTable,
    Segment,
    SegmentSize,
    TensorSlot,
)
from tvm_npu.runtime.loading import program_image
from tvm_npu.runtime.session import Session
from tvm_npu.sim.errors import SimError

SIZE = 4 * len(PROGRAM.code)


def twice() -> Program:
    """The code as the images of two control units."""
    moved = [replace(one, code=(*one.code, shifted(one.code[0]))) for one in PROGRAM.layers]
    return replace(
        PROGRAM,
        code=np.concatenate([PROGRAM.code, PROGRAM.code]),
        debug=np.concatenate([PROGRAM.debug, PROGRAM.debug]),
        images=(CodeRange(0, SIZE), CodeRange(SIZE, 2 * SIZE)),
        layers=tuple(moved),
        segments={**PROGRAM.segments, Segment.CODE: SegmentSize(2 * SIZE, 128)},
    )


def shifted(code: CodeRange) -> CodeRange:
    return CodeRange(SIZE + code.begin, SIZE + code.end)


def test_one_image_when_nothing_is_said() -> None:
    assert PROGRAM.images == (CodeRange(0, SIZE),)
    image = program_image(PROGRAM, PROGRAM.image(0x8000_0000))
    assert image.code.address == image.code.entry_address
    np.testing.assert_array_equal(image.code.words, PROGRAM.code)
    assert PROGRAM.segments[Segment.STATES] == SegmentSize(0, 1)  # moves nothing behind it
    assert image.layer_precisions == ("int16", "int16") and image.precision == "int16"


def test_an_image_for_each_control_unit() -> None:
    program = Program.from_bytes(twice().to_bytes())
    image = program_image(program, program.image(0x8000_0000))
    first, second = image.codes
    assert second.address - first.address == SIZE and second.entry_address == second.address
    for code in image.codes:
        np.testing.assert_array_equal(code.words, PROGRAM.code)
        np.testing.assert_array_equal(code.layer_of, PROGRAM.debug["layer"])
        assert len(code.tile_registers) == len(code.words)
    assert code_comments(program)[SIZE // 4].startswith("code of control unit 1")
    with pytest.raises(SimError, match="has 2 codes; the machine runs one"):
        Session(program)


def test_images_of_a_layer_lie_in_their_own() -> None:
    program = twice()
    conv, pool = program.layers
    for parts in ((conv.code[1], conv.code[1]), (conv.code[0], conv.code[0])):
        with pytest.raises(ProgramError, match="code of layer 'conv' is"):
            replace(program, layers=(replace(conv, code=parts), pool)).to_bytes()


def test_a_layer_of_another_precision_reaches_the_machine() -> None:
    conv, pool = PROGRAM.layers
    mixed = replace(PROGRAM, layers=(conv, replace(pool, precision="int8")))
    program = Program.from_bytes(mixed.to_bytes())
    assert [layer.precision for layer in program.layers] == ["int16", "int8"]
    image = program_image(program, program.image(0))
    assert image.layer_precisions == ("int16", "int8")
    with pytest.raises(SimError, match="layer 'pool' is int8, the program is int16"):
        image.of_one_precision()


def test_states_are_zeros_when_a_run_begins() -> None:
    state = TensorSlot("h", (3, 2), Scale.from_q_point(4), "int16", Segment.STATES, 4)
    segments = {**PROGRAM.segments, Segment.STATES: SegmentSize(128, 128)}
    program = replace(PROGRAM, segments=segments, states=(state,))
    session = Session(program.to_bytes())
    address = session._image.address(state)
    assert session._image.end_address == address - 4 + 128
    session._devices[0].write(address, np.full(12, 77, np.uint8))
    assert session.read_intermediate("h").all()
    x = np.zeros((1, 4, 10, 10), np.int16)
    session.run_fixed([x])
    assert not session.read_intermediate("h").any()
    # What is not a state keeps its place: the same program without states gives the same.
    np.testing.assert_array_equal(session.run_fixed([x])[0], Session(PROGRAM).run_fixed([x])[0])
    assert program.image(0).addresses == PROGRAM.image(0).addresses | {
        Segment.STATES: program.image(0).addresses[Segment.STATES]
    }


def test_a_lookup_table_keeps_its_place() -> None:
    table = LookupTable("sigmoid", "1 / (1 + exp(-x))", "int16", 16, 32)
    program = Program.from_bytes(replace(PROGRAM, tables=(table,)).to_bytes())
    assert program.tables == (table,) and table.size_bytes == 32


def test_the_slots_scale_is_used() -> None:
    """Inputs and outputs with zero points and factors, around the same integers."""
    x_scale, z_scale = Scale.from_real([0.3], [7]), Scale.from_real([0.7], [-20])
    (x,), (z,) = PROGRAM.inputs, PROGRAM.outputs
    other = replace(
        PROGRAM, inputs=(replace(x, scale=x_scale),), outputs=(replace(z, scale=z_scale),)
    )
    session = Session(Program.from_bytes(other.to_bytes()))
    seen = []
    session.observer = lambda inputs, outputs: seen.append((inputs, outputs))
    values = np.random.default_rng(2).normal(0, 90, (2, 4, 10, 10)).astype(np.float32)
    (got,) = session.run([values])
    ((integers,), (results,)) = seen[0]
    np.testing.assert_array_equal(integers, np.floor(values / x_scale.steps + 0.5) + 7)
    want = (results.astype(np.float64) + 20) * z_scale.steps
    np.testing.assert_array_equal(got, want.astype(np.float32))
    np.testing.assert_array_equal(results, Session(PROGRAM).run_fixed([integers])[0])
