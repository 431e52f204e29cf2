"""The plan of least predicted time over all that a machine can do, with its proof.

The space: any spread of the rows, the columns and the filters (or groups) over at most all TLEs,
any grid of the TLTs, both modes, IS, OS, WS and OS that keeps IN, every stream that can go over the
ring, one buffer or two, and every tile_m, tile_n, tile_r and tile_c that fits. Time is
`cost.predict`: ragged edges, clipping and uneven shares counted exactly.

The search (`exact_search`) is branch and bound over spreads, classes of tiles and tiles, from the
time of TSO's plan down; what it leaves out by dominance is listed there. Left out here:
  weights "filters": a W tile that is one run takes no more bursts than its filters one by one,
    as the sum of ceil(x / b) is at least ceil(sum of x / b)
  linear_maps False: likewise for the planes of a tile, where a burst of a 1-D transfer costs no
    more than one of a 3-D transfer; else it is searched, too
  IS: costs what OS does with all filters of a TLT in a tile
  OS in the grouped mode: WS loads the same W tiles once
  spreads with empty slices: see `exact_space`
Where "filters" and boxes take no longer, the plan says so.

Ties: the first plan found. Classes of tiles are searched from the least bound up, those of equal
bounds in the order of `exact_space`; in a class small tile_r come first, then small tile_c, large
tile_n, large tile_m. The plan's time is the least up to a relative 1e-9, and never above TSO's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from tvm_npu.codegen.nmp.plan import exact_axes as axes
from tvm_npu.codegen.nmp.plan import exact_bounds as bounds
from tvm_npu.codegen.nmp.plan import exact_cost as cost
from tvm_npu.codegen.nmp.plan import exact_search as search
from tvm_npu.codegen.nmp.plan import exact_tables as tables
from tvm_npu.codegen.nmp.plan.cascade import plan_cascade
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule, Split
from tvm_npu.codegen.nmp.plan.cost import one_group, predict, step_cycles
from tvm_npu.codegen.nmp.plan.exact_space import Facts, Space, space
from tvm_npu.codegen.nmp.plan.traffic import FREE_RIVALS, is_flat_in, is_flat_out
from tvm_npu.codegen.nmp.plan.tso import TsoPlanner
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

Mode = Literal["multicast", "grouped"]
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Proof:
    """A plan and why none is faster.

    ``bound_cycles`` is a lower bound on every plan of the space: the least of the plan's own time
    and of the bounds of all that was not opened, so it equals the plan's time. ``classes`` of
    tiles were bounded, ``opened`` of them searched, and ``evaluated`` plans timed.
    """

    plan: ConvPlan
    bound_cycles: float
    classes: int
    opened: int
    evaluated: int


@dataclass(frozen=True)
class ExactPlanner:
    """Proven least predicted time over every spread, mode, schedule and tile of a convolution; for
    one with a window behind it, what `plan_cascade` finds."""

    limits: TileLimits = NO_LIMITS
    name: str = "exact"
    uses_ring: bool = True

    @property
    def plans_windows(self) -> bool:
        """A window takes its input over the ring of its TLE."""
        return self.uses_ring

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        if problem.window is not None:
            return plan_cascade(problem, machine, self.limits, self.name, self.uses_ring)
        proof = plan_with_proof(problem, machine, self.limits, self.name, self.uses_ring)
        return proof.plan if isinstance(proof, Proof) else proof


def plan_with_proof(
    problem: ConvProblem,
    machine: NmpMachine,
    limits: TileLimits = NO_LIMITS,
    name: str = "exact",
    uses_ring: bool = True,
) -> Proof | Infeasible:
    """The fastest plan with the numbers of its search. Infeasible exactly when TSO finds nothing:
    a tile of one filter, channel and place fits, or none does, under any spread and schedule, and
    biases fit best where the filters are spread over all TLEs."""
    first = TsoPlanner(limits=limits).plan(problem, machine)
    if isinstance(first, Infeasible):
        return first
    assert first.prediction is not None
    plan = first
    best = first.prediction.cycles * (1 + bounds.SLACK)  # so that a tie is found as well
    bound = first.prediction.cycles
    totals = [0, 0, 0]
    room, speeds = _room(machine, limits), _speeds(machine)
    cores = machine.cores
    facts = Facts(
        cores.tles, cores.tlts_per_tle, uses_ring and machine.ring is not None,
        machine.memories.ports,
    )  # fmt: skip
    modes: tuple[Mode, ...] = ("multicast", "grouped") if problem.groups > 1 else ("multicast",)
    found: ConvPlan | None = None
    layouts = (True, False) if speeds.linear_burst > speeds.burst else (True,)
    for mode, linear in product(modes, layouts):
        spreads = space(facts, mode == "grouped")
        task = _task(problem, machine, mode, linear)
        layer = (task, room, speeds, *_tables(task, spreads, facts), spreads.families)
        queue, least_times, classes, least = bounds.bound_classes(*(*layer, best))
        order = np.argsort(least_times, kind="stable")
        bound = min(bound, least)
        best, least, chosen, counts = search.open_classes(
            *(*layer, queue[order], least_times[order], best)
        )
        bound = min(bound, least)
        counts[search.CLASSES] = classes
        totals = [total + int(count) for total, count in zip(totals, counts, strict=True)]
        if chosen[search.TILE_M]:
            found = _plan(task, mode, linear, spreads, chosen)
    if found is not None:
        found = plainest(problem, found, machine)
        assert found.prediction is not None
        if found.prediction.cycles <= first.prediction.cycles:
            plan = found
    plan = replace(plan, planner=name)
    assert plan.prediction is not None
    return Proof(plan, min(bound, plan.prediction.cycles), *totals)


def plainest(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> ConvPlan:
    """``plan`` with its prediction; without a weight layout or linear maps that do not help."""
    best = replace(plan, prediction=predict(problem, plan, machine))
    for plainer in ({"weights": "filters"}, {"linear_maps": False}):
        other = replace(best, **plainer)  # type: ignore[arg-type]
        other = replace(other, prediction=predict(problem, other, machine))
        assert best.prediction is not None and other.prediction is not None
        if other.prediction.cycles <= best.prediction.cycles:
            best = other
    return best


def _tables(task: axes.Task, spreads: Space, facts: Facts) -> tuple[Any, ...]:
    wants_kinds = int(facts.ports > 1 and not task.grouped)
    return (
        axes.axis_tables(task, 1, spreads.rows, wants_kinds),
        axes.axis_tables(task, 0, spreads.columns, wants_kinds),
        tables.item_tables(task, spreads.items),
        tables.channel_tables(task, spreads.channels),
    )


def _plan(task: axes.Task, mode: Mode, linear: bool, spreads: Space, chosen: Any) -> ConvPlan:
    """What the search has chosen."""
    family = [int(value) for value in spreads.families[chosen[search.FAMILY]]]
    row_slices, column_slices, filter_slices = family[4:7]
    runs, flow, ring_in, ring_weights, buffers, row_parts, column_parts = family[8:]
    tile_m, tile_n, tile_r, tile_c = (int(chosen[index]) for index in range(1, 5))
    schedule: Schedule = "WS"
    if flow != cost.WS:
        slice_items = -(-task.items // filter_slices)
        longest = -(-slice_items // runs)
        schedule = "IS" if flow == cost.OS and tile_m == longest else "OS"
    return ConvPlan(
        mode,
        _split(row_slices * column_slices, filter_slices),
        row_slices,
        filter_slices,
        schedule,
        tile_m * task.item_filters,
        tile_n,
        tile_r,
        tile_c,
        column_slices=column_slices,
        tlt_rows=row_parts,
        tlt_columns=column_parts,
        keeps_in=flow == cost.KEEPS_IN,
        ring_in=bool(ring_in),
        ring_weights=bool(ring_weights),
        weights="tiles" if mode == "multicast" else "filters",
        linear_maps=linear,
        buffers=2 if buffers == 2 else 1,
    )


def _split(spatial_slices: int, filter_slices: int) -> Split:
    if spatial_slices == 1:
        return "KS"
    return "OFM" if filter_slices == 1 else "KS&OFM"


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
    """The DRAM (the ring) cannot be what is slowest where the engine of one TLE takes at least as
    long for a byte and for any burst as the DRAM does for one of every TLE."""
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
        mac_end=float(machine.mac.setup_cycles),
        free_rivals=FREE_RIVALS,
        shared=int(
            tles * dram.cas_cycles > min(dme.burst_cycles, dme.linear_cycles)
            or tles * dram_byte > byte
        ),
        ringed=int(tles * ring_byte > byte),
    )
