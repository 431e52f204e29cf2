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
from tvm_npu.codegen.snowflake.plan.counting import COOP, LANE
from tvm_npu.codegen.snowflake.plan.joint import (
    MOST_PARTS,
    Bytes,
    Joint,
    add_bytes,
    bytes_of,
    dealt,
    inputs_inside,
    kernel_bytes,
    moved_by,
    rate_share,
    timed_together,
    with_rate,
    within,
)
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    depth_parts,
    kernels_words,
    out_words,
    places,
    spreads_columns,
    tile_columns,
    tile_rows,
    together,
)
from tvm_npu.codegen.snowflake.plan.tiling import KERNEL_PLACES
from tvm_npu.codegen.snowflake.plan.timeline import resolved
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, WORD_BYTES

TIE_CYCLES, TIE_BYTES = 1e-12, 1e-10
"""What a cycle counts beside bytes, and a byte beside cycles."""
MAP_PLACES = 2
"""Of tiles of maps, at most."""
SAMPLED = 12
"""Plans that `sample` times."""
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
def _row_sizes(n: Numbers, mode: int, most: int) -> Sizes:
    kinds = np.zeros(2 * n.rows.kernel + 1, np.int64)
    traces, inside = np.zeros(most + 1), np.zeros(most + 1)
    largest = np.zeros(most + 1, np.int64)
    for size in range(1, most + 1):
        traces[size] = sums_time.least_rows(n, mode, size, kinds)
        inside[size] = inputs_inside(n.rows, size, dealt(n, mode)[0])
        largest[size] = tile_rows(n, mode, size)
    return Sizes(traces, inside, largest, traces[1:].min(), inside[1:].min())


@device
def _column_sizes(n: Numbers, mode: int, most: int) -> Sizes:
    kinds = np.zeros(2 * n.columns.kernel + 1, np.int64)
    traces, inside = np.zeros(most + 1), np.zeros(most + 1)
    largest = np.zeros(most + 1, np.int64)
    for size in range(1, most + 1):
        traces[size] = sums_time.least_columns(n, mode, size, LANES, kinds)
        inside[size] = inputs_inside(n.columns, size, dealt(n, mode)[1])
        largest[size] = tile_columns(n, mode, size)
    return Sizes(traces, inside, largest, traces[1:].min(), inside[1:].min())


@device
def _sums(n: Numbers, mode: int, m: int) -> int:
    """Sums of a result, one after the other: groups of filters, in mode lane lines of channels."""
    unit = LANES if mode == LANE else together(n, mode)
    return n.filters // m * ceil_div(m, unit) + ceil_div(n.filters % m, unit)


@device
def _value(costs, by_bytes: bool) -> float:
    moved = moved_by(costs)
    if by_bytes:
        return moved + TIE_CYCLES * costs[timeline.CYCLES]
    return costs[timeline.CYCLES] + TIE_BYTES * moved


@device
def _bound(moved: float, cycles: float, by_bytes: bool) -> float:
    """The least `_value` of a plan that moves so many bytes and takes so many cycles, at least."""
    return moved if by_bytes else cycles + TIE_BYTES * moved


class Fixed(NamedTuple):
    """What all plans of a part with so many filters a tile share: tiles of them, sums of a result
    (0 where kernels come in parts), bytes of a group's kernels and of all results, cycles of the
    core for the `vmov`s of a sum and of its groups, and cycles before the first and after the last
    trace."""

    tiles: int
    sums: float
    groups: int
    kernels: float
    results: float
    ends: float


@device
def _fixed(n: Numbers, mode: int, m: int) -> Fixed:
    split = depth_parts(n, mode) > 1
    unit = together(n, mode)
    groups = n.filters // m * ceil_div(m, unit) + ceil_div(n.filters % m, unit)
    return Fixed(
        ceil_div(n.filters, m),
        0.0 if split else float(_sums(n, mode, m) * n.groups),
        0 if split else groups * n.groups,
        float(kernel_bytes(n, mode, m)),
        float(WORD_BYTES * n.filters * n.groups * n.rows.out * n.columns.out),
        timeline.START + n.vector_latency + n.store_latency,
    )


@device
def _by_rows(n: Numbers, fixed: Fixed, rows: Sizes, columns: Sizes, r: int) -> float:
    """A bound on all plans with ``r`` rows a tile."""
    vector = fixed.sums * rows.traces[r] * columns.least_traces
    moved = WORD_BYTES * rows.inside[r] * columns.least_inside * n.planes * n.groups
    moved += fixed.kernels * n.groups + fixed.results * (2 if n.has_residual else 1)
    return max(vector, moved / n.rate) + fixed.ends


