"""`exact` against all plans one by one, and against every other planner."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.plan.plan_cases import MACHINES, fits, problem_of, space
from tests.codegen.snowflake.snowflake_cases import machine, near_and_far
from tests.examples import examples
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.codegen.plan.registry import planner, planner_names
from tvm_npu.codegen.snowflake.plan import exact, exact_search, timeline
from tvm_npu.codegen.snowflake.plan.check import plan_fault
from tvm_npu.codegen.snowflake.plan.divide import (
    costs_of,
    divided_prediction,
    prediction_where_fits,
    ways_of,
)
from tvm_npu.codegen.snowflake.plan.divide import fits as fits_clusters
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.exact import Goal, Proof, plan_with_proof
from tvm_npu.codegen.snowflake.plan.joint import joint
from tvm_npu.codegen.snowflake.plan.numbers import MODES
from tvm_npu.codegen.snowflake.plan.predict import predicted, prediction
from tvm_npu.codegen.snowflake.plan.room import Choice
from tvm_npu.codegen.snowflake.plan.tiling import Divides, SnowflakePlan
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(45), phases=[Phase.explicit, Phase.generate])


def moved(prediction: Prediction) -> int:
    return prediction.in_bytes + prediction.weight_bytes + prediction.out_bytes


def within(plan: SnowflakePlan, limits: TileLimits) -> bool:
    sizes = (
        (plan.tile_m, limits.max_tile_m), (plan.tile_r, limits.max_tile_r),
        (plan.tile_c, limits.max_tile_c),
    )  # fmt: skip
    return all(most is None or size <= most for size, most in sizes)


def best_of_all(
    problem: ConvProblem, on: SnowflakeMachine, goal: Goal, limits: TileLimits
) -> tuple[float, float]:
    """The least time, and bytes of plans that take it; or the least bytes."""
    values = [(float("inf"), float("inf"))]
    for plan in space(problem, on):
        if within(plan, limits) and fits(problem, plan, on):
            prediction = predicted(problem, plan, on)
            size = float(moved(prediction))
            values.append((prediction.cycles, size) if goal == "cycles" else (size, 0.0))
    return min(values)


@RANDOM
@given(
    near_and_far(), MACHINES, st.sampled_from(("cycles", "bytes")),
    st.sampled_from((NO_LIMITS, TileLimits(max_tile_r=2, max_tile_c=5))), st.booleans(),
)  # fmt: skip
def test_no_plan_is_better(
    fixed: FixedGraph, on: SnowflakeMachine, goal: Goal, limits: TileLimits, is_large: bool
) -> None:
    problem = problem_of(fixed, on)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "FEW", 0 if is_large else exact.FEW)
        found = plan_with_proof.__wrapped__(problem, on, limits, goal)
    wanted = best_of_all(problem, on, goal, limits)
    if isinstance(found, Infeasible):
        assert wanted[0] == float("inf")
        return
    assert found.plan.prediction is not None and within(found.plan, limits)
    assert found.plan.prediction == predicted(problem, found.plan, on)
    prediction = found.plan.prediction
    size = moved(prediction)
    assert ((prediction.cycles, size) if goal == "cycles" else (size, 0.0)) == wanted


def pixels_of(channels: int, pixels: int, has_residual: bool) -> ConvProblem:
    """A tap and a channel a filter."""
    return ConvProblem(
        channels, channels, channels, 1, pixels, 1, pixels, (1, 1), (1, 1), (1, 1), (0,) * 4, 2,
        has_residual,
    )  # fmt: skip


def pixels_plans(
    problem: ConvProblem, shares: list[float], divides: Divides
) -> list[SnowflakePlan]:
    """With these powers of the pixels a tile."""
    return [
        SnowflakePlan("lane", filters, 1, max(1, int(problem.columns**share)), "kernels", divides)
        for share in shares
        for filters in {16 * -(-problem.filters // 32), problem.filters}
    ]


def check_bounds(problem: ConvProblem, on: SnowflakeMachine, plans: list[SnowflakePlan]) -> None:
    """No plan takes less time than the search takes for its bound, alone and together with plans
    that have more columns a tile."""
    for plan in plans:
        layer = joint(problem, plan.divides, on)
        assert layer is not None
        number = MODES.index(plan.mode)
        choice = Choice(number, plan.tile_m, plan.tile_r, plan.tile_c, plan.stays == "maps")
        least = exact_search.least_cycles(layer, choice)
        found = costs_of(problem, plan, on)
        assert 0 < least <= found[timeline.CYCLES], plan
        for columns in {plan.tile_c, plan.tile_c + 1, 2 * plan.tile_c, 7 * plan.tile_c}:
            wide = choice._replace(c=min(columns, layer.parts[0].columns.out))
            if wide.c >= plan.tile_c:
                assert exact_search.least_of_fewer(layer, wide) <= found[timeline.CYCLES], plan


@settings(RANDOM, max_examples=examples(30))
@given(
    st.integers(1, 200), st.integers(1, 5000), st.booleans(), MACHINES,
    st.sampled_from((4096, 65536, 131072)), st.lists(st.floats(0, 1), min_size=8, max_size=8),
)  # fmt: skip
def test_pixels_take_no_less_than_their_bounds(
    channels: int, pixels: int, has_residual: bool, on: SnowflakeMachine, mbuf_bytes: int,
    shares: list[float],
) -> None:  # fmt: skip
    """Layers whose steps wait for transfers."""
    clusters = on.clusters.model_copy(update={"mbuf_bytes": mbuf_bytes})
    on = on.model_copy(update={"clusters": clusters})
    problem = pixels_of(channels, pixels, has_residual)
    plans = pixels_plans(problem, shares, "none")
    check_bounds(problem, on, [plan for plan in plans if fits(problem, plan, on)])
    four = machine("snowflake-4cc")
    four = four.model_copy(update={"clusters": clusters.model_copy(update={"count": 4})})
    plans = [plan for way in ways_of(four) for plan in pixels_plans(problem, shares, way)
             if parts_of(problem, way, 4)]  # fmt: skip
    check_bounds(problem, four, [plan for plan in plans if fits_clusters(problem, plan, four)])


@settings(RANDOM, max_examples=examples(30))
@given(near_and_far(), MACHINES, st.randoms(use_true_random=False))
def test_plans_take_no_less_than_their_bounds(
    fixed: FixedGraph, on: SnowflakeMachine, random: Random
) -> None:
    problem = problem_of(fixed, on)
    plans = [plan for plan in space(problem, on) if fits(problem, plan, on)]
    check_bounds(problem, on, random.sample(plans, min(20, len(plans))))


@settings(RANDOM, max_examples=examples(30))
@given(near_and_far(), st.sampled_from((2048, 8192, 65536)), st.randoms(use_true_random=False))
def test_plans_of_clusters_take_no_less_than_their_bounds(
    fixed: FixedGraph, mbuf_bytes: int, random: Random
) -> None:
    """Parts of the memory's rate, and maps or kernels that come once for all."""
    on = machine("snowflake-4cc")
    clusters = on.clusters.model_copy(update={"mbuf_bytes": mbuf_bytes})
    on = on.model_copy(update={"clusters": clusters})
    problem = problem_of(fixed, on)
    every = list(space(problem, on))
    plans = [
        replace(plan, divides=divides)
        for divides in ways_of(on)
        if parts_of(problem, divides, on.clusters.count)
        for plan in random.sample(every, min(60, len(every)))
    ]
    check_bounds(problem, on, [plan for plan in plans if fits_clusters(problem, plan, on)])


