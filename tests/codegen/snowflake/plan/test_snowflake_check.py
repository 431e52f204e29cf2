"""The check of plans and the least needs, against what planners and geometry say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.plan.plan_cases import MACHINES, fits, problem_of, space, with_buffers
from tests.codegen.snowflake.snowflake_cases import machine, near_and_far
from tests.examples import examples
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.least import least_needs
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.plan.registry import planner
from tvm_npu.codegen.snowflake.plan.check import plan_fault
from tvm_npu.codegen.snowflake.plan.pools import PoolShape
from tvm_npu.codegen.snowflake.plan.questions import answer
from tvm_npu.codegen.snowflake.plan.spread import PadShape
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(90), phases=[Phase.explicit, Phase.generate])
LAYER = ConvProblem(96, 64, 1, 14, 14, 14, 14, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 2)
PLAN = SnowflakePlan("coop", 32, 7, 14, "maps")


@RANDOM
@given(near_and_far(), MACHINES, st.data())
def test_the_check_agrees_with_the_geometry(
    fixed: FixedGraph, on: SnowflakeMachine, data: st.DataObject
) -> None:
    """The check counts from single windows, the geometry from tiles."""
    problem = problem_of(fixed, on)
    everything = list(space(problem, on))
    for _ in range(20):
        plan = data.draw(st.sampled_from(everything))
        assert (plan_fault(problem, plan, on) is None) == fits(problem, plan, on), plan


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"tile_m": 0}, "tile_m is 0; it must be an integer from 1 to 96"),
        ({"tile_r": 15}, "tile_r is 15; it must be an integer from 1 to 14"),
        ({"tile_c": 2.0}, "tile_c is 2.0; it must be an integer from 1 to 14"),
        ({"mode": "lane"}, "mode is lane; it must be coop or indp"),
        ({"stays": "results"}, "stays is results; it must be maps or kernels"),
    ],
)
def test_faults(change: dict[str, object], what: str) -> None:
    on = machine("snowflake-1cc")
    assert plan_fault(LAYER, PLAN, on) is None
    assert str(plan_fault(LAYER, replace(PLAN, **change), on)) == what  # type: ignore[arg-type]


@RANDOM
@given(near_and_far(), MACHINES)
def test_what_fits_by_least_needs_is_planned(fixed: FixedGraph, on: SnowflakeMachine) -> None:
    problem = problem_of(fixed, on)
    window = (problem.in_tile_rows(1), problem.in_tile_columns(1))
    channels = problem.channels // problem.groups
    needs = least_needs(on, "int16")
    accepted = needs.conv_input(window, problem.kernel, channels).fits
    accepted = accepted and needs.conv_weight(window, problem.kernel, channels).fits
    for name in ("snowflake", "exact"):
        answer = planner(name).plan(problem, on)
        if isinstance(answer, Infeasible):
            assert not accepted
            assert answer.buffer in ("MBuf", "WBuf")
            assert answer.needed_bytes > answer.available_bytes > 0
        else:
            assert plan_fault(problem, answer, on) is None


SIZES = st.integers(1, 1 << 17)


@RANDOM
@given(SIZES, SIZES, st.integers(1, 300), st.integers(1, 300), st.booleans())
def test_layers_without_filters_and_fully_connected_ones_that_fit_are_planned(
    features: int, planes: int, rows: int, columns: int, is_max: bool
) -> None:
    """What needs say no to is not planned, but for pools that fit by a line."""
    on = machine("snowflake-1cc")
    needs, chosen = least_needs(on, "int16"), planner("snowflake")
    dense = ConvProblem(7, features, 1, 1, 1, 1, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 2,
                        is_dense=True)  # fmt: skip
    assert needs.dense_input(features).fits != isinstance(chosen.plan(dense, on), Infeasible)
    padded = answer(PadShape(rows, columns, planes), on, chosen)
    assert needs.padded_pixel(planes).fits != isinstance(padded, Infeasible)
    pool = PoolShape(Axis(rows, 1, rows), Axis(columns, 1, columns), planes, is_max)
    if needs.pool_input((rows, columns)).fits:
        assert not isinstance(answer(pool, on, chosen), Infeasible)


def test_pools_up_to_the_last_line_are_planned() -> None:
    on = machine("snowflake-1cc")
    needs = least_needs(on, "int16")
    for rows in range(100, 300):
        columns = next(n for n in range(400, 0, -1) if needs.pool_input((rows, n)).fits)
        pool = PoolShape(Axis(rows, 1, rows), Axis(columns, 1, columns), 3, True)
        assert not isinstance(answer(pool, on, planner("snowflake")), Infeasible)


def test_what_is_too_large_says_so() -> None:
    problem = replace(LAYER, channels=4096)
    for name in ("snowflake", "exact", "eplanner"):
        answer = planner(name).plan(problem, with_buffers(32768, 32768))
        assert isinstance(answer, Infeasible)
        assert str(answer) == (
            "the smallest tiles do not fit: 73760 bytes of WBuf needed, 32768 available; "
            "give the machine a larger WBuf"
        )


@pytest.mark.parametrize("name", ("snowflake", "exact", "naive"))
def test_windows_without_input_and_parts_of_channels_are_refused(name: str) -> None:
    on = machine("snowflake-1cc")
    padded = replace(LAYER, rows=20, padding=(4, 1, 4, 1))
    assert "3 rows lie in the padding alone" in str(planner(name).plan(padded, on))
    limits = TileLimits(max_tile_n=32)
    assert "partial sums are not kept" in str(planner(name, limits).plan(LAYER, on))
