"""Execution plans as text: written, read back, run; and everything that text can have wrong."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import (
    SEEDS,
    convolutions,
    dense_layers,
    for_machine,
    random_tensors,
)
from tests.codegen.nmp.simulated import small_machine
from tests.codegen.tiles.interpreter import Interpreter
from tests.codegen.tiles.tile_cases import AnyPlan, Given, tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import EmitError, PlanningError
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.nmp.emit.core_steps import core_steps
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.passes.dilation import with_live_taps
from tvm_npu.codegen.plan import TileLimits, planner
from tvm_npu.codegen.plan.layers import question_of
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tiles.ir import parse
from tvm_npu.codegen.tiles.ir.document import Ir, IrError, to_text
from tvm_npu.codegen.tiles.ir.read import read_ir
from tvm_npu.codegen.tiles.ir.run import assemble_ir, random_bytes, random_layer
from tvm_npu.codegen.tiles.ir.write import plan_ir, write_ir, write_steps
from tvm_npu.sim.tiles.machine import TileMachine

MACHINE = tile_machine((2048, 1024, 4096), (4, 4, 4, 8))
PROBLEM = ConvProblem(4, 6, 1, 6, 6, 6, 6, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4,
                      accumulator_bytes=4)  # fmt: skip
PLAN = LoopPlan(4, 3, 3, 6, ("R", "C", "M", "N"))

TEXT = """\
[info]
// (batch, channel, height, width)
INPUT(1,6,6,6)
WEIGHT(4,6,3,3)
OUTPUT(1,4,6,6)
// bytes of an element and of a partial sum
WORDS(4,4)

[var]
// Memory variables with size (bytes)
IN_MEM_0(2048)
WT_MEM_0(1024)
OT_MEM_0(4096)
BS_MEM_0(4096)
// Tiles [offset] (batch, channel, height, width)
INPUT_0[0](1,3,4,6)
INPUT_1[108](1,3,4,6)
INPUT_2[12](1,3,4,6)
INPUT_3[120](1,3,4,6)
WEIGHT_0[0](4,3,3,3)
WEIGHT_1[27](4,3,3,3)
OUTPUT_0[0](1,4,3,6)
OUTPUT_1[18](1,4,3,6)
BIAS_0[0](1,4,1,1)

