"""Plans of convolutions that the clusters of a device share (`division`): which way is faster, and
what it costs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.check import plan_fault
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.joint import joint, joint_costs
from tvm_npu.codegen.snowflake.plan.numbers import MODES, numbers
from tvm_npu.codegen.snowflake.plan.predict import alone_cycles, choice, predicted, prediction
from tvm_npu.codegen.snowflake.plan.room import Choice
from tvm_npu.codegen.snowflake.plan.tiling import (
    Divides,
    SnowflakePlan,
    conv_shape,
    geometry,
    together,
)
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

SMALLER_TILES = 0.94
"""Which part of the time plans with fewer filters a tile may take, at most, to be chosen: more
steps leave less between them to the maxima that run beside a convolution."""
PlanOne = Callable[[ConvProblem, SnowflakeMachine, int | None], SnowflakePlan | Infeasible]
"""Plans a layer for a machine of one cluster, with so many filters a tile at most (None: any),
without a prediction."""


def one_cluster(machine: SnowflakeMachine, share_of_memory: float = 1.0) -> SnowflakeMachine:
    """A machine like one cluster of ``machine``, with its part of the memory's bandwidth."""
    if machine.clusters.count == 1:
        return machine
    rate = machine.dram.bandwidth_gb_per_s * min(1.0, share_of_memory)
    return machine.model_copy(
        update={
            "clusters": machine.clusters.model_copy(update={"count": 1}),
            "dram": machine.dram.model_copy(update={"bandwidth_gb_per_s": rate}),
        }
    )