@device
def _by_columns(
    n: Numbers, fixed: Fixed, rows: Sizes, columns: Sizes, mode: int, m: int, r: int, c: int
) -> float:
    """A bound on both orders of ``r`` rows and ``c`` columns a tile."""
    vector = fixed.sums * rows.traces[r] * columns.traces[c]
    core = _core(n, mode, fixed, m, r, c, rows.traces[r])
    return max(vector + _between(n, mode, fixed, r, c), core) + fixed.ends


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
    n: Numbers, p: Choice, fixed: Fixed, rows: Sizes, columns: Sizes, map_places: int,
    kernel_places: int,
) -> Bytes:  # fmt: skip
    """`bytes_of`, out of what is known of the sizes."""
    inside = rows.inside[p.r] * columns.inside[p.c]
    return bytes_of(n, p, inside, fixed.kernels, map_places, kernel_places)


@device
def _total(found: Bytes) -> float:
    return found.maps + found.kernels + found.results


@device
def _rooms(layer: Joint, p: Choice, sizes: list, rooms) -> bool:
    """Writes the `places` of each part; False where tiles do not fit all."""
    for number in range(layer.distinct):
        n = layer.parts[number]
        rows, columns = sizes[number]
        own = within(n, p)
        room = places(n, own, rows.largest[own.r], columns.largest[own.c], kernels_words(n, own))
        if room[0] == 0:
            return False
        rooms[number, 0], rooms[number, 1], rooms[number, 2] = room
    return True


@device
def _bytes(layer: Joint, p: Choice, sizes: list, fixed: list, rooms, costs) -> float:
    """Writes what all clusters move; gives the part of the memory's rate that each has."""
    costs[:] = 0.0
    share = 1.0
    for number in range(layer.distinct):
        n = layer.parts[number]
        rows, columns = sizes[number]
        own = within(n, p)
        found = _moved(n, own, fixed[number], rows, columns, rooms[number, 0], rooms[number, 1])
        if number == 0:
            share = rate_share(layer, found)
        add_bytes(layer, number, found, costs)
    return share