[text]
LOAD IN_MEM_0 INPUT_0
LOAD WT_MEM_0 WEIGHT_0
CONV OUTPUT_0 INPUT_0 WEIGHT_0 1 (1,1,1,0)
LOAD IN_MEM_0 INPUT_1
LOAD WT_MEM_0 WEIGHT_1
LOAD BS_MEM_0 BIAS_0
CONV OUTPUT_0 INPUT_1 WEIGHT_1 1 (1,1,1,0)
FINISH OUTPUT_0 BIAS_0
STORE OUTPUT_0 OT_MEM_0
LOAD IN_MEM_0 INPUT_2
LOAD WT_MEM_0 WEIGHT_0
CONV OUTPUT_1 INPUT_2 WEIGHT_0 1 (1,1,0,1)
LOAD IN_MEM_0 INPUT_3
LOAD WT_MEM_0 WEIGHT_1
CONV OUTPUT_1 INPUT_3 WEIGHT_1 1 (1,1,0,1)
FINISH OUTPUT_1 BIAS_0
STORE OUTPUT_1 OT_MEM_0
"""


def test_the_text_of_a_plan() -> None:
    assert write_ir(PROBLEM, PLAN, MACHINE) == TEXT
    assert write_ir(PROBLEM, PLAN, MACHINE, comment=("a", "b")) == f"// a\n// b\n{TEXT}"


def test_text_that_is_written_can_be_read() -> None:
    ir = read_ir(TEXT)
    assert ir == plan_ir(PROBLEM, PLAN, MACHINE) and ir.problem == PROBLEM


def test_partial_sums_leave_and_come_back() -> None:
    plan = replace(PLAN, order=("N", "R", "C", "M"), buffers=2, tile_m=2)
    text = write_ir(PROBLEM, plan, MACHINE)
    assert text.count("STORE OUTPUT_0") == 2
    assert len(re.findall(r"LOAD OT_MEM_[01] OUTPUT_", text)) == 4
    assert read_ir(text) == plan_ir(PROBLEM, plan, MACHINE)


SLIDING = LoopPlan(4, 6, 3, 6, ("N", "C", "R", "M"), keeps_rows=True)


def test_rows_slide_from_tile_to_tile() -> None:
    text = write_ir(PROBLEM, SLIDING, MACHINE)
    assert "LOAD IN_MEM_0 INPUT_0\n" in text
    assert "SLIDE IN_MEM_0 INPUT_1 INPUT_0\n" in text
    assert read_ir(text) == plan_ir(PROBLEM, SLIDING, MACHINE)


def test_taps_at_once() -> None:
    machine = tile_machine((2048, 1024, 4096), (4, 4, 4, 8), array={"taps_at_once": 9})
    plan = replace(PLAN, tile_n=2, taps_at_once=5)
    text = write_ir(PROBLEM, plan, machine)
    assert "TAPS(5)\n" in text
    assert read_ir(text) == plan_ir(PROBLEM, plan, machine)
    with pytest.raises(IrError, match=r"TAPS\(10\): kernels have 9 taps"):
        read_ir(text.replace("TAPS(5)", "TAPS(10)"))
    fixed = random_layer(PROBLEM, 1, seed=0)
    assert assemble_ir(read_ir(text), fixed, machine).to_bytes()
    for wrong, on, most in ((9, machine, 8), (5, MACHINE, 1)):
        ir = read_ir(text.replace("TAPS(5)", f"TAPS({wrong})"))
        with pytest.raises(EmitError, match=f"at most {most} at a time beside 2 channels"):
            assemble_ir(ir, fixed, on)


SLIDE = "SLIDE IN_MEM_0 INPUT_1 INPUT_0"
OTHERS = "INPUT_1 is not the channels and columns of INPUT_0"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (SLIDE, "SLIDE IN_MEM_0 INPUT_0 INPUT_0", "INPUT_0 is not the channels and columns of"),
        (SLIDE, "SLIDE IN_MEM_0 INPUT_0 INPUT_1", "SLIDE: INPUT_1 is not on chip"),
        (SLIDE, "SLIDE WT_MEM_0 INPUT_1 INPUT_0", "INPUT_1 does not go to WT_MEM_0"),
        (SLIDE, "SLIDE IN_MEM_0 INPUT_1 WEIGHT_0", "WEIGHT_0 where a tile INPUT is expected"),
        ("INPUT_1[12](1,6,4,6)", "INPUT_1[12](1,6,4,5)", OTHERS),
        ("INPUT_1[12](1,6,4,6)", "INPUT_1[12](1,5,4,6)", OTHERS),
        ("INPUT_1[12](1,6,4,6)", "INPUT_1[48](1,5,4,6)", OTHERS),
    ],
)
def test_rows_that_cannot_slide(right: str, wrong: str, message: str) -> None:
    text = write_ir(PROBLEM, SLIDING, MACHINE)
    assert right in text
    with pytest.raises(IrError, match=message):
        read_ir(text.replace(right, wrong))


@pytest.mark.parametrize(
    "extents",
    ["INPUT(1,6,2147483647,6)", "OUTPUT(1,4,2147483647,2147483647)", "WEIGHT(4,6,9999,9999)"],
)
def test_tensors_that_no_computer_holds(extents: str) -> None:
    name = extents.partition("(")[0]
    text = re.sub(rf"^{name}\(.*$", extents, write_ir(PROBLEM, PLAN, MACHINE), flags=re.M)
    with pytest.raises(IrError, match=rf"{name}: [0-9]+ elements; at most 268435456"):
        read_ir(text)


@pytest.mark.parametrize("line", ["IN_MEM_" + "1" * 5000 + "(2048)", "(" * 200_000, "CONV " * 500])
def test_lines_that_nobody_writes(line: str) -> None:
    """Numbers of thousands of digits have no error of ours; a million brackets took minutes."""
    text = write_ir(PROBLEM, PLAN, MACHINE) + line + "\n"
    with pytest.raises(IrError, match=f"a line of {len(line.strip())} |a line of {len(line)} "):
        read_ir(text)


APART = replace(PROBLEM, kernel=(1, 1), stride=(2, 2), padding=(0,) * 4, in_rows=12, in_columns=11)
POINTS = LoopPlan(4, 6, 3, 6, touched_only=True)


def test_only_what_windows_touch_comes() -> None:
    text = write_ir(APART, POINTS, MACHINE)
    assert "INPUT(1,6,12,11)\n" in text and "TOUCHED(2,2)\n" in text
    assert "INPUT_1[18](1,6,3,6)\n" in text  # of 6 x 6
    assert read_ir(text) == plan_ir(APART, POINTS, MACHINE)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("TOUCHED(2,2)", "TOUCHED(1,2)", r"TOUCHED\(1,2\) with kernel \(1, 1\), stride \(1, 1\)"),
        ("TOUCHED(2,2)", "TOUCHED(2,3)", "TOUCHED: columns up to 15; INPUT has 11"),
        ("TOUCHED(2,2)", "TOUCHED(3,2)", "TOUCHED: rows up to 15; INPUT has 12"),
        ("INPUT(1,6,12,11)", "INPUT(1,6,12,10)", "TOUCHED: columns up to 10; INPUT has 10"),
    ],
)
def test_windows_that_touch_other_values(right: str, wrong: str, message: str) -> None:
    text = write_ir(APART, POINTS, MACHINE)
    assert right in text
    with pytest.raises(IrError, match=message):
        read_ir(text.replace(right, wrong))


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), tile_machines(), st.sampled_from((1, 2)), SEEDS)
def test_any_plan_runs_from_its_text(
    data: st.DataObject, machine: TileMachine, element_bytes: int, seed: int
) -> None:
    """The same words, constants and values as the plan's own program."""
    kind = data.draw(st.sampled_from((convolutions, convolutions, dense_layers)))
    fixed = with_live_taps(for_machine(data.draw(kind(element_bytes)), machine))
    problem = question_of(fixed.layers[0], fixed, machine)  # type: ignore[arg-type]
    plan = AnyPlan(seed).plan(problem, machine)
    if isinstance(plan, Infeasible):
        reject()
    text = write_ir(problem, plan, machine)
    note(text)
    ir = read_ir(text)
    assert to_text(ir) == text
    program = assemble_ir(ir, fixed, machine)
    own = compile_fixed(fixed, machine, Given(plan))
    np.testing.assert_array_equal(program.code, own.code)
    assert program.constants == own.constants
    assert [vars(slot) for slot in program.outputs] == [vars(slot) for slot in own.outputs]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.data(),
    st.sampled_from(("tso", "fixed-is", "fixed-ws", "fixed-ks", "fixed-ofm")),
    st.lists(st.none() | st.integers(1, 5), min_size=4, max_size=4),
    SEEDS,
)
def test_plans_of_an_nmp_run_as_text(
    data: st.DataObject, name: str, limits: list[int | None], seed: int
) -> None:
    fixed = data.draw(st.one_of(convolutions(2), dense_layers(2)))
    (layer,) = fixed.layers
    nmp = small_machine(2, 2)
    shapes = fixed.shapes
    asked = conv_problem(layer, shapes["x"], shapes["y"], 2)  # type: ignore[arg-type]
    plan: Any = planner(name, TileLimits(*limits)).plan(asked, nmp)
    if isinstance(plan, Infeasible):
        reject()
    assert isinstance(plan, ConvPlan)
    machine = tile_machine((8192, 8192, 8192))
    problem = question_of(layer, fixed, machine)  # type: ignore[arg-type]
    text = write_steps(problem, core_steps(problem, plan, nmp), machine)
    note(f"{plan}\n{text}")
    inputs = random_tensors(fixed, seed)
    outputs = Interpreter(assemble_ir(read_ir(text), fixed, machine)).run(inputs)
    expected = run_fixed(fixed, {tensor: value[None] for tensor, value in inputs.items()})
    np.testing.assert_array_equal(outputs["y"], expected["y"][0])


