"""The plan of least predicted time over all that can be emitted, with its proof.

The space: any cut of the rows into row_slices and of the filters (or groups) into filter_slices
whose product is at most the number of TLEs; both modes; IS, OS and WS; every tile_m, tile_n,
tile_r and tile_c that fits the scratchpads. TSO's own space (three cuts, the largest tile_m) is a
part of it. Time is `cost.predict`: ragged edges, clipping and uneven shares counted exactly.

The search (`exact_kernel.search`) is branch and bound over (cut, mode, schedule, tile_r, tile_c),
from the time of TSO's plan down. What it leaves out by dominance is listed there. Cuts with empty
slices are left out too: s slices of ceil(total / s) of which only t hold anything are the same
slices as t slices are.

Ties: more TLEs first, then fewer row slices, multicast before grouped, then small tile_r, small
tile_c, WS before OS, large tile_n, large tile_m. Times that are equal on paper may differ by
rounding; the plan's time is the least up to a relative 1e-9 and never above TSO's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tvm_npu.codegen.plan import exact_kernel as kernel
from tvm_npu.codegen.plan import exact_tables as tables
from tvm_npu.codegen.plan.cost import one_group, predict
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible, Schedule, Split
from tvm_npu.codegen.plan.tso import TsoPlanner
from tvm_npu.sim.machine import Machine

Mode = Literal["multicast", "grouped"]
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Proof:
    """A plan and why none is faster.

    ``bound_cycles`` is a lower bound on every plan of the space: the least of the plan's own time
    and of the bounds of all cells that were not opened, so it equals the plan's time.
    ``candidates`` plans are in the space, in ``cells`` of one cut, mode, schedule, tile_r and
    tile_c (cells that dominance empties are not counted); ``cut`` of the cells fell to their bound
    and ``evaluated`` plans were timed.
    """

    plan: ConvPlan
    bound_cycles: float
    candidates: int
    cells: int
    cut: int
    evaluated: int


@dataclass(frozen=True)
class ExactPlanner:
    """Proven least predicted time over every cut, mode, schedule and tile."""

    limits: TileLimits = NO_LIMITS
    name: str = "exact"

    def plan(self, problem: ConvProblem, machine: Machine) -> ConvPlan | Infeasible:
        proof = plan_with_proof(problem, machine, self.limits)
        return proof.plan if isinstance(proof, Proof) else proof


def plan_with_proof(
    problem: ConvProblem, machine: Machine, limits: TileLimits = NO_LIMITS, name: str = "exact"
) -> Proof | Infeasible:
    """The fastest plan with the numbers of its search. Infeasible exactly when TSO finds nothing:
    a tile of one filter, channel and place fits, or none does, under any cut and schedule, and
    biases fit best where the filters are spread over all TLEs."""
    first = TsoPlanner(limits=limits).plan(problem, machine)
    if isinstance(first, Infeasible):
        return first
    assert first.prediction is not None
    found: ConvPlan | None = None
    best = first.prediction.cycles * (1 + kernel.SLACK)  # so that a tie is found as well
    bound = float("inf")
    totals = [0, 0, 0, 0]
    room, speeds = _room(problem, machine, limits), _speeds(problem, machine)
    for mode, row_slices, filter_slices in cuts(problem, machine):
        task = _task(problem, machine, mode, row_slices, filter_slices)
        best, least, chosen, counts = kernel.search(
            task, room, speeds, tables.tables(task, speeds), best
        )
        bound = min(bound, least)
        totals = [total + int(count) for total, count in zip(totals, counts, strict=True)]
        schedule, tile_m, tile_n, tile_r, tile_c = (int(value) for value in chosen)
        if not tile_m:
            continue
        words: Schedule = "WS"
        if schedule == kernel.OS:
            words = "IS" if tile_m == _longest(task) else "OS"
        found = ConvPlan(
            mode, _split(row_slices, filter_slices), row_slices, filter_slices, words,
            tile_m * task.item_filters, tile_n, tile_r, tile_c,
        )  # fmt: skip
    plan = first
    if found is not None and best <= first.prediction.cycles:
        plan = replace(found, prediction=predict(problem, found, machine))
    plan = replace(plan, planner=name)
    assert plan.prediction is not None
    return Proof(plan, min(bound, plan.prediction.cycles), *totals)


def cuts(problem: ConvProblem, machine: Machine) -> Iterator[tuple[Mode, int, int]]:
    """(mode, row slices, filter slices) without empty slices, in the order of the search."""
    tles = machine.cores.tles
    modes: tuple[tuple[Mode, int], ...] = (("multicast", problem.filters // problem.groups),)
    if problem.groups > 1:
        modes = (*modes, ("grouped", problem.groups))
    pairs = [(r, f) for r in range(1, tles + 1) for f in range(1, tles // r + 1)]
    for rows, filters in sorted(pairs, key=lambda pair: (-pair[0] * pair[1], pair[0])):
        for mode, items in modes:
            if _used(problem.rows, rows) == rows and _used(items, filters) == filters:
                yield mode, rows, filters


def _used(total: int, slices: int) -> int:
    """How many of ``slices`` slices hold anything."""
    return -(-total // -(-total // slices))


def _split(row_slices: int, filter_slices: int) -> Split:
    if row_slices == 1:
        return "KS"
    return "OFM" if filter_slices == 1 else "KS&OFM"


def _longest(task: tables.Task) -> int:
    """Items of the TLT that has most."""
    slice_items = -(-task.items // task.item_slices)
    return -(-slice_items // task.tlts)


def _task(
    problem: ConvProblem, machine: Machine, mode: Mode, row_slices: int, filter_slices: int
) -> tables.Task:
    is_grouped = mode == "grouped"
    alone = one_group(problem)
    return tables.Task(
        grouped=int(is_grouped),
        repeats=1 if is_grouped else problem.groups,
        items=problem.groups if is_grouped else alone.filters,
        item_filters=alone.filters if is_grouped else 1,
        channels=alone.channels,
        rows=problem.rows,
        columns=problem.columns,
        in_rows=problem.in_rows,
        in_columns=problem.in_columns,
        kernel=problem.kernel[0] * problem.kernel[1],
        stride_rows=problem.stride[0],
        stride_columns=problem.stride[1],
        span_rows=problem.in_tile_rows(1),
        span_columns=problem.in_tile_columns(1),
        padding_rows=problem.padding[0],
        padding_columns=problem.padding[1],
        element_bytes=problem.element_bytes,
        residual=int(problem.has_residual),
        dense=int(problem.is_dense),
        row_slices=row_slices,
        item_slices=filter_slices,
        tlts=machine.cores.tlts_per_tle,
    )


def _room(problem: ConvProblem, machine: Machine, limits: TileLimits) -> tables.Room:
    memories = machine.memories
    mb2 = memories.mb2_bytes
    if problem.has_residual:  # the residual tile goes where IN was
        mb2 = min(mb2, memories.mb0_bytes)
    return tables.Room(
        memories.mb0_bytes,
        memories.mb1_bytes,
        mb2,
        memories.bias_bytes,
        limits.max_tile_m or _UNLIMITED,
        limits.max_tile_n or _UNLIMITED,
        limits.max_tile_r or _UNLIMITED,
        limits.max_tile_c or _UNLIMITED,
    )


def _speeds(problem: ConvProblem, machine: Machine) -> tables.Speeds:
    return tables.Speeds(
        transfer=machine.dme.setup_cycles,
        burst=machine.dme.burst_cycles,
        linear_burst=machine.dme.linear_cycles,
        bytes_per_cycle=machine.dme.bytes_per_cycle,
        dram_burst=machine.dram.cas_cycles,
        dram_bytes_per_cycle=machine.dram.bytes_per_cycle,
        mac_efficiency=machine.mac.efficiency,
        mac_step=machine.mac.setup_cycles,
        burst_bytes=machine.dram.burst_bytes,
        macs_per_cycle=machine.macs_per_cycle(problem.element_bytes),
    )
