"""The planner `snowflake`: what the compiler's paper decides for a layer (sections 5, 6, 9.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.snowflake.plan.refused import modes_of, smallest
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Geometry,
    Mode,
    SnowflakePlan,
    Stays,
    geometry,
    together,
)
from tvm_npu.codegen.snowflake.steps.windows import even_sizes
from tvm_npu.sim.snowflake.isa import LANES, VMACS
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

LOOP_SHARE = 0.5
"""Instructions of loops a sum, about."""


def mode_of(shape: ConvShape, machine: SnowflakeMachine) -> Mode:
    """COOP where the planes of a window fill lines and a sum takes long enough for the core to
    issue its instructions, else INDP; depthwise convolutions multiply lane by lane."""
    if shape.is_depthwise:
        return "lane"
    if shape.is_point:
        return "coop"
    if shape.planes % LANES:
        return "indp"
    cus, window = machine.clusters.cus, shape.taps * shape.planes
    traces = shape.rows.kernel * (1 if shape.columns.dilation == 1 else shape.columns.kernel)
    issued = 1 + 2 * traces + 2 * shape.has_residual + LOOP_SHARE
    together = -(-shape.filters // (VMACS * cus)) * max(window / LANES, issued)
    alone = -(-shape.filters // (VMACS * LANES)) * window / cus
    return "coop" if together <= alone else "indp"


def moved_words(found: Geometry) -> int:
    """Words that come from memory, about: maps and kernels, again where they do not stay."""
    shape = found.shape
    maps, kernels = found.map_count, len(found.filter_tiles)
    taps = shape.taps * (1 if found.is_lane else shape.planes)
    weights = shape.filters * taps
    inputs = shape.rows.size * shape.columns.size * shape.planes
    if found.plan.stays == "maps":
        return inputs + weights * (maps if kernels > 1 else 1)
    return weights + inputs * (kernels if maps > 1 and not found.is_lane else 1)


ORDERS: tuple[Stays, ...] = ("kernels", "maps")


def greedy(
    shape: ConvShape,
    machine: SnowflakeMachine,
    limits: TileLimits = NO_LIMITS,
    orders: tuple[Stays, ...] = ORDERS,
) -> SnowflakePlan | None:
    """As many filters as fit a half of the WBufs, as many rows as fit the MBufs; if no row does, as
    many columns. Of the ``orders`` the one that moves less. None where nothing fits."""
    first = mode_of(shape, machine)
    for mode in dict.fromkeys((first, *modes_of(shape))):
        found = list(_of_mode(shape, machine, mode, limits, orders))
        if found:
            return min(found, key=lambda one: moved_words(geometry(shape, one, machine)))
    for mode in modes_of(shape):
        least = smallest(shape, mode, machine)
        least = replace(least, tile_m=min(least.tile_m, limits.max_tile_m or least.tile_m))
        if geometry(shape, least, machine).rooms is not None:
            return least
    return None


def _of_mode(
    shape: ConvShape,
    machine: SnowflakeMachine,
    mode: Mode,
    limits: TileLimits,
    orders: tuple[Stays, ...],
) -> Iterator[SnowflakePlan]:
    for stays in orders:
        plan = _tiles(shape, machine, mode, stays, limits)
        if plan is not None:
            yield plan


def _tiles(
    shape: ConvShape, machine: SnowflakeMachine, mode: Mode, stays: Stays, limits: TileLimits
) -> SnowflakePlan | None:
    most_m = min(shape.filters, limits.max_tile_m or shape.filters)
    most_r = min(shape.rows.out, limits.max_tile_r or shape.rows.out)
    most_c = min(shape.columns.out, limits.max_tile_c or shape.columns.out)
    start = SnowflakePlan(mode, shape.filters, shape.rows.out, most_c, stays)
    single: SnowflakePlan | None = None
    room = machine.mbuf_words * (1 if mode == "coop" else machine.clusters.cus)
    tiles = [(rows, most_c) for rows in even_sizes(shape.rows.out)]
    tiles += [(1, wide) for wide in even_sizes(shape.columns.out)]
    tiles = [(rows, wide) for rows, wide in tiles if rows <= most_r and wide <= most_c]
    for filters in _filters(shape, start, machine, together(mode, machine)):
        plan = replace(start, tile_m=min(filters, most_m))
        for rows, wide in tiles:
            if rows * wide * plan.tile_m > room:  # of results alone
                continue
            one = replace(plan, tile_r=rows, tile_c=wide)
            found = geometry(shape, one, machine)
            if found.doubles:
                return one
            if single is None and found.rooms is not None:
                single = one
    return single


def _filters(
    shape: ConvShape, plan: SnowflakePlan, machine: SnowflakeMachine, together: int
) -> Iterator[int]:
    """Numbers of filters a tile: all if they fit half of the WBufs, else whole groups, fewer and
    fewer."""
    most = -(-shape.filters // together)
    whole = geometry(shape, replace(plan, tile_m=shape.filters), machine)
    half = machine.wbuf_words // 2
    largest = max(1, min(most, half // whole.kernel_words))
    if whole.splits_depth and whole.kernels_words <= half:
        largest = most
    tried = set()
    for count in [largest, *[-(-largest // part) for part in (2, 4, 8)], 1]:
        even = -(-most // -(-most // count))
        filters = min(shape.filters, even * together)
        if filters not in tried:
            tried.add(filters)
            yield filters
