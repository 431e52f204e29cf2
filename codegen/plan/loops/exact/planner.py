"""The planner of loops: the tables of a layer, its plan with a proof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from math import prod
from typing import Any, Literal

import numpy as np

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.exact import search
from tvm_npu.codegen.plan.loops.exact.tables import loop_table
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
from tvm_npu.codegen.plan.loops.traffic import tile_traffic
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, tile_sizes

ORDERS: tuple[tuple[Loop, ...], ...] = tuple(permutations(LOOPS))
_KEEPING = tuple(
    order for order in ORDERS if order.index("R") > max(order.index("N"), order.index("C"))
)
"""Orders in which IN tiles follow each other down the rows."""
_FREE_START = 1e-7
"""Cost of a transfer in bytes under "bytes": breaks ties, as no layer has 10^7 transfers more."""

Goal = Literal["cycles", "bytes"]


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
        int(gathers),
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
    first, then one buffer before two, then `ORDERS`. Plans that keep rows, or take only what
    windows touch, come after all others: the best of them is taken where it is better."""
    found = _search(problem, machine, goal, limits)
    if found is None:
        return no_room(problem, machine)
    other: LoopProof | None = None
    if machine.moves_rows and _may_keep_rows(problem, found.plan, machine, goal):
        other = _search(problem, machine, goal, limits, keeps_rows=True, below=found.value)
    elif machine.gathers and can_be_touched_only(problem):
        other = _search(problem, machine, goal, limits, touched_only=True, below=found.value)
    if other is None:
        return found
    tilings, timed = found.tilings + other.tilings, found.timed + other.timed
    return replace(other, tilings=tilings, timed=timed)


def _may_keep_rows(
    problem: ConvProblem, plan: LoopPlan, machine: LoopMachine, goal: Goal
) -> bool:
    """Rows of the IFM lie under windows of several OFM rows, and ``plan`` may bring some of them
    twice."""
    reach = (problem.kernel[0] - 1) * problem.dilation[0] + 1
    if problem.rows == 1 or reach <= problem.stride[0]:
        return False
    return goal == "cycles" or _brings_halos(problem, plan, machine)


def _brings_halos(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> bool:
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
    below: float = np.inf,
) -> LoopProof | None:
    """The best plan of those that keep rows, of those that take only what windows touch, or of the
    others, that is better than ``below``."""
    if goal == "cycles":
        transfer, engine, buffers = machine.transfer, machine.engine, machine.most_buffers
    else:
        transfer, engine, buffers = (
            TransferCost(_FREE_START, 0.0, 1.0), EngineCost(0.0, 0.0, 0.0), 1,
        )  # fmt: skip
    source = touched(problem) if touched_only else problem
    tables = [loop_table(source, machine, loop, limits, keeps_rows) for loop in LOOPS]
    lengths = np.array([len(table) for table in tables], np.int64)
    padded = np.zeros((4, int(lengths.max()), search.KEPT + 1), np.int64)
    for at, table in enumerate(tables):
        padded[at, : len(table)] = table
    chosen: Any = np.zeros(7, np.int64)
    layer = _layer(source, machine, transfer, engine, touched_only)
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
        touched_only=touched_only,
        taps_at_once=machine.best_taps(n, prod(problem.kernel)),
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