def test_text_by_hand_runs() -> None:
    """Blanks, no WORDS, extents without a batch, two loads that nobody needs."""
    text = TEXT.replace("WORDS(4,4)\n", "").replace("(1,3,4,6)", " ( 3, 4 ,6 ) ")
    text = text.replace("(1,1,1,0)", "( 1, 1,1,0 )")
    text = text.replace("LOAD WT_MEM_0 WEIGHT_0\n", "LOAD WT_MEM_0 WEIGHT_1\n"
                        "LOAD WT_MEM_0 WEIGHT_0\n")  # fmt: skip
    ir = read_ir(text)
    fixed = random_layer(ir.problem, 1, 3)
    inputs = random_tensors(fixed, 4)
    run = Interpreter(assemble_ir(ir, fixed, MACHINE))
    expected = run_fixed(fixed, {"x": inputs["x"][None]})
    np.testing.assert_array_equal(run.run(inputs)["y"], expected["y"][0])
    assert run.transfers["weight", True] == 6


ERRORS = [
    ("INPUT(1,6,6,6)", "INPUT(1,6,6,x)", 3, "INPUT: 'x' is no integer"),
    ("INPUT(1,6,6,6)", "INPUT(1,6,6)", 3, "INPUT has 3 numbers, expected 4"),
    ("INPUT(1,6,6,6)", "INPUT(2,6,6,6)", 3, "INPUT: batch 2, expected 1"),
    ("INPUT(1,6,6,6)", "INPUT(1,6,0,6)", 3, "INPUT: 0; numbers are from 1"),
    ("INPUT(1,6,6,6)", "INPUT 1,6,6,6", 3, "is not of the form NAME"),
    ("INPUT(1,6,6,6)", "INPUTS(1,6,6,6)", 3, "unknown name INPUTS in [info]"),
    ("INPUT(1,6,6,6)", "WEIGHT(4,6,3,3)", 4, "WEIGHT is given twice, first in line 3"),
    ("INPUT(1,6,6,6)\n", "", 42, "[info] has no INPUT"),
    ("WEIGHT(4,6,3,3)", "WEIGHT(5,6,3,3)", 5, "OUTPUT has 4 channels, WEIGHT 5 filters"),
    ("WEIGHT(4,6,3,3)", "WEIGHT(4,5,3,3)", 4, "INPUT has 6 channels, WEIGHT 5 in each of 1"),
    ("OUTPUT(1,4,6,6)", "OUTPUT(1,4,6,6)\nGROUPS(3)", 4, "INPUT has 6 channels, WEIGHT 6 in"),
    ("WORDS(4,4)", "WORDS(3,4)", 7, "elements of 3 bytes, expected 1, 2 or 4"),
    ("[info]", "[text]", 1, "section [text] in the wrong place; the order is [info], [var],"),
    ("[info]", "[data]", 1, "unknown section [data]; there are [info]"),
    ("[info]", "INPUT(1,6,6,6)\n[info]", 1, "stands in front of the section [info]"),
    ("[text]\n", "", 26, "'LOAD IN_MEM_0 INPUT_0' is neither NAME(bytes) nor"),
    (TEXT[TEXT.index("[text]"):], "", 24, "the section [text] is missing"),
    ("IN_MEM_0(2048)", "IN_MEM_0(2048,1)", 11, "IN_MEM_0 has 2 numbers, expected 1"),
    ("IN_MEM_0(2048)", "IN_MEM_0[0](2048)", 11, "IN_MEM_0: a memory has no offset"),
    ("IN_MEM_0(2048)", "IN_MEM_0(284)", 27, "INPUT_0 needs 288 bytes; IN_MEM_0 has 284"),
    ("OT_MEM_0(4096)", "OT_MEM_0(280)", 29, "OUTPUT_0 needs 288 bytes; OT_MEM_0 has 280"),
    ("INPUT_1[108]", "INPUT_0[108]", 17, "INPUT_0 is given twice, first in line 16"),
    ("INPUT_1[108]", "INPUT_1[118]", 17, "INPUT_1 has columns 4 to 9; the tensor has 6"),
    ("INPUT_1[108]", "INPUT_1[126]", 17, "INPUT_1 has rows 3 to 6; the tensor has 6"),
    ("INPUT_1[108]", "INPUT_1[216]", 17, "INPUT_1 begins at 216, behind the tensor's 216"),
    ("INPUT_1[108]", "INPUT_1[-1]", 17, "INPUT_1: offset: -1; numbers are from 0"),
    ("INPUT_1[108]", "INPUT_1", 17, "INPUT_1: a tile needs its offset"),
    ("INPUT_1[108]", "PIXELS_1[108]", 17, "unknown variable PIXELS_1; memories are IN_MEM_n"),
    ("INPUT_3[120](1,3,4,6)", "INPUT_3[120](1,4,4,6)", 19, "INPUT_3 has channels 3 to 6; the"),
    ("WEIGHT_1[27](4,3,3,3)", "WEIGHT_1[27](4,3,3,2)", 21, "kernels of 3x2; those of the layer"),
    ("LOAD IN_MEM_0 INPUT_0", "MOVE IN_MEM_0 INPUT_0", 27, "unknown command MOVE; there are"),
    ("LOAD IN_MEM_0 INPUT_0", "LOAD IN_MEM_0", 27, "LOAD has 1 arguments, expected 2"),
    ("LOAD IN_MEM_0 INPUT_0", "LOAD IN_MEM_1 INPUT_0", 27, "unknown memory IN_MEM_1"),
    ("LOAD IN_MEM_0 INPUT_0", "LOAD WT_MEM_0 INPUT_0", 27, "INPUT_0 does not go to WT_MEM_0"),
    ("LOAD IN_MEM_0 INPUT_0", "LOAD IN_MEM_0 INPUT_9", 27, "unknown tile INPUT_9"),
    ("LOAD IN_MEM_0 INPUT_0\n", "", 28, "CONV: INPUT_0 is not on chip"),
    ("LOAD IN_MEM_0 INPUT_0", "LOAD OT_MEM_0 OUTPUT_0", 27, "OUTPUT_0 has no partial sums"),
    ("CONV OUTPUT_0 INPUT_0", "CONV WEIGHT_0 INPUT_0", 29, "CONV: WEIGHT_0 where a tile OUTPUT"),
    ("WEIGHT_0 1 (1,1,1,0)", "WEIGHT_0 0 (1,1,1,0)", 29, "CONV: stride: 0; numbers are from 1"),
    ("WEIGHT_0 1 (1,1,1,0)", "WEIGHT_0 1 (1,1,1)", 29, "CONV: padding has 3 numbers"),
    ("WEIGHT_0 1 (1,1,1,0)", "WEIGHT_0 1 (1,1,1,1)", 29, "need 5 rows; INPUT_0 has 4 and 1 + 1"),
    ("WEIGHT_0 1 (1,1,1,0)", "WEIGHT_0 1 (1,1,0,1)", 29, "padding beside rows 0 to 3 of INPUT_0"),
    ("WEIGHT_1 1 (1,1,1,0)", "WEIGHT_1 2 (1,1,1,0)", 33, "CONV: stride (2, 2); before it was"),
    ("INPUT_1 WEIGHT_1 1", "INPUT_1 WEIGHT_0 1", 33, "CONV: WEIGHT_0 is not on chip"),
    ("LOAD WT_MEM_0 WEIGHT_1\nLOAD BS", "LOAD WT_MEM_0 WEIGHT_0\nLOAD BS", 33,
     "CONV: WEIGHT_1 is not on chip"),
    ("LOAD IN_MEM_0 INPUT_1\nLOAD WT_MEM_0 WEIGHT_1\nLOAD BS_MEM_0 BIAS_0\n"
     "CONV OUTPUT_0 INPUT_1 WEIGHT_1",
     "LOAD BS_MEM_0 BIAS_0\nCONV OUTPUT_0 INPUT_0 WEIGHT_0", 31,
     "channels 0 to 2 of WEIGHT_0 are summed into OUTPUT_0 a second time"),
    ("INPUT_1[108]", "INPUT_1[72]", 33, "CONV: INPUT_1 has channels 2 to 4; WEIGHT_1 needs 3 to"),
    ("INPUT_3[120]", "INPUT_3[114]", 41, "padding beside rows 1 to 4 of INPUT_3, which lie"),
    ("CONV OUTPUT_0 INPUT_1 WEIGHT_1 1 (1,1,1,0)\n", "", 33,
     "FINISH: OUTPUT_0 holds the sum of 3 of 6 channels"),
    ("BIAS_0[0](1,4,1,1)", "BIAS_0[0](1,3,1,1)", 34,
     "FINISH: BIAS_0 has channels 0 to 2, OUTPUT_0 0 to 3"),
    ("FINISH OUTPUT_0 BIAS_0\n", "FINISH OUTPUT_0 BIAS_0\nFINISH OUTPUT_0 BIAS_0\n", 35,
     "FINISH: OUTPUT_0 has been finished"),
    ("FINISH OUTPUT_0 BIAS_0\n", "", 42, "72 results are never stored, first channel 0, row 0"),
    ("STORE OUTPUT_0 OT_MEM_0\n", "", 29, "CONV: OUTPUT_0 is never stored"),
    ("STORE OUTPUT_1 OT_MEM_0\n", "", 38, "CONV: OUTPUT_1 is never stored"),
    ("OUTPUT_1[18](1,4,3,6)", "OUTPUT_1[12](1,4,3,6)", 38,
     "CONV: INPUT_2 is not what lies under OUTPUT_1"),
    ("OUTPUT_1[18](1,4,3,6)", "OUTPUT_1[18](1,3,3,6)", 38,
     "CONV: WEIGHT_0 has filters 0 to 3, OUTPUT_1 channels 0 to 2"),
    (TEXT[TEXT.index("LOAD IN_MEM_0 INPUT_2") :], "", 35,
     "72 results are never stored, first channel 0, row 3, column 0"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "message"), ERRORS)
