"""The plan of least predicted time over all that a Snowflake machine can do, proven.

The space: every mode that the layer has (lane for depthwise convolutions, else coop and indp),
every number of filters a tile that is a multiple of what is computed at a time, every number of
rows and columns, and both orders. Time is `timeline.timed`. All of it is enumerated
(`exact_search`) but for plans whose lower bound is no better than the best plan so far. Left out:
other numbers of filters, which compute with parts of the vMACs idle, and in mode lane the order
that keeps maps, which is the same.

`exact-traffic` minimizes bytes with the same search; of equals it takes the fastest.

Ties: times are rounded to what is known of them (`timeline.resolved`); of plans that are equal then
the one that moves the fewest bytes, and the first of these that is found: the paper's own choice
comes first, then many filters, rows and columns.

Clusters: the space is every plan for a division by rows and for one by filters; "none" only where a
layer allows neither. Each cluster's part is solved to a proof, with the part of the memory's rate
that it can expect; the answer is the best of these plans, for all clusters, and not proven as such.
A plan for all takes at least as long as the slowest part's own best one with all of the memory:
`plan_with_proof` gives that as `Proof.bound_cycles`, and `Proof.is_proven` says whether it is met.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.plan import exact_search as search
from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.divide import Division, divided, one_cluster
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.greedy import greedy
from tvm_npu.codegen.snowflake.plan.numbers import MODES, numbers
from tvm_npu.codegen.snowflake.plan.planner import GreedyPlanner
from tvm_npu.codegen.snowflake.plan.predict import choice, predicted
from tvm_npu.codegen.snowflake.plan.refused import modes_of, refusal
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Divides,
    Mode,
    SnowflakePlan,
    conv_shape,
    together,
)
from tvm_npu.sim.snowflake.isa import LANES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

Goal = Literal["cycles", "bytes"]


@dataclass(frozen=True)
class Proof:
    """A plan and why none is faster: every plan of the space that fits was bounded (``seen`` one by
    one, the others together) or timed (``timed``), and no bound and no time was less than
    ``bound_cycles``."""

    plan: SnowflakePlan
    seen: int
    timed: int
    bound_cycles: float

    @property
    def is_proven(self) -> bool:
        """The plan is as fast as the bound; on one cluster always, unless it is one of fewest
        bytes."""
        return self.plan.prediction is not None and (
            self.plan.prediction.cycles <= self.bound_cycles
        )


def filter_sizes(
    shape: ConvShape, mode: Mode, machine: SnowflakeMachine, limits: TileLimits
) -> Any:
    """Filters a tile, many first: multiples of what is computed at a time, and all."""
    unit = LANES if mode == "lane" else together(mode, machine)
    most = min(shape.filters, limits.max_tile_m or shape.filters)
    sizes = {most, *range(unit, most + 1, unit)}
    return np.array(sorted(sizes, reverse=True), np.int64)


def prove(
    problem: ConvProblem,
    machine: SnowflakeMachine,
    limits: TileLimits = NO_LIMITS,
    goal: Goal = "cycles",
) -> Proof | Infeasible:
    """The best plan by ``goal`` and what was looked at."""
    shape = conv_shape(problem)
    refused = refusal(problem, machine, limits)
    if refused is not None:
        return refused
    layer = numbers(problem, machine)
    first = greedy(shape, machine, limits)
    assert first is not None, "a layer that is not refused has a plan"
    plan, costs = first, np.zeros(timeline.COSTS)
    timeline.cost_of(layer, choice(layer, first), costs)
    by_bytes = goal == "bytes"
    best = search.value(costs, by_bytes)
    counts = np.zeros(2, np.int64)
    rows = min(shape.rows.out, limits.max_tile_r or shape.rows.out)
    columns = min(shape.columns.out, limits.max_tile_c or shape.columns.out)
    for mode in modes_of(shape):
        found: Any = np.zeros(4, np.int64)
        sizes = filter_sizes(shape, mode, machine, limits)
        best = search.search_mode(
            layer, MODES.index(mode), sizes, rows, columns, by_bytes, best, found, counts
        )
        if found[0]:
            m, r, c, stay = (int(value) for value in found)
            plan = SnowflakePlan(mode, m, r, c, "maps" if stay else "kernels")
    prediction = predicted(problem, plan, machine)
    bound = 0.0 if by_bytes else prediction.cycles
    seen, timed = map(int, counts)
    return Proof(replace(plan, prediction=prediction), seen, timed, bound)


def plan_with_proof(
    problem: ConvProblem,
    machine: SnowflakeMachine,
    limits: TileLimits = NO_LIMITS,
    goal: Goal = "cycles",
) -> Proof | Infeasible:
    """`prove` for a machine of any number of clusters: the best plan that was found, and a bound on
    the time of all."""
    if machine.clusters.count == 1:
        return prove(problem, machine, limits, goal)

    found = _divided(problem, machine, limits, goal)
    if isinstance(found, Infeasible):
        return found
    best = _best(found, problem, machine, limits, goal)
    bounds = [0.0]
    if goal == "cycles":
        bounds = [least_cycles(problem, one.divides, machine, limits) for one in found]
    return Proof(
        best, sum(one.seen for one in found), sum(one.timed for one in found), min(bounds)
    )


def least_cycles(
    problem: ConvProblem, divides: Divides, machine: SnowflakeMachine, limits: TileLimits
) -> float:
    """No plan of a division is predicted to take less: it takes as long as the slowest part's own
    best one, if that part had all of the memory."""
    parts = parts_of(problem, divides, machine.clusters.count)
    proofs = [prove(one, one_cluster(machine), limits) for one in {part.problem for part in parts}]
    return max(one.bound_cycles for one in proofs if isinstance(one, Proof))


def _divided(
    problem: ConvProblem, machine: SnowflakeMachine, limits: TileLimits, goal: Goal
) -> list[Division] | Infeasible:
    def solved(asked: ConvProblem, view: SnowflakeMachine) -> Proof | Infeasible:
        return prove(asked, view, limits, goal)

    return divided(problem, machine, solved)


def _best(
    found: list[Division], problem: ConvProblem, machine: SnowflakeMachine, limits: TileLimits,
    goal: Goal,
) -> SnowflakePlan:  # fmt: skip
    """Of the plans of all divisions and the paper's own choice."""
    plans = [plan for one in found for plan in one.plans]
    own = GreedyPlanner(limits=limits).plan(problem, machine)
    if isinstance(own, SnowflakePlan):
        plans.append(replace(own, planner=""))
    return min(plans, key=lambda plan: _order(plan, goal))


def _order(plan: SnowflakePlan, goal: Goal) -> tuple[float, float]:
    """What is minimized first, and second."""
    prediction = plan.prediction
    assert prediction is not None
    moved = float(prediction.in_bytes + prediction.weight_bytes + prediction.out_bytes)
    return (moved, prediction.cycles) if goal == "bytes" else (prediction.cycles, moved)


@dataclass(frozen=True)
class ExactPlanner:
    """Proven least predicted time (`exact`; `exact-dma` and `exact-layers` are the same: there are
    no rings and no cascades), or bytes (`exact-traffic`)."""

    name: str = "exact"
    limits: TileLimits = NO_LIMITS

    def plan(self, problem: ConvProblem, machine: SnowflakeMachine) -> SnowflakePlan | Infeasible:
        goal: Goal = "bytes" if self.name == "exact-traffic" else "cycles"
        if machine.clusters.count == 1:
            proof = prove(problem, machine, self.limits, goal)
            return replace(proof.plan, planner=self.name) if isinstance(proof, Proof) else proof
        found = _divided(problem, machine, self.limits, goal)
        if isinstance(found, Infeasible):
            return found
        best = _best(found, problem, machine, self.limits, goal)
        return replace(best, planner=self.name)