def _share_of_memory(problem: ConvProblem, divides: Divides, clusters: int) -> float:
    """What a cluster can take of the memory's time, when each tensor is moved once: loads that it
    shares with the others are read once for all."""
    maps = problem.channels * problem.in_rows * problem.in_columns
    weights = problem.macs // (problem.rows * problem.columns)
    results = problem.filters * problem.rows * problem.columns
    results *= 2 if problem.has_residual else 1
    if divides == "rows":
        own = weights + (maps + results) / clusters
    elif divides == "both":
        own = maps / 2 + 2 * weights / clusters + results / clusters
        return own / (clusters // 2 * maps + 2 * weights + results)
    else:
        own = maps / (clusters if problem.groups > 1 else 1) + (weights + results) / clusters
    return own / (maps + weights + results)


def ways_of(machine: SnowflakeMachine) -> tuple[Divides, ...]:
    """In which several clusters can share out a layer."""
    clusters = machine.clusters.count
    both = clusters > 2 and clusters % 2 == 0
    return ("rows", "filters", "both") if both else ("rows", "filters")


def divided_plan(
    problem: ConvProblem, machine: SnowflakeMachine, plan_one: PlanOne
) -> SnowflakePlan | Infeasible:
    """What ``plan_one`` plans for one cluster's part, of the division and the number of filters a
    tile that are expected to be the fastest; "none" where the layer cannot be divided."""
    clusters = machine.clusters.count
    if clusters == 1:
        one = plan_one(problem, machine, None)
        if isinstance(one, SnowflakePlan):
            one = replace(one, prediction=predicted(problem, one, machine))
        return one
    found: list[SnowflakePlan] = []
    for divides in ways_of(machine):
        plan = _plan_of(problem, machine, plan_one, divides)
        if isinstance(plan, SnowflakePlan):
            found.append(plan)
    if found:
        return _fastest(found)
    return _plan_of(problem, machine, plan_one, "none")


def _plan_of(
    problem: ConvProblem, machine: SnowflakeMachine, plan_one: PlanOne, divides: Divides
) -> SnowflakePlan | Infeasible:
    parts = parts_of(problem, divides, machine.clusters.count)
    answer: SnowflakePlan | Infeasible = Infeasible(
        "clusters", 0, 0, f"fewer {divides} than clusters", "use a machine of fewer clusters"
    )
    view = _view(problem, divides, machine)
    for asked in dict.fromkeys(part.problem for part in parts):
        plan = plan_one(asked, view, None)
        if not isinstance(plan, SnowflakePlan):
            answer = plan
            continue
        tried = [replace(one, divides=divides) for one in _smaller(plan, asked, view, plan_one)]
        found = [
            replace(one, prediction=divided_prediction(problem, one, machine))
            for one in tried
            if fits(problem, one, machine)
        ]
        if found:
            best = _fastest(found)
            return best if _cycles(best) < SMALLER_TILES * _cycles(found[0]) else found[0]
    return answer


def _smaller(
    plan: SnowflakePlan, asked: ConvProblem, view: SnowflakeMachine, plan_one: PlanOne
) -> Iterator[SnowflakePlan]:
    """``plan`` and others with half as many filters a tile, a quarter and so on: less has to come
    before the first step, and less is computed when the last kernels have come."""
    yield plan
    unit, size = together(plan.mode, view), plan.tile_m
    while size > unit:
        size = max(unit, size // 2 // unit * unit)
        one = plan_one(asked, view, size)
        if isinstance(one, SnowflakePlan):
            yield one


def _fastest(found: list[SnowflakePlan]) -> SnowflakePlan:
    """By prediction; the first of equals."""
    return min(found, key=_cycles)


def _cycles(plan: SnowflakePlan) -> float:
    return plan.prediction.cycles if plan.prediction else 0.0


def _view(problem: ConvProblem, divides: Divides, machine: SnowflakeMachine) -> SnowflakeMachine:
    if divides == "none":
        return one_cluster(machine)
    return one_cluster(machine, _share_of_memory(problem, divides, machine.clusters.count))


def fits(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> bool:
    """Tiles of every cluster fit its buffers."""
    parts = parts_of(problem, plan.divides, machine.clusters.count)
    return bool(parts) and all(
        geometry(conv_shape(part.problem), plan, machine).rooms is not None for part in parts
    )


def costs_of(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> Any:
    """`timeline.COSTS` of all clusters, for a plan that fits them."""
    layer, costs = joint(problem, plan.divides, machine), np.zeros(timeline.COSTS)
    assert layer is not None, "a plan that fits divides the layer"
    joint_costs(layer, _tiles(plan), costs)
    return costs


def _tiles(plan: SnowflakePlan) -> Choice:
    return Choice(
        MODES.index(plan.mode), plan.tile_m, plan.tile_r, plan.tile_c, plan.stays == "maps"
    )


def divided_prediction(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> Prediction:
    """Of all clusters: the time of the slowest, the bytes of all."""
    if machine.clusters.count == 1:
        return predicted(problem, plan, machine)
    return prediction(costs_of(problem, plan, machine))


def prediction_where_fits(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> Prediction | None:
    """`divided_prediction`, for a plan whose tiles are parts of those of a sound one; None where
    they do not fit every cluster's buffers."""
    costs = np.zeros(timeline.COSTS)
    if machine.clusters.count == 1:
        layer = numbers(problem, machine)
        fits_it = timeline.cost_of(layer, choice(layer, plan), costs)
    else:
        shared = joint(problem, plan.divides, machine)
        fits_it = shared is not None and joint_costs(shared, _tiles(plan), costs)
    return prediction(costs) if fits_it else None


def first_cycles(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> float:
    """Predicted time of a sound plan where no layer comes before."""
    view = _view(problem, plan.divides, machine)
    parts = parts_of(problem, plan.divides, machine.clusters.count)
    return max(alone_cycles(part.problem, plan, view) for part in parts)


def predict(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> Prediction:
    """`divided_prediction`; PlanningError for a plan with a fault."""
    fault = plan_fault(problem, plan, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    return divided_prediction(problem, plan, machine)


def best_division(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> SnowflakePlan | None:
    """``plan`` with the division over the clusters that is expected to be the fastest, predicted;
    None where its tiles fit in none."""
    if machine.clusters.count == 1:
        return replace(plan, prediction=predicted(problem, plan, machine))
    ways: tuple[Divides, ...] = (*ways_of(machine), "none")
    divided = [replace(plan, divides=way) for way in ways]
    found = [
        replace(one, prediction=divided_prediction(problem, one, machine))
        for one in divided
        if fits(problem, one, machine)
    ]
    return min(found, key=_cycles, default=None)