@device
def _padded(planes: int, m: int, pitch: int) -> int:
    """Words of a pixel's ``planes`` that the memory serves in tiles of ``m``, at least: whole units
    where the pixels of a tile do not lie together."""
    if m >= planes and planes == pitch:
        return planes
    unit = MEMORY_UNIT_BYTES // WORD_BYTES
    return unit * (planes // m * ceil_div(m, unit) + ceil_div(planes % m, unit))


@device
def _in_turn(
    n: Numbers, p: Choice, room, edges, vector: float, rows: Sizes, columns: Sizes
) -> float:  # fmt: skip
    """A bound on the time of a plan in mode lane, where each step has maps of its own: what
    `timeline.timed` has between the begin of a step and that of the next one, by transfers and by
    the step itself where that has the only place of something. ``vector`` are the cycles of all
    sums."""
    tiles = ceil_div(n.filters, p.m) * ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    turns = n.groups * tiles - 1
    if turns == 0:
        return 0.0
    one = min(p.m, n.filters)
    each = float(min(p.r, n.rows.out) * min(p.c, n.columns.out) * _padded(one, one, 0))
    results = n.groups * n.rows.out * n.columns.out * _padded(n.filters, p.m, n.out_pitch) - each
    maps = n.groups * rows.inside[p.r] * columns.inside[p.c] * _padded(n.planes, p.m, n.in_pitch)
    maps -= n.cus * rows.largest[p.r] * columns.largest[p.c] * _padded(one, one, 0)
    residual = results if n.has_residual else 0.0
    whole = n.groups * (n.filters // p.m) * (n.rows.out // p.r) * (n.columns.out // p.c) - 1
    code = timeline.chunks_of(n, p, p.m, p.r, p.c, 1).parts * timeline.CHUNK_WORDS
    code = timeline.CODE_BYTES * (code + timeline.MOVE_WORDS) * max(0, whole)
    load = timeline.MOVE + n.load_latency
    late = residual + (maps if room[0] == 1 else 0.0)
    chain, words = float(timeline.CHUNK + timeline.MOVE), maps + results + residual
    alone, own_words = float(timeline.ISSUE + n.vector_latency + timeline.RESULTS), 0.0
    if room[2] == 1:
        chain += n.store_latency + (load if late > 0 else 0)
        alone += n.store_latency + (load if late > 0 else 0)
        own_words = results + late
    else:
        chain += n.load_latency
        words -= each
        alone += load
        own_words = maps
    chain = turns * chain + (WORD_BYTES * max(0.0, words) + code) / n.rate
    if room[0] == 1 or room[2] == 1:
        alone = vector + turns * alone + WORD_BYTES * max(0.0, own_words) / n.rate
        chain = max(chain, alone)
    return edges.begin + chain + edges.end


@device
def _least(
    layer: Joint, p: Choice, sizes: list, fixed: list, rooms, share: float, costs
) -> float:  # fmt: skip
    """A bound on the time of all clusters, with the bytes in ``costs``."""
    moved, rate = moved_by(costs), layer.parts[0].rate
    least = moved / rate
    for number in range(layer.distinct):
        n = with_rate(layer.parts[number], share)
        rows, columns = sizes[number]
        own, mine = within(n, p), fixed[number]
        edges = timeline.edges_of(n, own, rooms[number, 1])
        vector = mine.sums * rows.traces[own.r] * columns.traces[own.c]
        if own.mode == LANE:
            one = _in_turn(n, own, rooms[number], edges, vector, rows, columns)
            least = max(least, resolved(one))
        vector += edges.begin + _between(n, own.mode, mine, own.r, own.c) + edges.end
        found = _moved(n, own, mine, rows, columns, rooms[number, 0], rooms[number, 1])
        memory = _total(found) / n.rate + mine.ends
        least = max(least, resolved(max(vector, memory)))
    return least


@device
def _known(layer: Joint, mode: int, most_r: int, most_c: int) -> list:
    """`Sizes` of rows and of columns of each part."""
    return [
        (
            _row_sizes(layer.parts[number], mode, min(most_r, layer.parts[number].rows.out)),
            _column_sizes(layer.parts[number], mode, min(most_c, layer.parts[number].columns.out)),
        )
        for number in range(layer.distinct)
    ]


@device
def _queued(layer, mode, sizes, sizes_m, sizes_r, sizes_c, by_bytes, best, counts):
    """(m, r, c, whether maps stay) of all plans whose bound is less than ``best``, and [2]: bounds
    and bytes."""
    first = layer.parts[0]
    rows, columns = sizes[0]
    queue, bounds = np.zeros((256, 4), np.int64), np.zeros((2, 256))
    rooms, costs = np.zeros((MOST_PARTS, 3), np.int64), np.zeros(timeline.COSTS)
    size = 0
    for m in sizes_m:
        if kernels_words(first, within(first, Choice(mode, m, 1, 1, True))) > first.wbuf:
            continue
        fixed = [
            _fixed(layer.parts[number], mode, min(m, layer.parts[number].filters))
            for number in range(layer.distinct)
        ]
        own_m = min(m, first.filters)
        for r in sizes_r:
            own_r = min(r, first.rows.out)
            least = _by_rows(first, fixed[0], rows, columns, own_r)
            if not by_bytes and resolved(least) >= best:
                continue
            for c in sizes_c:
                own_c = min(c, first.columns.out)
                least = _by_columns(first, fixed[0], rows, columns, mode, own_m, own_r, own_c)
                if not by_bytes and resolved(least) >= best:
                    continue
                for maps_stay in range(1 if mode == LANE else 2):
                    p = Choice(mode, m, r, c, maps_stay == 1)
                    alone = _total(
                        _moved(
                            first, within(first, p), fixed[0], rows, columns, MAP_PLACES,
                            KERNEL_PLACES,
                        )
                    )
                    memory = resolved(max(least, alone / first.rate + fixed[0].ends))
                    if _bound(alone, memory, by_bytes) >= best:
                        continue
                    if not _rooms(layer, p, sizes, rooms):
                        continue
                    counts[SEEN] += 1
                    share = _bytes(layer, p, sizes, fixed, rooms, costs)
                    moved, cycles = moved_by(costs), memory
                    if not by_bytes:
                        cycles = max(
                            memory, _least(layer, p, sizes, fixed, rooms, share, costs)
                        )
                    bound = _bound(moved, cycles, by_bytes)
                    if bound >= best:
                        continue
                    if size == len(queue):
                        queue = np.concatenate((queue, np.zeros_like(queue)))
                        bounds = np.concatenate((bounds, np.zeros_like(bounds)), axis=1)
                    queue[size, 0], queue[size, 1], queue[size, 2] = m, r, c
                    queue[size, 3] = maps_stay
                    bounds[0, size], bounds[1, size] = bound, moved
                    size += 1
    return queue[:size], bounds[:, :size]


@device
def _timed(layer, mode, sizes, queue, bounds, most, by_bytes, best, found, counts):
    """The least `value` below ``best`` of the ``most`` plans of a queue with the smallest bounds;
    ``found`` takes (m, r, c, whether maps stay) of the first that has it."""
    costs = np.zeros(timeline.COSTS)
    rooms = np.zeros((MOST_PARTS, 3), np.int64)
    for at in np.argsort(bounds[0], kind="mergesort")[:most]:
        if bounds[0, at] >= best:
            break
        m, r, c, stay = queue[at]
        p = Choice(mode, m, r, c, stay == 1)
        fixed = [
            _fixed(layer.parts[number], mode, min(m, layer.parts[number].filters))
            for number in range(layer.distinct)
        ]
        _rooms(layer, p, sizes, rooms)
        share = _bytes(layer, p, sizes, fixed, rooms, costs)
        counts[TIMED] += 1
        limit = np.inf if by_bytes else best - TIE_BYTES * bounds[1, at]
        if timed_together(layer, p, share, limit, costs):
            one = _value(costs, by_bytes)
            if one < best:
                best = one
                found[:] = queue[at]
    return best


@device
def _largest(layer, mode, sizes_m, most_c):
    """Columns of a tile of one row, at most: more results do not fit the MBufs, whatever else."""
    low, high = 1, most_c
    while low < high:
        c = (low + high + 1) // 2
        fits = True
        for number in range(layer.distinct):
            n = layer.parts[number]
            p = within(n, Choice(mode, sizes_m[-1], 1, c, True))
            if c <= n.columns.out and out_words(n, p) > n.mbuf:
                fits = False
        low, high = (c, high) if fits else (low, c - 1)
    return low


@device
def _ladder(most):
    """Sizes from ``most`` down to 1, each about a fourth less than the one before."""
    sizes = np.zeros(64, np.int64)
    count, size = 0, most
    while size >= 1 and count < 64:
        sizes[count] = size
        count, size = count + 1, min(size - 1, size * 3 // 4)
    return sizes[:count]


@device
def search(layer, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts):
    """The least `value` below ``best`` in a mode; ``found`` takes (m, r, c, whether maps stay) of
    the first plan that has it, by bounds and then as they are enumerated."""
    most_c = _largest(layer, mode, sizes_m, most_c)
    sizes = _known(layer, mode, most_r, most_c)
    queue, bounds = _queued(
        layer, mode, sizes, sizes_m, np.arange(most_r, 0, -1), np.arange(most_c, 0, -1), by_bytes,
        best, counts,
    )  # fmt: skip
    return _timed(layer, mode, sizes, queue, bounds, len(queue), by_bytes, best, found, counts)


@device
def sample(layer, mode, sizes_m, most_r, most_c, by_bytes, best, counts):
    """A `value` that a plan in a mode has, below ``best`` where a few promising ones are."""
    most_c = _largest(layer, mode, sizes_m, most_c)
    sizes = _known(layer, mode, most_r, most_c)
    queue, bounds = _queued(
        layer, mode, sizes, sizes_m, _ladder(most_r), _ladder(most_c), by_bytes, best, counts
    )
    found = np.zeros(4, np.int64)
    return _timed(layer, mode, sizes, queue, bounds, SAMPLED, by_bytes, best, found, counts)


@entry
def search_mode(layer, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts):
    """`search`, for Python."""
    return search(layer, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts)


@entry
def sample_mode(layer, mode, sizes_m, most_r, most_c, by_bytes, best, counts):
    """`sample`, for Python."""
    return sample(layer, mode, sizes_m, most_r, most_c, by_bytes, best, counts)


@entry
def least_cycles(layer, p):
    """The bound that the search has on the time of a plan before it times it; 0 where the plan's
    tiles do not fit."""
    sizes = _known(layer, p.mode, p.r, p.c)
    rooms, costs = np.zeros((MOST_PARTS, 3), np.int64), np.zeros(timeline.COSTS)
    fixed = [
        _fixed(layer.parts[number], p.mode, min(p.m, layer.parts[number].filters))
        for number in range(layer.distinct)
    ]
    if not _rooms(layer, p, sizes, rooms):
        return 0.0
    share = _bytes(layer, p, sizes, fixed, rooms, costs)
    own = within(layer.parts[0], p)
    rows, columns = sizes[0]
    least = _by_rows(layer.parts[0], fixed[0], rows, columns, own.r)
    least = max(
        least,
        _by_columns(layer.parts[0], fixed[0], rows, columns, p.mode, own.m, own.r, own.c),
        _least(layer, p, sizes, fixed, rooms, share, costs),
    )
    return resolved(least)


@entry
def value(costs, by_bytes):
    """What a search minimizes: cycles, or bytes and then cycles."""
    return _value(costs, by_bytes)
