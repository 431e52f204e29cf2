"""Rows of a convolution's OFM that stay on chip for the window's next tile, and products that begin
in front of the next step's loads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.nmp.forced import Forced
from tests.codegen.nmp.plan.plan_reference import conv
from tests.codegen.nmp.plan.test_prediction_simulated import Cascading as Answering
from tests.codegen.nmp.plan.test_prediction_simulated import (
    blocked_graph,
    cascaded_graph,
)
from tests.codegen.nmp.simulated import simulate
from tests.codegen.nmp.test_blocks import Blocking, blocks
from tests.codegen.nmp.test_cascades import Cascading, cascades
from tests.codegen.nmp.test_wide_plans import machines, run_drawn
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.block_search import plan_block
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.kept_rows import (
    least_tile_rows,
    may_keep_rows,
    reaches_last_row,
    shared_rows,
)
from tvm_npu.codegen.passes.blocks import blocks_behind
from tvm_npu.codegen.passes.cascades import candidates
from tvm_npu.codegen.plan.limits import NO_LIMITS
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

DUAL = load_nmp_machine("nmp-4x8-dual")


def keeping(plan: ConvPlan, problem: ConvProblem) -> ConvPlan:
    """``plan`` with rows kept, in tiles of few rows, so that there are several."""
    assume(may_keep_rows(problem))
    least = least_tile_rows(problem)
    return replace(
        plan, keeps_rows=True, keeps_in=False, tile_r=max(least, min(plan.tile_r, 2)),
        row_slices=1, tlt_rows=1, ring_weights=plan.ring_weights and plan.column_slices > 1,
    )  # fmt: skip


@dataclass
class KeepingCascades(Cascading):
    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        plan = super().plan(problem, machine)
        if problem.window is None:
            return plan
        kept = keeping(plan, problem)
        assume(check_plan(problem, kept, machine) is None)
        return kept


@dataclass
class KeepingBlocks(Blocking):
    def plan(self, problem: object, machine: NmpMachine) -> object:  # type: ignore[override]
        plan = super().plan(problem, machine)
        if isinstance(problem, BlockProblem):
            assert isinstance(plan, BlockPlan)
            head = keeping(plan.head, problem.head)
            assume(head.split == "OFM" or head.column_slices == 1)
            plan = replace(plan, head=head)
            assume(check_block(problem, plan, machine) is None)
        return plan


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(
    max_examples=examples(25), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_cascades_that_keep_rows_run_to_the_bit(
    element_bytes: int, buffers: int, data: st.DataObject
) -> None:
    fixed = data.draw(cascades(element_bytes))
    assume(candidates(fixed))
    run_drawn(fixed, data.draw(machines(buffers)), KeepingCascades(data, buffers), data)


@pytest.mark.parametrize("buffers", [1, 2])
@given(st.data())
@settings(
    max_examples=examples(8), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_blocks_that_keep_rows_run_to_the_bit(buffers: int, data: st.DataObject) -> None:
    fixed = data.draw(blocks(2, with_window=True))
    assume(blocks_behind(fixed, candidates(fixed)))
    machine = data.draw(machines(buffers, sizes=(8192, 32768)))  # small ones refuse most plans
    run_drawn(fixed, machine, KeepingBlocks(data, buffers), data)


WINDOWS = {
    "bottleneck": Window(20, 24, (3, 3), (1, 1), (1, 1), has_weights=True),
    "halved": Window(10, 12, (3, 3), (2, 2), (1, 1), has_weights=True),
    "pool": Window(9, 11, (3, 3), (2, 2), (0, 0)),
    "high": Window(10, 24, (5, 3), (2, 1), (2, 1), has_weights=True),
}
HEADS = {"point": conv(16, 12, (20, 24), (1, 1)), "kernel": conv(16, 6, (22, 26), (3, 3))}


def plan_of(problem: ConvProblem, buffers: int, **more: Any) -> ConvPlan:
    """Two row slices, two column tiles, and tiles of two rows."""
    window = problem.window
    assert window is not None
    return ConvPlan(
        "multicast", "KS&OFM", 2, 2, "WS", 1, 5, 2, -(-window.columns // 2), ring_in=True,
        weights="tiles", buffers=buffers, keeps_rows=True,  # type: ignore[arg-type]
        **more,
    )  # fmt: skip


@pytest.mark.parametrize("macs_first", [False, True])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("head", HEADS)
def test_no_row_is_computed_twice(
    head: str, window: str, buffers: int, macs_first: bool
) -> None:
    """But where two slices, or two tiles in one row, have some of the OFM in common."""
    if macs_first and buffers == 1:
        return
    alone, behind = HEADS[head], WINDOWS[window]
    problem = replace(alone, window=behind)
    plan = plan_of(problem, buffers, macs_first=macs_first)
    assert check_plan(problem, plan, DUAL) is None
    plan = replace(plan, prediction=predict(problem, plan, DUAL))
    graph = cascaded_graph(alone, behind)
    program = compile_fixed(graph, DUAL, Answering(plan))
    inputs = random_tensors(graph, 1)
    outputs, statistics = simulate(program, inputs)
    expected = run_fixed(graph, {name: value[None] for name, value in inputs.items()})
    assert np.array_equal(outputs["v"], expected["v"][0])
    (layer,) = statistics.layers
    rows, columns = (
        [_span(problem, axis, tile) for tile in tiles]
        for axis, tiles in (
            (0, _halves(behind.rows, -(-behind.rows // 2))),
            (1, _halves(behind.columns, plan.tile_c)),
        )
    )
    taps = alone.channels * alone.kernel[0] * alone.kernel[1]
    macs = 16 * taps * sum(rows) * sum(columns)
    if behind.has_weights:
        macs += 16 * behind.kernel[0] * behind.kernel[1] * behind.rows * behind.columns
    assert layer.macs == macs


def _halves(total: int, half: int) -> list[tuple[int, int]]:
    return [(0, half), (half, total)]


def _span(problem: ConvProblem, axis: int, stored: tuple[int, int]) -> int:
    """Of the OFM under some rows or columns of the window's results."""
    window = problem.window
    assert window is not None
    begin = stored[0] * window.stride[axis] - window.padding[axis]
    end = (stored[1] - 1) * window.stride[axis] - window.padding[axis] + window.kernel[axis]
    return min(end, (problem.rows, problem.columns)[axis]) - max(begin, 0)