@pytest.mark.parametrize(
    ("channels", "pixels", "has_residual", "cycles"),
    [(32, 173056, False, 606208.0), (128, 10816, True, 228864.0), (512, 768, True, 65280.0)],
)
def test_pixels_of_large_maps(
    channels: int, pixels: int, has_residual: bool, cycles: float
) -> None:
    """The least of all plans, each of them timed once."""
    problem = pixels_of(channels, pixels, has_residual)
    found = plan_with_proof(problem, machine("snowflake-1cc"))
    assert isinstance(found, Proof) and found.plan.prediction is not None
    assert found.plan.prediction.cycles == cycles


@pytest.mark.parametrize(
    ("name", "problem", "most_timed"),
    [
        # A few channels of large maps: the core issues, results have one place or two.
        ("snowflake-4cc", (32, 3, 608, 608, 608, 608, (3, 3), (1, 1)), 1500),
        ("snowflake-4cc", (64, 3, 608, 304, 608, 608, (3, 4), (1, 2)), 1500),
        ("snowflake-1cc", (64, 3, 608, 304, 608, 608, (3, 4), (1, 2)), 1000),
    ],
)
def test_few_plans_of_large_maps_are_timed(
    name: str, problem: tuple[Any, ...], most_timed: int
) -> None:
    filters, channels, rows, columns, in_rows, in_columns, kernel, stride = problem
    layer = ConvProblem(
        filters, channels, 1, rows, columns, in_rows, in_columns, kernel, stride, (1, 1), (1,) * 4,
        2,
    )  # fmt: skip
    proof = plan_with_proof(layer, machine(name))
    assert isinstance(proof, Proof)
    assert 0 < proof.timed < most_timed


