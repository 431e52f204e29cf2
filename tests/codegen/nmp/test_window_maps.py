"""Pools whose tiles move as whole rows, and pointwise convolutions that leave rows out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, pools, random_tensors
from tests.codegen.nmp.plan.plan_reference import conv
from tests.codegen.nmp.plan.test_prediction_simulated import graph_of
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.errors import EmitError, PlanningError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.nmp.emit.windows import require_tiles
from tvm_npu.codegen.nmp.plan.rows_apart import may_read_rows_apart
from tvm_npu.codegen.nmp.plan.window import (
    WindowPlan,
    WindowProblem,
    linear_kinds,
    mb0_channel_bytes,
    plan_window,
)
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import load_nmp_machine

NAMES = ("nmp-4x8", "nmp-4x8-dual")


def check(fixed: FixedGraph, program: Program, seed: int) -> None:
    inputs = random_tensors(fixed, seed)
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(program, inputs)
    np.testing.assert_array_equal(outputs["y"], expected["y"][0])


@pytest.mark.parametrize("element_bytes", [1, 2])
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_pools_of_whole_rows_run_to_the_bit(element_bytes: int, data: st.DataObject) -> None:
    fixed = data.draw(pools(element_bytes))
    machine = load_nmp_machine(data.draw(st.sampled_from(NAMES)))
    generated = generate(fixed, machine, planner("exact"))
    (one,) = generated.planned.layers
    assume(one.plan.maps != "boxes")
    check(fixed, generated.program(), data.draw(SEEDS))


@pytest.mark.parametrize("element_bytes", [1, 2])
@settings(max_examples=examples(400), deadline=None, suppress_health_check=FILTERED)
@given(st.data())
def test_pools_of_whole_rows_fit_small_machines(element_bytes: int, data: st.DataObject) -> None:
    fixed = data.draw(pools(element_bytes))
    sizes = st.integers(8, 160).map(lambda n: 8 * n)
    machine = small_machine(1, data.draw(st.integers(1, 4)), data.draw(sizes), mb2=1280)
    try:
        generated = generate(fixed, machine, planner("exact"))
    except PlanningError:
        reject()
    (one,) = generated.planned.layers
    assume(one.plan.maps != "boxes")
    check(fixed, generated.program(), data.draw(SEEDS))


def test_rows_that_get_a_border_may_be_wider_than_the_tile() -> None:
    """Windows of a 2x1 pool with stride 3 read 10 of 11 columns."""
    problem = WindowProblem(4, 4, 4, 4, 11, (2, 1), (1, 3), 1, padding=(0, 0))
    assert mb0_channel_bytes(problem, "bordered", 2, 4) == 3 * 11
    assert mb0_channel_bytes(problem, "bordered", 4, 4) == 5 * 10
    assert mb0_channel_bytes(problem, "boxes", 2, 4) == 3 * 10
    wide = WindowPlan(1, 1, 4, 2, 4, maps="bordered")
    require_tiles("pool", problem, wide, small_machine(mb0=136))
    with pytest.raises(EmitError, match="132 bytes"):
        require_tiles("pool", problem, wide, small_machine(mb0=128))


def test_which_pools_move_as_whole_rows() -> None:
    machine = load_nmp_machine("nmp-4x8")
    inside = WindowProblem(64, 17, 17, 35, 35, (3, 3), (2, 2), 2, padding=(0, 0))
    padded = WindowProblem(64, 35, 35, 35, 35, (3, 3), (1, 1), 2, padding=(1, 1))
    beyond = replace(inside, rows=18)
    assert linear_kinds(inside, machine) == ("rows",)
    assert linear_kinds(padded, machine) == linear_kinds(beyond, machine) == ("bordered",)
    assert linear_kinds(padded, machine.model_copy(update={"ring": None})) == ()
    assert linear_kinds(replace(inside, padding=None), machine) == ()
    for problem in (inside, padded):
        plan, boxes = plan_window(problem, machine, linear_maps=True), plan_window(problem, machine)
        assert isinstance(plan, WindowPlan) and isinstance(boxes, WindowPlan)
        assert boxes.maps == "boxes" and plan.cycles < 0.8 * boxes.cycles
        require_tiles("pool", problem, plan, machine)
        with pytest.raises(EmitError, match="cannot move as"):
            require_tiles("pool", problem, replace(plan, tile_c=plan.tile_c - 1), machine)
    with pytest.raises(EmitError, match="cannot move as 'rows'"):
        require_tiles("pool", padded, replace(boxes, maps="rows"), machine)


@settings(max_examples=examples(10), deadline=None)
@given(st.data())
def test_convolutions_that_leave_rows_out_run_to_the_bit(data: st.DataObject) -> None:
    stride = data.draw(st.integers(2, 3)), data.draw(st.integers(1, 3))
    rows, columns = stride[0] * data.draw(st.integers(1, 9)), data.draw(st.integers(1, 20))
    problem = conv(
        data.draw(st.integers(1, 40)), data.draw(st.integers(1, 20)), (rows, columns), (1, 1),
        stride=stride, has_residual=data.draw(st.booleans()),
    )  # fmt: skip
    fixed = graph_of(problem)
    (layer,) = fixed.layers
    assert isinstance(layer, FixedConv)
    apart = replace(fixed, layers=(replace(layer, reads_rows_apart=True),))
    machine = load_nmp_machine(data.draw(st.sampled_from(NAMES)))
    generated = generate(apart, machine, planner(data.draw(st.sampled_from(("exact", "tso")))))
    (one,) = generated.planned.layers
    assert (one.problem.in_rows, one.problem.stride[0]) == (rows // stride[0], 1)
    check(fixed, generated.program(), data.draw(SEEDS))


def test_which_convolutions_can_leave_rows_out() -> None:
    def may(rows: int, kernel: tuple[int, int] = (1, 1), **choices: Any) -> bool:
        (layer,) = graph_of(conv(4, 4, (rows, 8), kernel, **choices)).layers
        assert isinstance(layer, FixedConv)
        return may_read_rows_apart(layer, (4, rows, 8))

    assert may(8, stride=(2, 2)) and may(8, stride=(2, 1)) and may(9, stride=(3, 2))
    assert not may(9, stride=(2, 2)) and not may(8) and not may(8, stride=(1, 2))
    assert not may(8, (3, 3), stride=(2, 2)) and not may(8, stride=(2, 2), padding=(0, 0, 0, 1))


def test_rows_between_are_left_out_where_that_is_faster() -> None:
    machine = load_nmp_machine("nmp-4x8-dual")
    wide = graph_of(conv(256, 512, (28, 28), (1, 1), stride=(2, 2)))
    odd = graph_of(conv(16, 16, (27, 27), (1, 1), stride=(2, 2)))
    for fixed, left_out in ((wide, True), (odd, False)):
        (one,) = generate(fixed, machine, planner("exact")).planned.layers
        assert one.layer.reads_rows_apart == left_out
    apart, together = (
        simulate(compile_fixed(wide, machine, planner(name)), random_tensors(wide, 1))[1].cycles
        for name in ("exact", "exact-layers")
    )
    assert apart < 0.95 * together
    (one,) = generate(wide, machine, planner("tso")).planned.layers
    assert not one.layer.reads_rows_apart
