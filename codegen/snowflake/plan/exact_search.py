"""The search of `exact`, compiled: every mode, tile and order of a convolution.

A plan is timed by `timeline.timed`, unless a lower bound on that says that it is no better than the
best one so far. Of plans with equal times, which are rounded to what is known of them, the one that
moves fewer bytes is better. Bounds, in cycles:

  vector   traces of all sums, behind the loads of the first step and in front of the store of the
           last; for all plans with so many filters and rows a tile, columns at their least
  core     what issuing takes at least
  memory   all that has to move, by the tiles of maps and of kernels that come again
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan import sums_time, timeline
from tvm_npu.codegen.snowflake.plan.counting import COOP, LANE, Along, touched
from tvm_npu.codegen.snowflake.plan.moved import kernels_moved, maps_moved, part, results_moved
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    depth_parts,
    kernels_words,
    places,
    spreads_columns,
    tile_columns,
    tile_rows,
    together,
)
from tvm_npu.codegen.snowflake.plan.timeline import resolved, resolved_below
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, WORD_BYTES

TIE_CYCLES, TIE_BYTES = 1e-12, 1e-10
"""What a cycle counts beside bytes, and a byte beside cycles."""
MOST_PLACES = 2
"""Of tiles of maps, and of tiles of kernels."""
SEEN, TIMED = range(2)
"""What a search counts: plans that fit and whose bound was computed, plans that were timed."""


class Sizes(NamedTuple):
    """By size of a tile, from 1 on: ``traces`` (rows of taps of all rows, or cycles of a row of
    taps of all columns), ``inside`` inputs of all tiles, ``largest`` inputs of a tile."""

    traces: np.ndarray
    inside: np.ndarray
    largest: np.ndarray
    least_traces: float
    least_inside: float


@device
def _inside(axis: Along, size: int, cus: int) -> int:
    """Inputs that all tiles of ``size`` results load, each CU its own."""
    total = 0
    for begin in range(0, axis.out, size):
        count = min(size, axis.out - begin)
        for cu in range(cus):
            at, own = part(axis, begin, count, cus, cu)
            if own:
                total += touched(axis, at, own)
    return total


@device
def _row_sizes(n: Numbers, mode: int, most: int) -> Sizes:
    dealt = mode != COOP and not spreads_columns(n, mode)
    kinds = np.zeros(2 * n.rows.kernel + 1, np.int64)
    traces, inside = np.zeros(most + 1), np.zeros(most + 1)
    largest = np.zeros(most + 1, np.int64)
    for size in range(1, most + 1):
        traces[size] = sums_time.least_rows(n, mode, size, kinds)
        inside[size] = _inside(n.rows, size, n.cus if dealt else 1)
        largest[size] = tile_rows(n, mode, size)
    return Sizes(traces, inside, largest, traces[1:].min(), inside[1:].min())


@device
def _column_sizes(n: Numbers, mode: int, most: int) -> Sizes:
    kinds = np.zeros(2 * n.columns.kernel + 1, np.int64)
    traces, inside = np.zeros(most + 1), np.zeros(most + 1)
    largest = np.zeros(most + 1, np.int64)
    for size in range(1, most + 1):
        traces[size] = sums_time.least_columns(n, mode, size, LANES, kinds)
        inside[size] = _inside(n.columns, size, n.cus if spreads_columns(n, mode) else 1)
        largest[size] = tile_columns(n, mode, size)
    return Sizes(traces, inside, largest, traces[1:].min(), inside[1:].min())


@device
def _weight_bytes(n: Numbers, mode: int, m: int) -> int:
    """Of all kernels, each once."""
    p = Choice(mode, m, 1, 1, True)
    tiles, total = ceil_div(n.filters, m), 0
    for tile in (0, tiles - 1):
        times = tiles - 1 if tile == 0 else 1
        for depth in range(depth_parts(n, mode) if times else 0):
            total += times * kernels_moved(n, p, tile, depth)[0]
    return total


@device
def _sums(n: Numbers, mode: int, m: int) -> int:
    """Sums of a result, one after the other: groups of filters, in mode lane lines of channels."""
    unit = LANES if mode == LANE else together(n, mode)
    return n.filters // m * ceil_div(m, unit) + ceil_div(n.filters % m, unit)


@device
def _value(costs, by_bytes: bool) -> float:
    moved = costs[timeline.IN_BYTES] + costs[timeline.WEIGHT_BYTES] + costs[timeline.OUT_BYTES]
    if by_bytes:
        return moved + TIE_CYCLES * costs[timeline.CYCLES]
    return costs[timeline.CYCLES] + TIE_BYTES * moved


@device
def _bound(moved: float, cycles: float, by_bytes: bool) -> float:
    """The least `_value` of a plan that moves so many bytes and takes so many cycles, at least."""
    return moved if by_bytes else resolved(cycles) + TIE_BYTES * moved


@device
def search(n, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts):
    """The least `value` below ``best`` in a mode; ``found`` takes (m, r, c, whether maps stay) of
    the first plan that has it, by bounds and then as they are enumerated."""
    rows, columns = _row_sizes(n, mode, most_r), _column_sizes(n, mode, most_c)
    room_left = 256
    queue, bounds = np.zeros((room_left, 4), np.int64), np.zeros((2, room_left))
    size = 0
    for m in sizes_m:
        kernels = kernels_words(n, Choice(mode, m, 1, 1, True))
        if kernels > n.wbuf:
            continue
        fixed = _fixed(n, mode, m)
        for r in range(most_r, 0, -1):
            if not by_bytes and resolved(_by_rows(n, fixed, rows, columns, r)) >= best:
                continue
            for c in range(most_c, 0, -1):
                vector = fixed.sums * rows.traces[r] * columns.traces[c]
                core = _core(n, mode, fixed, m, r, c, rows.traces[r])
                between = _between(n, mode, fixed, r, c)
                least = max(vector + between, core) + fixed.ends
                if not by_bytes and resolved(least) >= best:
                    continue
                for maps_stay in range(1 if mode == LANE else 2):
                    p = Choice(mode, m, r, c, maps_stay == 1)
                    inside = rows.inside[r] * columns.inside[c]
                    moved = _moved(n, p, fixed, inside, MOST_PLACES, MOST_PLACES)
                    bound = _bound(moved, max(least, moved / n.rate + fixed.ends), by_bytes)
                    if bound >= best:
                        continue
                    room = places(n, p, rows.largest[r], columns.largest[c], kernels)
                    if room[0] == 0:
                        continue
                    counts[SEEN] += 1
                    moved = _moved(n, p, fixed, inside, room[0], room[1])
                    least = max(least, moved / n.rate + fixed.ends)
                    if not by_bytes:
                        edges = timeline.edges_of(n, p, room[1])
                        least = max(least, edges.begin + vector + between + edges.end)
                    bound = max(bound, _bound(moved, least, by_bytes))
                    if bound >= best:
                        continue
                    if size == len(queue):
                        queue = np.concatenate((queue, np.zeros_like(queue)))
                        bounds = np.concatenate((bounds, np.zeros_like(bounds)), axis=1)
                    queue[size, 0], queue[size, 1], queue[size, 2] = m, r, c
                    queue[size, 3] = maps_stay
                    bounds[0, size], bounds[1, size] = bound, moved
                    size += 1
    costs = np.zeros(timeline.COSTS)
    for at in np.argsort(bounds[0, :size], kind="mergesort"):
        if bounds[0, at] >= best:
            break
        m, r, c, stay = queue[at]
        p = Choice(mode, m, r, c, stay == 1)
        room = places(
            n, p, rows.largest[r], columns.largest[c], kernels_words(n, p)
        )
        counts[TIMED] += 1
        latest = np.inf if by_bytes else resolved_below(best - TIE_BYTES * bounds[1, at])
        if timeline.timed(n, p, room, latest, costs):
            one = _value(costs, by_bytes)
            if one < best:
                best = one
                found[:] = queue[at]
    return best


class Fixed(NamedTuple):
    """What all plans with so many filters a tile share: tiles of them, sums of a result (0 where
    kernels come in parts), bytes of all weights and of all results and residuals, cycles of the
    core for the `vmov`s of a sum and of its groups, and cycles before the first and after the last
    trace."""

    tiles: int
    sums: float
    groups: int
    weight_bytes: float
    out_bytes: float
    ends: float


@device
def _fixed(n: Numbers, mode: int, m: int) -> Fixed:
    out = WORD_BYTES * n.filters * n.groups * n.rows.out * n.columns.out
    split = depth_parts(n, mode) > 1
    unit = together(n, mode)
    groups = n.filters // m * ceil_div(m, unit) + ceil_div(n.filters % m, unit)
    return Fixed(
        ceil_div(n.filters, m),
        0.0 if split else float(_sums(n, mode, m) * n.groups),
        0 if split else groups * n.groups,
        float(n.groups * _weight_bytes(n, mode, m)),
        float(out + (out if n.has_residual else 0)),
        timeline.START + n.vector_latency + n.store_latency,
    )


@device
def _by_rows(n: Numbers, fixed: Fixed, rows: Sizes, columns: Sizes, r: int) -> float:
    """A bound on all plans with ``r`` rows a tile."""
    vector = fixed.sums * rows.traces[r] * columns.least_traces
    maps = WORD_BYTES * rows.inside[r] * columns.least_inside * n.planes * n.groups
    return max(vector, (maps + fixed.weight_bytes + fixed.out_bytes) / n.rate) + fixed.ends


@device
def _between(n: Numbers, mode: int, fixed: Fixed, r: int, c: int) -> float:
    """What the vector unit loses between steps."""
    maps = ceil_div(n.rows.out, r) * ceil_div(n.columns.out, c)
    steps = n.groups * fixed.tiles * maps * depth_parts(n, mode)
    return timeline.BETWEEN * (steps - 1)


@device
def _core(n: Numbers, mode: int, fixed: Fixed, m: int, r: int, c: int, taps: float) -> float:
    """The least that the core takes to issue: each trace with an address, each sum with its
    `vmov`s, each step with its special registers and transfers."""
    down, across = ceil_div(n.rows.out, r), ceil_div(n.columns.out, c)
    steps = n.groups * fixed.tiles * down * across
    stores = steps
    if c < n.columns.out and m < n.out_pitch:
        stores = n.groups * fixed.tiles * across * n.rows.out
    cus = 1 if mode == COOP else n.cus
    columns = ceil_div(n.columns.out, cus) if spreads_columns(n, mode) else n.columns.out
    rows = ceil_div(n.rows.out, cus) if columns == n.columns.out else n.rows.out
    preloads = 2 if n.has_residual else 1
    sums = fixed.groups * columns * (2 * taps + preloads * rows)
    if n.rows.kernel * n.columns.kernel > 1 or fixed.groups == 0:
        sums = fixed.groups * columns * rows * (1 + preloads)
    return sums + steps * timeline.CHUNK + stores * timeline.MOVE


@device
def _moved(
    n: Numbers, p: Choice, fixed: Fixed, inside: float, map_places: int, kernel_places: int
) -> float:
    """The bytes that a plan moves: tiles come again that have no place until they are used
    again."""
    maps = ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    again = fixed.tiles if maps > map_places and not p.maps_stay and p.mode != LANE else 1
    come = maps if p.maps_stay and fixed.tiles * depth_parts(n, p.mode) > kernel_places else 1
    in_bytes = WORD_BYTES * inside * n.planes * n.groups
    return in_bytes * again + fixed.weight_bytes * come + fixed.out_bytes


@entry
def search_mode(n, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts):
    """`search`, for Python."""
    return search(n, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts)


@entry
def value(costs, by_bytes):
    """What a search minimizes: cycles, or bytes and then cycles."""
    return _value(costs, by_bytes)