@RANDOM
@given(near_and_far(), st.sampled_from(("snowflake-1cc", "snowflake-2cc", "snowflake-4cc")))
def test_plans_are_predicted_where_they_fit(fixed: FixedGraph, name: str) -> None:
    """As `plan_fault` counts it, independently."""
    on = machine(name)
    problem = problem_of(fixed, on)
    ways = ways_of(on) if on.clusters.count > 1 else ("none",)
    plans = [replace(one, divides=way) for one in space(problem, on) for way in ways]
    for plan in plans[:: max(1, len(plans) // 40)]:
        wanted = None
        if parts_of(problem, plan.divides, on.clusters.count) and (
            fits_clusters(problem, plan, on)
        ):
            wanted = divided_prediction(problem, plan, on)
        assert prediction_where_fits(problem, plan, on) == wanted
        assert (plan_fault(problem, plan, on) is None) == (wanted is not None)


@RANDOM
@given(near_and_far(), MACHINES)
def test_exact_is_never_worse_than_another_planner(
    fixed: FixedGraph, on: SnowflakeMachine
) -> None:
    problem = problem_of(fixed, on)
    best = planner("exact").plan(problem, on)
    least = planner("exact-traffic").plan(problem, on)
    for name in planner_names(on):
        plan = planner(name).plan(problem, on)
        assert isinstance(plan, Infeasible) == isinstance(best, Infeasible), (name, plan)
        if isinstance(plan, Infeasible):
            continue
        assert plan.planner == name
        assert plan.prediction == predicted(problem, replace(plan, prediction=None), on)
        assert best.prediction.cycles <= plan.prediction.cycles, name
        assert moved(least.prediction) <= moved(plan.prediction), name


def test_a_proof_says_what_was_looked_at() -> None:
    problem = ConvProblem(
        128, 64, 1, 28, 28, 28, 28, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 2
    )  # fmt: skip
    on = machine("snowflake-1cc")
    proof = plan_with_proof(problem, on)
    assert isinstance(proof, Proof)
    assert 0 < proof.timed < proof.seen < len(list(space(problem, on)))
    assert proof.is_proven


@pytest.mark.parametrize("name", ("snowflake-2cc", "snowflake-4cc"))
@pytest.mark.parametrize("goal", ("cycles", "bytes"))
@settings(RANDOM, max_examples=examples(6))
@given(near_and_far())
def test_no_plan_for_clusters_is_better(name: str, goal: Goal, fixed: FixedGraph) -> None:
    on = machine(name)
    problem = problem_of(fixed, on)
    proof = plan_with_proof(problem, on, goal=goal)
    if isinstance(proof, Infeasible):
        return
    plan = proof.plan
    assert plan.prediction is not None
    assert plan.prediction == divided_prediction(problem, plan, on)
    assert proof.is_proven == (goal == "cycles")
    tried = {
        replace(one, divides=way)
        for way in ways_of(on)
        for part in parts_of(problem, way, on.clusters.count)
        for asked in (problem, part.problem)  # a tile may have all filters of a part
        for one in space(asked, on)
    }
    values = [
        (prediction.cycles, float(moved(prediction)))
        for one in tried
        if fits_clusters(problem, one, on)
        for prediction in (divided_prediction(problem, one, on),)
    ]
    found = (plan.prediction.cycles, float(moved(plan.prediction)))
    if goal == "bytes":
        found, values = (found[1], 0.0), [(size, 0.0) for _, size in values]
    assert found <= min(values, default=found)
    if plan.divides != "none":
        assert found == min(values)


@RANDOM
@given(near_and_far(), MACHINES, st.data())
def test_what_moves_is_known_without_the_steps(
    fixed: FixedGraph, on: SnowflakeMachine, data: st.DataObject
) -> None:
    """`joint.bytes_of` is a closed form of what `timeline.timed` adds up."""
    problem = problem_of(fixed, on)
    plans = [plan for plan in space(problem, on) if fits(problem, plan, on)]
    if not plans:
        return
    plan = data.draw(st.sampled_from(plans))
    one = predicted(problem, plan, on)
    whole = prediction(costs_of(problem, plan, on))
    assert (whole.in_bytes, whole.weight_bytes, whole.out_bytes) == (
        one.in_bytes, one.weight_bytes, one.out_bytes
    )  # fmt: skip
    assert whole.cycles == one.cycles


def test_layers_of_other_regions_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region has planners of its own; on another machine, or for another goal, the same layer
    is another question."""
    asked: list[tuple[str, str]] = []

    def noted(problem: ConvProblem, divides: str, on: SnowflakeMachine, *rest: Any) -> None:
        asked.append((on.name, rest[1]))

    monkeypatch.setattr(exact, "_best_of", noted)
    layer = ConvProblem(48, 37, 1, 11, 13, 11, 13, (3, 3), (1, 1), (1, 1), (1,) * 4, 2)
    one, two = (machine(name).model_copy(update={"name": name}) for name in ("snowflake-1cc",) * 2)
    for name, on in (("exact", one), ("exact", two), ("exact-layers", two), ("exact-traffic", one)):
        planner(name).plan(layer, on)
    assert asked == [("snowflake-1cc", "cycles"), ("snowflake-1cc", "bytes")]
    plan_with_proof.cache_clear()
