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

Clusters: the space is every plan for a division by rows and for one by filters; plans of one
cluster alone where the paper's planner finds no other. Time is that of all clusters (`joint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.planner import Goal
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.plan import exact_search as search
from tvm_npu.codegen.snowflake.plan.divide import costs_of, divided_prediction, ways_of
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.joint import joint
from tvm_npu.codegen.snowflake.plan.numbers import MODES
from tvm_npu.codegen.snowflake.plan.planner import GreedyPlanner
from tvm_npu.codegen.snowflake.plan.refused import modes_of
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

MOST_KEPT = 1024
"""Answers that are kept for the regions that come: many a network asks for the same layers in each
of its regions."""

FEW = 2000
"""Tiles of a layer. Of more, a few are timed before the search, which begins with the best."""


@dataclass(frozen=True)
class Proof:
    """A plan and why none is faster: every plan of the space that fits was bounded (``seen`` one by
    one, the others together) or timed (``timed``), and no bound and no time was less than
    ``bound_cycles``, which is 0 for a plan of fewest bytes."""

    plan: SnowflakePlan
    seen: int
    timed: int
    bound_cycles: float

    @property
    def is_proven(self) -> bool:
        """The plan is as fast as the bound: always, unless it is one of fewest bytes."""
        return self.plan.prediction is not None and (
            self.plan.prediction.cycles <= self.bound_cycles
        )


def filter_sizes(
    shapes: Sequence[ConvShape], mode: Mode, machine: SnowflakeMachine, limits: TileLimits
) -> Any:
    """Filters a tile of layers or their parts, many first: multiples of what is computed at a time,
    and all of each."""
    unit = LANES if mode == "lane" else together(mode, machine)
    every = [min(shape.filters, limits.max_tile_m or shape.filters) for shape in shapes]
    sizes = {*every, *range(unit, max(every) + 1, unit)}
    return np.array(sorted(sizes, reverse=True), np.int64)


@lru_cache(maxsize=MOST_KEPT)
def plan_with_proof(
    problem: ConvProblem,
    machine: SnowflakeMachine,
    limits: TileLimits = NO_LIMITS,
    goal: Goal = "cycles",
) -> Proof | Infeasible:
    """The best plan by ``goal`` for all clusters, and what was looked at."""
    best = GreedyPlanner(limits=limits).plan(problem, machine)
    if isinstance(best, Infeasible):
        return best
    best = replace(best, planner="")
    counts = np.zeros(2, np.int64)
    ways: list[Divides] = list(ways_of(machine)) if machine.clusters.count > 1 else []
    if best.divides == "none":
        ways.append("none")
    for divides in ways:
        found = _best_of(problem, divides, machine, limits, goal, best, counts)
        best = best if found is None else found
    assert best.prediction is not None, "every plan here is predicted"
    seen, timed = map(int, counts)
    return Proof(best, seen, timed, 0.0 if goal == "bytes" else best.prediction.cycles)


def _best_of(
    problem: ConvProblem, divides: Divides, machine: SnowflakeMachine, limits: TileLimits,
    goal: Goal, first: SnowflakePlan, counts: Any,
) -> SnowflakePlan | None:  # fmt: skip
    """The best plan of a division; None where none is better than ``first``."""
    layer = joint(problem, divides, machine)
    if layer is None:
        return None
    parts = parts_of(problem, divides, machine.clusters.count)
    shapes = [conv_shape(part.problem) for part in parts]
    by_bytes = goal == "bytes"
    best = search.value(costs_of(problem, first, machine), by_bytes)
    rows = max(shape.rows.out for shape in shapes)
    columns = max(shape.columns.out for shape in shapes)
    rows = min(rows, limits.max_tile_r or rows)
    columns = min(columns, limits.max_tile_c or columns)
    tried = [
        (mode, MODES.index(mode), filter_sizes(shapes, mode, machine, limits))
        for mode in modes_of(shapes[0])
    ]
    if rows * columns * sum(len(sizes) for _, _, sizes in tried) > FEW:
        known = best
        for _, number, sizes in tried:
            known = search.sample_mode(layer, number, sizes, rows, columns, by_bytes, known, counts)
        best = min(best, np.nextafter(known, np.inf))  # so that the first plan with it is found
    plan: SnowflakePlan | None = None
    for mode, number, sizes in tried:
        found: Any = np.zeros(4, np.int64)
        best = search.search_mode(
            layer, number, sizes, rows, columns, by_bytes, best, found, counts
        )
        if found[0]:
            m, r, c, stay = (int(value) for value in found)
            plan = SnowflakePlan(mode, m, r, c, "maps" if stay else "kernels", divides)
    if plan is None:
        return None
    return replace(plan, prediction=divided_prediction(problem, plan, machine))


@dataclass(frozen=True)
class ExactPlanner:
    """Proven least predicted time (`exact`; `exact-dma` is the same, as there are no rings, and
    `exact-layers` for one layer), or bytes (`exact-traffic`)."""

    name: str = "exact"
    limits: TileLimits = NO_LIMITS

    @property
    def goal(self) -> Goal:
        return "bytes" if self.name == "exact-traffic" else "cycles"

    def plan(self, problem: ConvProblem, machine: SnowflakeMachine) -> SnowflakePlan | Infeasible:
        proof = plan_with_proof(problem, machine, self.limits, self.goal)
        return replace(proof.plan, planner=self.name) if isinstance(proof, Proof) else proof

    def others(
        self, problem: ConvProblem, machine: SnowflakeMachine
    ) -> tuple[SnowflakePlan, ...]:
        """The paper's own."""
        plan = GreedyPlanner(self.name, self.limits).plan(problem, machine)
        return (plan,) if isinstance(plan, SnowflakePlan) else ()