def test_the_checker_finds_rows_that_are_not_there() -> None:
    problem = replace(HEADS["point"], window=WINDOWS["bottleneck"])
    plan = plan_of(problem, 2)
    assert shared_rows(problem) == 2 and check_plan(problem, plan, DUAL) is None
    apart = replace(problem, window=Window(10, 12, (2, 2), (2, 2), (0, 0)))
    deep = replace(problem, window=Window(20, 24, (5, 3), (1, 1), (2, 1)))
    assert not reaches_last_row(deep)
    high = replace(problem, window=Window(20, 24, (4, 3), (1, 1), (2, 1)))
    assert least_tile_rows(high) == 2
    sparse = replace(problem, stride=(2, 1), in_rows=40)
    for asked, changed, message in (
        (sparse, {}, "stride with keeps_rows is 2; it must be at most 1 rows"),
        (apart, {}, "rows that windows share, with keeps_rows is 0; it must be more than 0"),
        (problem, {"schedule": "OS", "tile_n": 12, "keeps_in": True},
         "keeps_in with keeps_rows is True; it must be False"),
        (deep, {"tile_r": 3}, "OFM rows with keeps_rows is 20; it must be as many as the windows "
         "of the last row but one need"),
        (high, {"tile_r": 1}, "tile_r with keeps_rows is 1; it must be at least 2"),
        (problem, {"split": "OFM", "row_slices": 4, "filter_slices": 1, "ring_in": False},
         "axes with several tiles of a TLT, beside rows, with keeps_rows is 3; it must be at most "
         "2 of filters, columns and channels"),
        (problem, {"keeps_rows": 1}, "keeps_rows is 1; it must be True or False"),
        (problem, {"buffers": 1, "macs_first": True}, "buffers with macs_first is 1; it must be 2"),
    ):  # fmt: skip
        assert str(check_plan(asked, replace(plan, **changed), DUAL)) == message  # type: ignore[arg-type]
    block = BlockProblem(problem, 8)
    head = replace(
        plan, schedule="OS", split="OFM", row_slices=4, filter_slices=1, tile_n=12, ring_in=False
    )
    fault = str(check_block(block, BlockPlan(head, 1), DUAL))
    assert fault == "schedule with keeps_rows is OS; it must be WS"


def test_room_for_what_instructions_name() -> None:
    """Products of the last row end behind their IN tile, copies behind the window's box."""
    problem = replace(HEADS["point"], window=WINDOWS["bottleneck"])
    plan = plan_of(problem, 2)
    in_bytes, guard, box = 5 * 4 * 14 * 2, 3 * 14 * 2, 4 * 14 * 2
    needed = 2 * in_bytes + guard + 2 * box
    for size, fault in ((needed, None), (needed - 2, f"is {needed}; it must be at most")):
        memories = DUAL.memories.model_copy(update={"mb0_bytes": size})
        found = check_plan(problem, plan, DUAL.model_copy(update={"memories": memories}))
        assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize("macs_first", [False, True])
def test_predictions(macs_first: bool) -> None:
    """A bottleneck of MobileNetV2, cut in height."""
    window = Window(28, 56, (3, 3), (1, 1), (1, 1), has_weights=True)
    alone = conv(144, 24, (28, 56), (1, 1))
    graph = blocked_graph(alone, window, 24)
    problem = BlockProblem(replace(alone, window=window), 24)
    plan = plan_block(problem, DUAL, NO_LIMITS, "exact")
    assert isinstance(plan, BlockPlan) and plan.head.keeps_rows
    plan = replace(plan, head=replace(plan.head, macs_first=macs_first))
    program = compile_fixed(graph, DUAL, Forced(plan))
    _, statistics = simulate(program, random_tensors(graph, 1))
    assert program.layers[0].predicted_cycles == pytest.approx(statistics.cycles, rel=0.06)
    anew = replace(plan, head=replace(plan.head, keeps_rows=False, tile_n=1))
    assert check_block(problem, anew, DUAL) is None
    kept, again = (predict_block(problem, one, DUAL).cycles for one in (plan, anew))
    assert kept < 0.85 * again
