"""The planner of loops: the tables of a layer, its plan with a proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.exact import search
from tvm_npu.codegen.plan.loops.exact.clocked import search_clocked
from tvm_npu.codegen.plan.loops.exact.tables import Table, loop_table
from tvm_npu.codegen.plan.loops.machine import EngineCost, LoopMachine, SharedMemory, TransferCost
from tvm_npu.codegen.plan.loops.plan import (
    LOOPS,
    Loop,
    LoopPlan,
    Resident,
    can_be_touched_only,
    extent,
    touched,
)
from tvm_npu.codegen.plan.loops.questions import Measure
from tvm_npu.codegen.plan.loops.room import biases_stay, no_room
from tvm_npu.codegen.plan.loops.traffic import tile_traffic
from tvm_npu.codegen.plan.loops.walked import can_be_walked, walked_of
from tvm_npu.codegen.plan.planner import Goal
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, tile_sizes

ORDERS: tuple[tuple[Loop, ...], ...] = tuple(permutations(LOOPS))
_KEEPING = tuple(
    order for order in ORDERS if order.index("R") > max(order.index("N"), order.index("C"))
)
"""Orders in which IN tiles follow each other down the rows."""
_FREE_START = 1e-7
"""Cost of a transfer in bytes under "bytes": breaks ties, as no layer has 10^7 transfers more."""

_RESIDENT: dict[Resident, int] = {
    "": search.NOTHING, "IN": search.RESIDENT_IN, "W": search.RESIDENT_WEIGHTS
}  # fmt: skip


@dataclass(frozen=True)
class LoopProof:
    """A plan, its value of the goal, and what was looked at: ``tilings`` that fit, ``timed`` plans
    among their orders and buffers."""

    plan: LoopPlan
    value: float
    tilings: int
    timed: int


def _layer(
    problem: ConvProblem,
    machine: LoopMachine,
    transfer: TransferCost,
    engine: EngineCost,
    gathers: bool,
    resident: Resident,
) -> search.Layer:
    memories = machine.memories
    if isinstance(memories, SharedMemory):
        rooms = (memories.shared_bytes, 0, 0)
    else:
        rooms = (memories.input_bytes, memories.weight_bytes, memories.output_bytes)
    return search.Layer(
        problem.filters,
        problem.channels,
        problem.groups,
        problem.rows,
        problem.columns,
        problem.kernel[0] * problem.kernel[1],
        problem.element_bytes,
        problem.accumulator_bytes,
        int(problem.has_residual),
        int(biases_stay(problem, machine)),
        *rooms,
        machine.bias_bytes,
        int(isinstance(memories, SharedMemory)),
        int(machine.waits_between),
        int(gathers),
        _RESIDENT[resident],
        float(transfer.start),
        float(transfer.segment),
        float(transfer.byte),
        float(engine.iteration),
        float(engine.setup),
        float(engine.output),
        float(engine.total),
        float(engine.finish),
        float(engine.byte),
    )


def prove(
    problem: ConvProblem,
    machine: LoopMachine,
    goal: Goal = "cycles",
    limits: TileLimits = NO_LIMITS,
) -> LoopProof | Infeasible:
    """The best plan by ``goal``; of equals the first found: large rows, columns, channels, filters
    first, then one buffer before two, then `ORDERS`. Plans that keep rows, take only what windows
    touch, or have resident tiles, come after all others, in this order: the best of them is taken
    where it is better."""
    best = _search(problem, machine, goal, limits)
    if best is None:
        return no_room(problem, machine)
    tilings, timed = best.tilings, best.timed
    for more in _more_choices(problem, best.plan, machine, goal):
        other = _search(problem, machine, goal, limits, **more, below=best.value)
        if other is not None:
            tilings, timed = tilings + other.tilings, timed + other.timed
            best = other
    return replace(best, tilings=tilings, timed=timed)


def _more_choices(
    problem: ConvProblem, plan: LoopPlan, machine: LoopMachine, goal: Goal
) -> Iterator[dict[str, Any]]:
    """What plans may have beside tiles, orders and buffers, where that may be better than the
    ``plan`` without."""
    if machine.moves_rows and _may_keep_rows(problem, plan, machine, goal):
        yield {"keeps_rows": True}
    elif machine.gathers and can_be_touched_only(problem):
        yield {"touched_only": True}
    if machine.keeps_tiles and (goal == "cycles" or _moves_again(problem, plan, machine)):
        yield from ({"resident": tensor} for tensor in ("IN", "W"))


def _may_keep_rows(
    problem: ConvProblem, plan: LoopPlan, machine: LoopMachine, goal: Goal
) -> bool:
    """Rows of the IFM lie under windows of several OFM rows, and ``plan`` may bring some of them
    twice."""
    reach = (problem.kernel[0] - 1) * problem.dilation[0] + 1
    if problem.rows == 1 or reach <= problem.stride[0]:
        return False
    return goal == "cycles" or _moves_again(problem, plan, machine)


def _moves_again(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> bool:
    """``plan`` moves more than every value once."""
    m, n, r, c = (extent(problem, loop) for loop in LOOPS)
    at_once = LoopPlan(m, n, r, c, tile_groups=problem.groups)
    once, moved = (tile_traffic(problem, one, machine).total for one in (at_once, plan))
    return moved.size_bytes > once.size_bytes


def _search(
    problem: ConvProblem,
    machine: LoopMachine,
    goal: Goal,
    limits: TileLimits,
    keeps_rows: bool = False,
    touched_only: bool = False,
    resident: Resident = "",
    below: float = np.inf,
) -> LoopProof | None:
    """The best plan of those that keep rows, of those that take only what windows touch, of those
    with these resident tiles, or of the others, that is better than ``below``."""
    if goal == "cycles":
        transfer, engine, buffers = machine.transfer, machine.engine, machine.most_buffers
    else:
        transfer, engine, buffers = (
            TransferCost(_FREE_START, 0.0, 1.0), EngineCost(0.0, 0.0, 0.0), 1,
        )  # fmt: skip
    source = touched(problem) if touched_only else problem
    tables = _tables(source, machine, limits, keeps_rows)
    chosen: Any = np.zeros(7, np.int64)
    layer = _layer(source, machine, transfer, engine, touched_only, resident)
    groups = np.array(list(tile_sizes(problem.groups)), np.int64)
    orders = _KEEPING if keeps_rows else ORDERS
    numbers = np.array([[LOOPS.index(loop) for loop in order] for order in orders], np.int64)
    if goal == "cycles" and can_be_walked(problem, machine):
        walked = walked_of(source, machine, keeps_rows, touched_only, resident)
        best, seen, timed = search_clocked(
            layer, walked, tables.sizes, tables.lengths, tables.every, tables.every_lengths,
            groups, numbers, buffers, below, chosen,
        )  # fmt: skip
        m, n, r, c = map(int, chosen[:4])
    else:
        best, seen, timed = search.search(
            layer, tables.sizes, tables.lengths, groups, numbers, buffers, below, chosen
        )
        m, n, r, c = (int(tables.sizes[at, int(chosen[at]), search.SIZE]) for at in range(4))
    if best == below:
        return None
    plan = LoopPlan(
        m,
        n,
        r,
        c,
        order=orders[int(chosen[5])],
        tile_groups=int(chosen[4]),
        buffers=2 if int(chosen[6]) == 2 else 1,
        keeps_rows=keeps_rows,
        touched_only=touched_only,
        taps_at_once=machine.best_taps(n, prod(problem.kernel)),
        resident=resident,
    )
    return LoopProof(plan, float(best), int(seen), int(timed))


@dataclass(frozen=True, eq=False)
class _Tables:
    """`loop_table` of M, N, R, C, padded to one length, and how long each is: of sizes that none
    dominates, and of every size."""

    sizes: NDArray[np.int64]
    lengths: NDArray[np.int64]
    every: NDArray[np.int64]
    every_lengths: NDArray[np.int64]


@lru_cache(maxsize=4)
def _tables(
    source: ConvProblem, machine: LoopMachine, limits: TileLimits, keeps_rows: bool
) -> _Tables:
    """Searches for plain and for resident tiles read the same."""
    both = [loop_table(source, machine, loop, limits, keeps_rows) for loop in LOOPS]
    (sizes, lengths), (every, every_lengths) = map(_padded, zip(*both, strict=True))
    return _Tables(sizes, lengths, every, every_lengths)


def _padded(tables: Sequence[Table]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.array([len(table) for table in tables], np.int64)
    padded = np.zeros((4, int(lengths.max()), search.KEPT + 1), np.int64)
    for at, table in enumerate(tables):
        padded[at, : len(table)] = table
    return padded, lengths


@dataclass(frozen=True)
class ExactLoops:
    """`exact` and `exact-traffic` of single layers (`exact-dma` and `exact-layers` are `exact`
    without chains)."""

    limits: TileLimits = NO_LIMITS
    name: str = "exact"
    goal: Goal = "cycles"
    splits_memory: bool = False

    @property
    def measure(self) -> Measure:
        return self.goal

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible:
        proof = prove(problem, machine, self.goal, self.limits)
        if isinstance(proof, Infeasible):
            return proof
        prediction = predicted(problem, proof.plan, machine)
        return replace(proof.plan, prediction=prediction, planner=self.name)