def test_errors_name_the_line(old: str, new: str, line: int, message: str) -> None:
    assert old in TEXT
    with pytest.raises(IrError) as error:
        read_ir(TEXT.replace(old, new, 1))
    assert message in str(error.value)
    assert str(error.value).startswith(f"line {error.value.line}: ")
    assert error.value.line == line


def test_results_that_overlap() -> None:
    again = TEXT + "".join(
        f"{line}\n" for line in TEXT[TEXT.index("LOAD IN_MEM_0 INPUT_0") :].splitlines()[:9]
    ).replace("OUTPUT_0", "OUTPUT_2")
    again = again.replace("OUTPUT_1[18]", "OUTPUT_2[0](1,4,3,6)\nOUTPUT_1[18]")
    with pytest.raises(IrError, match="STORE: OUTPUT_2 overlaps results that are there: channel 0"):
        read_ir(again)


def test_sums_that_nobody_stored_are_not_overwritten() -> None:
    lines = TEXT.splitlines()
    store = lines.index("STORE OUTPUT_0 OT_MEM_0")
    lines.append(lines.pop(store))
    with pytest.raises(IrError, match="OUTPUT_1 overwrites OUTPUT_0 in OT_MEM_0, which has not"):
        read_ir("\n".join(lines))


@pytest.mark.parametrize("text", ["", "[info]", "\0\1", "[info]\n[var]\n[text]", "(" * 500])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(IrError):
        read_ir(text)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_damaged_text_is_read_or_refused(data: st.DataObject) -> None:
    lines = TEXT.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(("drop", "swap", "number", "copy")))
        if change == "drop" and len(lines) > 1:
            del lines[at]
        elif change == "swap":
            lines[at], lines[other % len(lines)] = lines[other % len(lines)], lines[at]
        elif change == "copy":
            lines.insert(at, lines[other % len(lines)])
        else:
            number = str(data.draw(st.integers(-1, 300)))
            lines[at % len(lines)] = re.sub(r"\d+", number, lines[at % len(lines)], count=1)
    try:
        ir = read_ir("\n".join(lines))
    except IrError:
        return
    fixed = random_layer(ir.problem, 1, 1)  # what is accepted computes its layer
    inputs = random_tensors(fixed, 2)
    try:
        program = assemble_ir(ir, fixed, MACHINE)
    except EmitError:
        return
    expected = run_fixed(fixed, {"x": inputs["x"][None]})
    np.testing.assert_array_equal(Interpreter(program).run(inputs)["y"], expected["y"][0])


