"""Plans for a convolution with a window behind it.

The space is a part of `exact`'s: rows and filters are spread over TLEs, rows and filters over TLTs,
all schedules, ring and buffers; columns stay whole unless no tile of full width fits (with two
buffers also halved); for every T_R, T_M is the largest that fits, and the least that takes as many
turns, which leaves T_N, the largest that fits beside it, more room. All of it is ranked by a
closed-form estimate, and the best `PREDICTED` by the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product

from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule, split_of
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.kept_rows import (
    guard_elements,
    least_tile_rows,
    may_keep_rows,
    shared_rows,
)
from tvm_npu.codegen.nmp.plan.mac_time import finish_cycles, mac_cycles, window_cycles
from tvm_npu.codegen.nmp.plan.traffic import chip_transfer
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Window, tile_sizes
from tvm_npu.sim.nmp.machine import NmpMachine

PREDICTED = 24
SCHEDULES: tuple[Schedule, ...] = ("WS", "OS")


@dataclass(frozen=True)
class _Spread:
    """Who has how much: slices over TLEs, parts over TLTs, and what one TLT has at most."""

    row_slices: int
    filter_slices: int
    row_parts: int
    filter_parts: int
    rows: int
    filters: int


def plan_cascade(
    problem: ConvProblem, machine: NmpMachine, limits: TileLimits, name: str, uses_ring: bool
) -> ConvPlan | Infeasible:
    """The best plan of the space above; ties go to the earlier candidate."""
    window = problem.window
    if window is None:
        raise ValueError("plan_cascade needs a problem with a window")
    candidates = _candidates(problem, window, machine, limits, uses_ring)
    ranked = (plan for _, plan in sorted(candidates, key=lambda entry: entry[0]))
    sound = (plan for plan in ranked if check_plan(problem, plan, machine) is None)
    predicted = [(predict(problem, plan, machine), plan) for plan in islice(sound, PREDICTED)]
    if predicted:
        prediction, plan = min(predicted, key=lambda entry: entry[0].cycles)
        if plan.macs_first:
            asked_first = replace(plan, macs_first=False)
            other = predict(problem, asked_first, machine)
            if other.cycles <= prediction.cycles:
                prediction, plan = other, asked_first
        return replace(plan, planner=name, prediction=prediction)
    smallest = problem.middle_tile(1, 1)
    return Infeasible(
        "MB2",
        (smallest[0] * smallest[1] + 1) * problem.element_bytes,
        machine.memories.mb2_bytes,
        "no tile of a convolution and of the window behind it fits",
        "run the two layers one after the other",
    )


def _spreads(problem: ConvProblem, window: Window, machine: NmpMachine) -> Iterator[_Spread]:
    tles, tlts = machine.cores.tles, machine.cores.tlts_per_tle
    for row_slices in range(1, tles + 1):
        filter_slices = tles // row_slices
        if row_slices * filter_slices != tles:
            continue
        rows = -(-window.rows // row_slices)
        filters = -(-problem.filters // filter_slices)
        for row_parts in range(1, tlts + 1):
            if tlts % row_parts:
                continue
            parts = tlts // row_parts
            own = -(-rows // row_parts), -(-filters // parts)
            yield _Spread(row_slices, filter_slices, row_parts, parts, *own)


def _candidates(
    problem: ConvProblem, window: Window, machine: NmpMachine, limits: TileLimits, uses_ring: bool
) -> Iterator[tuple[float, ConvPlan]]:
    ring = uses_ring and machine.ring is not None
    for buffers in (1, 2)[: machine.memories.ports]:
        for spread in _spreads(problem, window, machine):
            most_rows = min(spread.rows, limits.max_tile_r or spread.rows)
            for tile_r in reversed(tuple(tile_sizes(most_rows))):
                widest = min(window.columns, limits.max_tile_c or window.columns)
                while widest > 1 and _most_filters(problem, (tile_r, widest), buffers, machine) < 1:
                    widest = -(-widest // 2)
                keeps = _may_keep_rows(problem, spread, tile_r)
                for tile_c, schedule, keeps_rows in product(
                    _widths(widest, buffers), SCHEDULES, keeps
                ):
                    yield from _tiles(
                        problem, machine, limits, spread, (tile_r, tile_c), schedule, buffers,
                        ring, keeps_rows,
                    )  # fmt: skip


def _may_keep_rows(problem: ConvProblem, spread: _Spread, tile_r: int) -> tuple[bool, ...]:
    """Where a TLT has several tiles down its rows, and these share some of the OFM."""
    may = tile_r < spread.rows and may_keep_rows(problem) and tile_r >= least_tile_rows(problem)
    return (False, True) if may else (False,)


def _widths(widest: int, buffers: int) -> tuple[int, ...]:
    """Columns of tiles: with two buffers, that hide what narrow tiles load, also a half."""
    half = -(-widest // 2)
    return (widest, half) if buffers == 2 and half < widest else (widest,)


def _most_filters(
    problem: ConvProblem, place: tuple[int, int], buffers: int, machine: NmpMachine
) -> int:
    """Filters whose OFM and OUT tiles fit MB2 and whose window's box fits MB0."""
    box = problem.middle_tile(*place)
    middle = min(box[0], problem.rows) * min(box[1], problem.columns)
    size = problem.element_bytes
    in_mb2 = machine.memories.mb2_bytes // ((middle + buffers * place[0] * place[1]) * size)
    return min(in_mb2, machine.memories.mb0_bytes // (box[0] * box[1] * size))


def _tiles(
    problem: ConvProblem,
    machine: NmpMachine,
    limits: TileLimits,
    spread: _Spread,
    place: tuple[int, int],
    schedule: Schedule,
    buffers: int,
    ring: bool,
    keeps_rows: bool,
) -> Iterator[tuple[float, ConvPlan]]:
    """With the largest T_M that fits, or the least that takes as many turns, and the largest T_N,
    over all wires."""
    window = problem.window
    assert window is not None
    memories, size = machine.memories, problem.element_bytes
    box = problem.middle_tile(*place)
    middle = min(box[0], problem.rows), min(box[1], problem.columns)
    taps = problem.kernel[0] * problem.kernel[1]
    mb1 = memories.mb1_bytes
    if window.has_weights:
        mb1 -= spread.filters * window.kernel[0] * window.kernel[1] * size
    in_bytes = problem.in_tile_rows(middle[0]) * problem.in_tile_columns(middle[1]) * size
    tile_m = min(_most_filters(problem, place, buffers, machine), spread.filters)
    tile_m = min(tile_m, limits.max_tile_m or tile_m)
    if keeps_rows:
        tile_m = min(tile_m, memories.mb0_bytes // (box[0] * box[1] * size) - 1)
    keeps_weights = schedule == "WS"
    if keeps_weights:
        halves = 1 if tile_m >= spread.filters else buffers
        tile_m = min(tile_m, mb1 // (halves * problem.channels * taps * size))
    if tile_m < 1:
        return
    even = -(-spread.filters // -(-spread.filters // tile_m))
    for filters in dict.fromkeys((tile_m, even)):
        mb0 = memories.mb0_bytes
        if buffers == 2:
            mb0 -= (filters + keeps_rows) * box[0] * box[1] * size
        if keeps_rows:
            mb0 -= guard_elements(problem, *middle) * size
        tile_n = min(mb0 // (buffers * in_bytes), problem.channels)
        if not keeps_weights:
            tile_n = min(tile_n, mb1 // (buffers * filters * taps * size))
        tile_n = min(tile_n, limits.max_tile_n or tile_n)
        if tile_n < 1:
            continue
        for plan in _wired(
            spread, place, schedule, (filters, tile_n), buffers, ring, keeps_rows
        ):
            yield _estimate(problem, machine, plan, spread), plan


def _wired(
    spread: _Spread,
    place: tuple[int, int],
    schedule: Schedule,
    tile: tuple[int, int],
    buffers: int,
    ring: bool,
    keeps_rows: bool,
) -> Iterator[ConvPlan]:
    """Plans with and without the ring buses."""
    for ring_in in (False, True)[: 1 + (ring and spread.filter_slices > 1)]:
        for ring_weights in (False, True)[: 1 + (ring and spread.row_slices > 1)]:
            split = split_of(spread.row_slices, spread.filter_slices)
            yield ConvPlan(
                "multicast", split, spread.row_slices, spread.filter_slices, schedule, *tile,
                *place, tlt_rows=spread.row_parts, ring_in=ring_in,
                ring_weights=ring_weights, weights="tiles", linear_maps=True, buffers=buffers,  # type: ignore[arg-type]
                keeps_rows=keeps_rows, macs_first=buffers == 2,
            )  # fmt: skip


def _estimate(problem: ConvProblem, machine: NmpMachine, plan: ConvPlan, spread: _Spread) -> float:
    """Time of a TLE, roughly: whole tiles, every byte at the rate of its kind of transfer."""
    window, dme, size = problem.window, machine.dme, problem.element_bytes
    assert window is not None
    burst_bytes = machine.dram.burst_bytes
    box = problem.middle_tile(plan.tile_r, plan.tile_c)
    whole = min(box[0], problem.rows)
    middle: tuple[float, int] = whole, min(box[1], problem.columns)
    if plan.keeps_rows:  # on average
        strips = -(-spread.rows // plan.tile_r)
        middle = whole - shared_rows(problem) * (strips - 1) / strips, middle[1]
    in_rows = (middle[0] - 1) * problem.stride[0] + problem.in_tile_rows(1)
    in_columns = problem.in_tile_columns(middle[1])
    places = -(-spread.rows // plan.tile_r) * -(-window.columns // plan.tile_c)
    turns = -(-spread.filters // plan.tile_m)
    steps = -(-problem.channels // plan.tile_n)

    def cycles(segments: float, segment_bytes: int, is_linear: bool) -> float:
        burst = dme.linear_cycles if is_linear else dme.burst_cycles
        bursts = -(-segment_bytes // burst_bytes)
        return segments * (bursts * burst + segment_bytes / dme.bytes_per_cycle)

    wide = in_columns >= problem.in_columns
    in_extent = min(in_rows, problem.in_rows), min(in_columns, problem.in_columns)
    segments: float = problem.channels
    segment = math.ceil(in_extent[0] * in_extent[1] * size)
    if not wide:
        segments, segment = segments * in_extent[0], in_extent[1] * size
    linear = wide and not any(problem.padding)
    share = plan.filter_slices if plan.ring_in else 1
    total = cycles(segments, segment, linear) * spread.row_parts * places * turns / share
    total += dme.setup_cycles * spread.row_parts * places * turns * steps
    filter_bytes = problem.channels * problem.kernel[0] * problem.kernel[1] * size
    loads = spread.filter_parts * turns * (1 if plan.schedule == "WS" else places)
    share = plan.row_slices if plan.ring_weights else 1
    total += cycles(loads, plan.tile_m * filter_bytes, True) / share + loads * dme.setup_cycles
    out = plan.tile_r * plan.tile_c * size
    tlts = spread.row_parts * spread.filter_parts
    total += cycles(plan.tile_m, out, plan.tile_c >= window.columns) * tlts * places * turns
    mac = steps * mac_cycles(problem, plan.tile_m, plan.tile_n, whole, middle[1], machine)
    mac *= middle[0] / whole
    mac += finish_cycles(problem, plan.tile_m, whole, middle[1], machine)
    mac += window_cycles(problem, plan.tile_m, plan.tile_r, plan.tile_c, machine)
    forward = chip_transfer(plan.tile_m * whole * middle[1], size).engine_cycles(machine)
    total += forward * tlts * places * turns
    mac *= places * turns
    return max(total, mac) if plan.buffers == 2 else total + mac
