"""A layer on a machine as the numbers that the search reads, and what it chose as a plan.

The space of plans falls into parts that are searched one after the other: a mode, with maps in DRAM
read as one run where they can be, or never.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from tvm_npu.codegen.nmp.plan.by_channels import may_load_by_channels
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule, split_of
from tvm_npu.codegen.nmp.plan.cost import one_group, predict, step_cycles
from tvm_npu.codegen.nmp.plan.exact import axes, bounds, cost, search, tables
from tvm_npu.codegen.nmp.plan.exact.scratch import new_scratch
from tvm_npu.codegen.nmp.plan.exact.space import Facts, Space, space
from tvm_npu.codegen.nmp.plan.exact.waiting import waiting_in_order, with_room
from tvm_npu.codegen.nmp.plan.traffic import is_flat_in, is_flat_out
from tvm_npu.codegen.plan.kept import kept_or_made
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction, share, slice_of
from tvm_npu.sim.nmp.machine import NmpMachine

Mode = Literal["multicast", "grouped"]
_UNLIMITED = 1 << 40
_ROOM = 4096
"""For regions that wait, at first."""


class Found(NamedTuple):
    """``cycles`` of the fastest plan below a limit, or the limit; the least ``bound`` of what was
    not opened; what `search` has ``chosen`` (for `Part.plan`, unless the tile is 0) and counted."""

    cycles: float
    bound: float
    chosen: Any
    counts: Any


@dataclass(frozen=True)
class Part:
    """One part of the space of a layer's plans; ``numbers`` are what compiled code knows of it."""

    mode: Mode
    linear: bool
    task: axes.Task
    spreads: Space
    numbers: tuple[Any, ...]

    def bounds(self) -> Any:
        """Of each family a lower bound: `bounds.bound_families`."""
        found = np.empty(len(self.spreads.families))
        asked = (*self.numbers, np.zeros(cost.PLACE_WIDTH), np.zeros(cost.BIASES), found)
        bounds.bound_families(*asked)
        return found

    def fastest(self, numbers: Any, least_times: Any, best: float) -> Found:
        """`search.best_first` in the families with these numbers and bounds."""
        families, rows, columns = self.spreads.families[numbers], self.numbers[3], self.numbers[4]
        row_regions, column_regions = rows.whole[families[:, 0]], columns.whole[families[:, 1]]
        is_class = (row_regions == 0) & (column_regions == 0)
        keys = np.column_stack((is_class, numbers, row_regions, column_regions))
        waiting = waiting_in_order(least_times, keys, _ROOM)
        scratch = new_scratch(int((families[:, 4] * families[:, 5]).max(initial=1)))
        chosen, counts = np.zeros(6, np.int64), np.zeros(3, np.int64)
        counts[search.CLASSES] = np.count_nonzero(is_class)
        bound = math.inf
        while True:
            state = (waiting, best, scratch, chosen, counts)
            best, least = search.best_first(*(*self.numbers, *state))
            bound = min(bound, least)
            if not waiting.count[0]:
                return Found(best, bound, chosen, counts)
            waiting = with_room(waiting, len(waiting.bounds))

    def plan(self, chosen: Any) -> ConvPlan:
        """What the search has chosen."""
        family = [int(value) for value in self.spreads.families[chosen[search.FAMILY]]]
        row_slices, column_slices, filter_slices = family[4:7]
        runs, flow, ring_in, ring_weights, buffers, row_parts, column_parts = family[8:]
        tile_m, tile_n, tile_r, tile_c = (int(chosen[index]) for index in range(1, 5))
        schedule: Schedule = "WS"
        if flow != cost.WS:
            slice_items = -(-self.task.items // filter_slices)
            longest = -(-slice_items // runs)
            schedule = "IS" if flow == cost.OS and tile_m == longest else "OS"
        return ConvPlan(
            self.mode,
            split_of(row_slices * column_slices, filter_slices),
            row_slices,
            filter_slices,
            schedule,
            tile_m * self.task.item_filters,
            tile_n,
            tile_r,
            tile_c,
            column_slices=column_slices,
            tlt_rows=row_parts,
            tlt_columns=column_parts,
            keeps_in=flow == cost.KEEPS_IN,
            ring_in=bool(ring_in),
            ring_weights=bool(ring_weights),
            weights="tiles" if self.mode == "multicast" else "filters",
            linear_maps=self.linear,
            buffers=2 if buffers == 2 else 1,
        )


def parts_of(
    problem: ConvProblem, machine: NmpMachine, limits: TileLimits, uses_ring: bool
) -> Iterator[Part]:
    """All of the space, in the order in which ties are broken."""
    room, speeds = _room(machine, limits), _speeds(machine)
    cores = machine.cores
    facts = Facts(
        cores.tles, cores.tlts_per_tle, uses_ring and machine.ring is not None,
        machine.memories.ports,
    )  # fmt: skip
    modes: tuple[Mode, ...] = ("multicast", "grouped") if problem.groups > 1 else ("multicast",)
    layouts = (True, False) if speeds.linear_burst > speeds.burst else (True,)
    for mode, linear in product(modes, layouts):
        spreads = space(facts, mode == "grouped")
        task = _task(problem, machine, mode, linear)
        numbers = (task, room, speeds, *_tables(task, spreads, facts), spreads.families)
        yield Part(mode, linear, task, spreads, numbers)


def plainest(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> ConvPlan:
    """``plan`` with its prediction; without a weight layout or linear maps that do not help, and
    with products in front of loads, and IN tiles by channels, where that does (which the search
    does not know)."""
    depth = problem.channels // problem.groups
    best = replace(plan, prediction=predict(problem, plan, machine))
    for plainer, matters in (
        ({"weights": "filters"}, plan.schedule != "WS" and plan.tile_n < depth),
        ({"linear_maps": False}, _has_wide_tiles(problem, plan)),
    ):
        other = replace(best, **plainer)  # type: ignore[arg-type]
        if matters:
            other = replace(other, prediction=predict(problem, other, machine))
        assert best.prediction is not None and other.prediction is not None
        if other.prediction.cycles <= best.prediction.cycles:
            best = other
    best = with_macs_first(best, lambda one: predict(problem, one, machine))
    if may_load_by_channels(problem, best):
        other = replace(best, in_by_channels=True)
        other = replace(other, prediction=predict(problem, other, machine))
        assert best.prediction is not None and other.prediction is not None
        if other.prediction.cycles < best.prediction.cycles:
            best = other
    return best


def with_macs_first(plan: ConvPlan, predicted: Callable[[ConvPlan], Prediction]) -> ConvPlan:
    """``plan``, which has its prediction, or, where that takes less time, with `macs_first`."""
    if plan.buffers == 1:
        return plan
    other = replace(plan, macs_first=True)
    other = replace(other, prediction=predicted(other))
    assert plan.prediction is not None and other.prediction is not None
    return other if other.prediction.cycles < plan.prediction.cycles else plan


def _has_wide_tiles(problem: ConvProblem, plan: ConvPlan) -> bool:
    """Whether tiles may be as wide as their map, which can move as a 1-D transfer then."""
    longest = slice_of(problem.columns, plan.column_slices, 0)[1]
    columns = min(plan.tile_c, share(longest, plan.tlt_columns, 0)[1])
    return columns == problem.columns or problem.in_tile_columns(columns) >= problem.in_columns


def _tables(task: axes.Task, spreads: Space, facts: Facts) -> tuple[Any, ...]:
    """They hold for every machine with these cores and bursts."""
    wants_kinds = int(facts.ports > 1 and not task.grouped)
    common = facts.tles, facts.tlts, facts.ring, task.burst_bytes

    def found(fields: tuple[str, ...], spread: Any, make: Any, *more: int) -> Any:
        read = tuple(getattr(task, name) for name in fields)
        key = make, read, more, spread.tobytes()
        return kept_or_made(common, key, partial(make, task, *more[:1], spread, *more[1:]))

    return (
        found(axes.READ, spreads.rows, axes.axis_tables, 1, wants_kinds),
        found(axes.READ, spreads.columns, axes.axis_tables, 0, wants_kinds),
        found(tables.READ_BY_ITEMS, spreads.items, tables.item_tables),
        found(tables.READ_BY_CHANNELS, spreads.channels, tables.channel_tables),
    )


def _task(problem: ConvProblem, machine: NmpMachine, mode: Mode, linear: bool) -> axes.Task:
    is_grouped = mode == "grouped"
    alone = one_group(problem)
    return axes.Task(
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
        linear_in=int(is_flat_in(problem) or (linear and not any(problem.padding))),
        linear_out=int(is_flat_out(problem) or linear),
        element_bytes=problem.element_bytes,
        residual=int(problem.has_residual),
        dense=int(problem.is_dense),
        burst_bytes=machine.dram.burst_bytes,
        macs_per_cycle=machine.macs_per_cycle(problem.element_bytes),
    )


def _room(machine: NmpMachine, limits: TileLimits) -> bounds.Room:
    memories = machine.memories
    return bounds.Room(
        memories.mb0_bytes,
        memories.mb1_bytes,
        memories.mb2_bytes,
        memories.bias_bytes,
        limits.max_tile_m or _UNLIMITED,
        limits.max_tile_n or _UNLIMITED,
        limits.max_tile_r or _UNLIMITED,
        limits.max_tile_c or _UNLIMITED,
    )


def _speeds(machine: NmpMachine) -> cost.Speeds:
    """The ring cannot be what is slowest where the engine of one TLE takes at least as long for a
    byte as the ring does for one of every TLE."""
    dme, dram, ring, tles = machine.dme, machine.dram, machine.ring, machine.cores.tles
    byte, dram_byte = 1.0 / dme.bytes_per_cycle, 1.0 / dram.bytes_per_cycle
    ring_byte = 0.0 if ring is None else 1.0 / ring.bytes_per_cycle
    return cost.Speeds(
        transfer=float(dme.setup_cycles),
        burst=float(dme.burst_cycles),
        linear_burst=float(dme.linear_cycles),
        byte=byte,
        hop=0.0 if ring is None else ring.hop_cycles * (tles - 1),
        dram_burst=float(dram.cas_cycles),
        dram_byte=dram_byte,
        ring_byte=ring_byte,
        mac=1.0 / machine.mac.efficiency,
        mac_step=float(machine.mac.setup_cycles + step_cycles(machine)),
        mac_ahead=float(machine.mac.setup_cycles + step_cycles(machine, 2)),
        mac_ahead_ws=float(machine.mac.setup_cycles + step_cycles(machine, 2, True)),
        mac_end=float(machine.mac.setup_cycles),
        ringed=int(tles * ring_byte > byte),
    )