def test_memories_and_layers_that_do_not_fit_the_text() -> None:
    ir: Ir = read_ir(TEXT)
    fixed = random_layer(ir.problem, 1, 0)
    with pytest.raises(EmitError, match="IN_MEM_0 ends at byte 2048 of the input memory of machin"):
        assemble_ir(ir, fixed, tile_machine((1024, 1024, 4096), (4, 4, 4, 8)))
    with pytest.raises(EmitError, match="BS_MEM_0 ends at byte 4096 of the bias memory"):
        assemble_ir(ir, fixed, tile_machine((2048, 1024, 4096), (4, 4, 4, 8), bias_bytes=64))
    with pytest.raises(EmitError, match="element_bytes is 1, in the text 4"):
        assemble_ir(ir, fixed, tile_machine((4096, 4096, 4096)))
    other = random_layer(replace(ir.problem, filters=5), 1, 0)
    with pytest.raises(EmitError, match="layer 'layer': filters is 5, in the text 4"):
        assemble_ir(ir, other, MACHINE)
    with pytest.raises(EmitError, match="tiles need .* bytes of the weight memory"):
        nmp_plan: Any = planner("tso").plan(replace(PROBLEM, element_bytes=2), small_machine(1, 1))
        steps = core_steps(PROBLEM, nmp_plan, small_machine(1, 1))
        write_steps(PROBLEM, steps, tile_machine((4096, 64, 4096)))
    with pytest.raises(EmitError, match="W tile .* in the weight memory"):
        write_ir(PROBLEM, PLAN, tile_machine((4096, 64, 4096)))


