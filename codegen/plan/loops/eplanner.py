"""e-PlaNNer: the search of the thesis' chapter 6.4.

1. Tiling factors are initialized (Algorithm 1): the kernel and OW whole, the loops on the PE array
   as long as the array, OH one row.
2. Loops are eliminated (Algorithm 2): of the eight subsets of OC, IC and OH the one whose full
   tiling fits and moves the least bytes under its best dataflow is the lower bound.
3. Loops are interchanged (Algorithm 3), for each of the three dataflows.
4. All tilings above the lower bound are compared by performance / bytes (Algorithm 4).

What the thesis leaves open: a subset is tried by itself, on top of the initialized factors; of
equally good tilings the largest is taken; where the initialized factors do not fit, those of the PE
array are given up first, then the full width. Groups are planned one by one, several in a step
where they fit whole. `planner.plan_all` is its schedule cache (4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.eplanner_model import (
    DATAFLOWS,
    Dataflow,
    access_bytes,
    interchanged,
    metric,
    pe_utilization,
    reload_factors,
)
from tvm_npu.codegen.plan.loops.groups import with_groups
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LOOPS, Loop, LoopPlan
from tvm_npu.codegen.plan.loops.questions import Measure
from tvm_npu.codegen.plan.loops.room import no_room
from tvm_npu.codegen.plan.loops.space import Tilings, candidate_sizes, limited, tilings
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible

Sizes = dict[Loop, int]
ELIMINATED: tuple[Loop, ...] = ("M", "N", "R")
"""OC, IC and OH: the loops of Algorithm 2."""


def fitting(problem: ConvProblem, machine: LoopMachine, sizes: Sizes) -> Tilings:
    """The tiling ``sizes`` or, where it does not fit, none."""
    return tilings(problem, machine, {loop: (size,) for loop, size in sizes.items()})


def initial_factors(
    problem: ConvProblem,
    machine: LoopMachine,
    limits: TileLimits = NO_LIMITS,
    fills_array: bool = True,
) -> Sizes | None:
    """Algorithm 1; None when not even single elements fit."""
    most = {loop: limited(problem, loop, limits) for loop in LOOPS}
    single: Sizes = {"M": 1, "N": 1, "R": 1, "C": most["C"]}
    filled = {loop: min(max(single[loop], machine.pes_on(loop)), most[loop]) for loop in LOOPS}
    attempts = [filled, single] if fills_array else [single]
    widths = reversed(candidate_sizes(problem, "C", 1, limits))
    attempts += [{**single, "C": width} for width in widths]
    return next((sizes for sizes in attempts if len(fitting(problem, machine, sizes))), None)


def eliminated(
    problem: ConvProblem, machine: LoopMachine, initial: Sizes, limits: TileLimits = NO_LIMITS
) -> Sizes:
    """Algorithm 2: the lower bound."""
    best, least = initial, float("inf")
    for count in range(len(ELIMINATED) + 1):
        for subset in combinations(ELIMINATED, count):
            sizes = {**initial, **{loop: limited(problem, loop, limits) for loop in subset}}
            found = fitting(problem, machine, sizes)
            if not len(found):
                continue
            moved = min(float(flow_bytes(problem, found, flow)[0]) for flow in DATAFLOWS)
            if moved < least:
                best, least = sizes, moved
    return best


def flow_bytes(problem: ConvProblem, tiles: Tilings, dataflow: Dataflow) -> NDArray[Any]:
    """Equation 6.1 of every tiling."""
    trips = (tiles.trips(problem, loop) for loop in LOOPS)
    moved = access_bytes(problem, reload_factors(dataflow, *trips))
    return np.broadcast_to(np.asarray(moved, np.float64), tiles.m.shape)


def tilings_above(
    problem: ConvProblem, machine: LoopMachine, bound: Sizes, limits: TileLimits = NO_LIMITS
) -> Tilings:
    """The pruned space: OW stays, the other factors are those of the bound or larger."""
    sizes: dict[Loop, Sequence[int]] = {"C": (bound["C"],)}
    for loop in ELIMINATED:
        every = candidate_sizes(problem, loop, machine.pes_on(loop), limits)
        sizes[loop] = sorted({bound[loop], *(size for size in every if size > bound[loop])})
    return tilings(problem, machine, sizes)


@dataclass(frozen=True)
class Choice:
    """A tiling and its dataflow."""

    index: int
    dataflow: Dataflow


def best_by_metric(
    problem: ConvProblem,
    machine: LoopMachine,
    tiles: Tilings,
    dataflows: Iterable[Dataflow],
) -> Choice:
    """Algorithm 4; of equally good ones the last, with the largest factors. Where partial sums
    cannot leave the chip, what would send them out becomes output stationary."""
    sums_stay = not machine.sums_leave
    used = pe_utilization(machine, tiles.m, tiles.n, tiles.r, tiles.c)
    whole = tiles.trips(problem, "N") == 1
    best, largest = Choice(0, "OS"), -1.0
    wanted = tuple(dataflows)
    for dataflow in (*wanted, "OS") if sums_stay and "OS" not in wanted else wanted:
        values = metric(problem, machine, used, flow_bytes(problem, tiles, dataflow))  # type: ignore[arg-type]
        if sums_stay and dataflow != "OS":
            values = np.where(whole, values, -2.0)
        index = len(values) - 1 - int(np.argmax(values[::-1]))
        if values[index] > largest:
            best, largest = Choice(index, dataflow), float(values[index])  # type: ignore[arg-type]
    return best


def chosen_plan(
    problem: ConvProblem, machine: LoopMachine, tiles: Tilings, choice: Choice, name: str
) -> LoopPlan:
    """The plan of a choice, its loops interchanged by Algorithm 3."""
    trips = {loop: int(tiles.trips(problem, loop)[choice.index]) for loop in LOOPS}
    plan = tiles.plan(choice.index, interchanged(choice.dataflow, trips))
    return finished(problem, plan, machine, name)


def finished(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine, name: str) -> LoopPlan:
    """``plan`` with its groups, its prediction and its planner's name."""
    plan = with_groups(problem, plan, machine)
    return replace(plan, prediction=predicted(problem, plan, machine), planner=name)


def pruned_space(
    problem: ConvProblem, machine: LoopMachine, limits: TileLimits = NO_LIMITS
) -> Tilings | None:
    """What Algorithms 1 and 2 leave; None where nothing fits."""
    initial = initial_factors(problem, machine, limits)
    if initial is None:
        return None
    return tilings_above(problem, machine, eliminated(problem, machine, initial, limits), limits)


@dataclass(frozen=True)
class EPlanner:
    """`eplanner`; with ``dataflows`` only some of them."""

    limits: TileLimits = NO_LIMITS
    name: str = "eplanner"
    dataflows: tuple[Dataflow, ...] = DATAFLOWS
    measure: Measure = "metric"
    splits_memory: bool = False

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible:
        tiles = pruned_space(problem, machine, self.limits)
        if tiles is None:
            return no_room(problem, machine)
        choice = best_by_metric(problem, machine, tiles, self.dataflows)
        return chosen_plan(problem, machine, tiles, choice, self.name)
