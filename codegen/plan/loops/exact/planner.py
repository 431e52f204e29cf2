"""The planner of loops: the tables of a layer, its plan with a proof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.axes import in_axis, kept_rows
from tvm_npu.codegen.plan.loops.cost import iterations, predicted
from tvm_npu.codegen.plan.loops.exact import search
from tvm_npu.codegen.plan.loops.machine import EngineCost, LoopMachine, SharedMemory, TransferCost
from tvm_npu.codegen.plan.loops.plan import (
    LOOPS,
    Loop,
    LoopPlan,
    can_be_touched_only,
    extent,
    touched,
)
from tvm_npu.codegen.plan.loops.questions import Measure
from tvm_npu.codegen.plan.loops.room import biases_stay, no_room
from tvm_npu.codegen.plan.loops.space import limited
from tvm_npu.codegen.plan.loops.traffic import tile_traffic
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, tile_sizes

Table = NDArray[np.int64]
ORDERS: tuple[tuple[Loop, ...], ...] = tuple(permutations(LOOPS))
_KEEPING = tuple(
    order for order in ORDERS if order.index("R") > max(order.index("N"), order.index("C"))
)
"""Orders in which IN tiles follow each other down the rows."""
_FREE_START = 1e-7
"""Cost of a transfer in bytes under "bytes": breaks ties, as no layer has 10^7 transfers more."""
_HALF_A_BYTE = 0.5
"""More than all transfers together cost under "bytes"."""

Goal = Literal["cycles", "bytes"]


@dataclass(frozen=True)
class LoopProof:
    """A plan, its value of the goal, and what was looked at: ``tilings`` that fit, ``timed`` plans
    among their orders and buffers."""

    plan: LoopPlan
    value: float
    tilings: int
    timed: int


def loop_table(
    problem: ConvProblem,
    machine: LoopMachine,
    loop: Loop,
    limits: TileLimits = NO_LIMITS,
    keeps_rows: bool = False,
) -> Table:
    """All tile sizes along a loop that no other one of as many tiles dominates, largest first:
    size, trips, array passes, and for rows and columns `InAxis` (largest, inside, full, filled).
    With ``keeps_rows`` the rows inside are those that come from outside."""
    total, pes = extent(problem, loop), machine.pes_on(loop)
    most = limited(problem, loop, limits)
    if loop not in ("R", "C"):
        return _plain_table(total, pes, most)
    rows = []
    for size in range(1, most + 1):
        axis = in_axis(problem, loop, size)
        kept = kept_rows(problem, size).kept if keeps_rows and loop == "R" else 0
        inside = axis.inside - kept
        counts = -(-total // size), iterations(total, size, pes)
        rows.append((size, *counts, axis.largest, inside, axis.full, axis.filled))
    return _undominated(rows)


@lru_cache(maxsize=256)
def _plain_table(total: int, pes: int, most: int) -> Table:
    """`loop_table` of filters or channels."""
    return _undominated(
        (size, -(-total // size), iterations(total, size, pes), 0, 0, 0, 0)
        for size in range(1, most + 1)
    )


def _undominated(rows: Iterable[tuple[int, ...]]) -> Table:
    kept: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for row in rows:
        alike = kept.setdefault((row[search.TRIPS], row[search.FILLED]), [])
        if not any(_dominates(other, row) for other in alike):
            alike.append(row)
    table = sorted((row for alike in kept.values() for row in alike), reverse=True)
    return np.array(table, np.int64)


def _dominates(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """``one`` is smaller and loses in nothing."""
    return (
        one[search.PASSES] <= other[search.PASSES]
        and one[search.LARGEST] <= other[search.LARGEST]
        and one[search.INSIDE] <= other[search.INSIDE]
        and one[search.FULL] >= other[search.FULL]
    )


def _layer(
    problem: ConvProblem, machine: LoopMachine, transfer: TransferCost, engine: EngineCost
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
    first, then one buffer before two, then `ORDERS`. By bytes, plans that keep rows, or take only
    what windows touch, come after all others: the best of them is taken where it moves fewer bytes,
    or as many in fewer transfers. (Among them the transfers of a tile count as one.)"""
    found = _search(problem, machine, goal, limits)
    if found is None:
        return no_room(problem, machine)
    if goal == "cycles":
        return found
    other: LoopProof | None = None
    below = found.value + _HALF_A_BYTE
    if machine.moves_rows and _brings_halos(problem, found.plan, machine):
        other = _search(problem, machine, goal, limits, keeps_rows=True, below=below)
    elif machine.gathers and can_be_touched_only(problem):
        other = _search(touched(problem), machine, goal, limits, below=below)
        if other is not None:
            other = replace(other, plan=replace(other.plan, touched_only=True))
    if other is None or not _moves_less(problem, other.plan, found.plan, machine):
        return found
    tilings, timed = found.tilings + other.tilings, found.timed + other.timed
    return replace(other, tilings=tilings, timed=timed)


def _moves_less(
    problem: ConvProblem, one: LoopPlan, other: LoopPlan, machine: LoopMachine
) -> bool:
    moved, than = (tile_traffic(problem, plan, machine).total for plan in (one, other))
    return (moved.size_bytes, moved.transfers) < (than.size_bytes, than.transfers)


def _brings_halos(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> bool:
    """Rows of the IFM lie under windows of several OFM rows, and ``plan`` moves more than every
    value once."""
    reach = (problem.kernel[0] - 1) * problem.dilation[0] + 1
    if problem.rows == 1 or reach <= problem.stride[0]:
        return False
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
    below: float = np.inf,
) -> LoopProof | None:
    """The best plan of those that keep rows, or of the others, that is better than ``below``."""
    if goal == "cycles":
        transfer, engine, buffers = machine.transfer, machine.engine, machine.most_buffers
    else:
        transfer, engine, buffers = (
            TransferCost(_FREE_START, 0.0, 1.0), EngineCost(0.0, 0.0, 0.0), 1,
        )  # fmt: skip
    tables = [loop_table(problem, machine, loop, limits, keeps_rows) for loop in LOOPS]
    lengths = np.array([len(table) for table in tables], np.int64)
    padded = np.zeros((4, int(lengths.max()), 7), np.int64)
    for at, table in enumerate(tables):
        padded[at, : len(table)] = table
    chosen: Any = np.zeros(7, np.int64)
    layer = _layer(problem, machine, transfer, engine)
    groups = np.array(list(tile_sizes(problem.groups)), np.int64)
    orders = _KEEPING if keeps_rows else ORDERS
    numbers = np.array([[LOOPS.index(loop) for loop in order] for order in orders], np.int64)
    best, seen, timed = search.search(
        layer, padded, lengths, groups, numbers, buffers, below, chosen
    )
    if best == below:
        return None
    m, n, r, c = (int(tables[at][int(chosen[at]), search.SIZE]) for at in range(4))
    plan = LoopPlan(
        m,
        n,
        r,
        c,
        order=orders[int(chosen[5])],
        tile_groups=int(chosen[4]),
        buffers=2 if int(chosen[6]) == 2 else 1,
        keeps_rows=keeps_rows,
    )
    return LoopProof(plan, float(best), int(seen), int(timed))


@dataclass(frozen=True)
class ExactLoops:
    """`exact` (`exact-dma` and `exact-layers` are the same: there are no rings and no cascades),
    and `exact-traffic`."""

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