def test_a_planner_that_finds_nothing_is_told() -> None:
    with pytest.raises(PlanningError):
        compile_fixed(
            random_layer(replace(PROBLEM, kernel=(5, 5), padding=(2, 2, 2, 2)), 1, 0),
            tile_machine((64, 64, 64), (4, 4, 4, 8)), AnyPlan(0),
        )  # fmt: skip


def test_texts_are_bounded_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = len(TEXT.splitlines())
    monkeypatch.setattr(parse, "MOST_LINES", lines)
    monkeypatch.setattr(parse, "MOST_CHARACTERS", len(TEXT) + 1)
    read_ir(TEXT)
    monkeypatch.setattr(parse, "_command", None)
    for end in "\n\v":
        with pytest.raises(IrError, match=f"{lines + 1} lines; at most {lines}: take larger tiles"):
            read_ir(TEXT + end)
    with pytest.raises(IrError, match=f"a text of {len(TEXT) + 2} characters; at most "):
        read_ir(TEXT + "  ")


def test_random_layers_are_made_as_wide_as_they_are() -> None:
    """Not as 64-bit integers first."""
    problem = replace(PROBLEM, filters=1 << 10, channels=1 << 10, kernel=(1, 1), padding=(0,) * 4)
    tracemalloc.start()
    fixed = random_layer(problem, 1, 0)
    assert tracemalloc.get_traced_memory()[1] < 2 * random_bytes(problem, 1)
    tracemalloc.stop()
    assert fixed.element_bytes == 1


def test_tensors_that_no_memory_holds() -> None:
    problem = replace(PROBLEM, channels=1 << 31, groups=1)
    with pytest.raises(EmitError, match="INPUT of 2147483648 x [0-9]+ x [0-9]+ elements"):
        random_layer(problem, 1, 0)
