"""The search of `exact`, compiled: every mode, tile and order of a convolution.

A plan is timed by `timeline.timed`, unless a lower bound on that says that it is no better than the
best one so far. Of plans with equal times, which are rounded to what is known of them, the one that
moves fewer bytes is better. Bounds, in cycles, beside those of `exact_bounds`:

  sums     of all results, with what the core takes to issue them (`least_sums`)
  memory   all that has to move, by the tiles of maps and of kernels that come again
  in turn  what steps wait for (`in_turn`); of all plans with fewer columns together, too
"""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.counting import LANE
from tvm_npu.codegen.snowflake.plan.exact_bounds import (
    FEWEST_INSIDE,
    INSIDE,
    MAP_PLACES,
    TRACES,
    Fixed,
    between,
    by_columns,
    by_rows,
    column_sizes,
    fixed_of,
    largest,
    moved_of,
    row_sizes,
    total_of,
)
from tvm_npu.codegen.snowflake.plan.exact_tiles import has_room, ladder, most_columns, widest
from tvm_npu.codegen.snowflake.plan.in_turn import (
    Issued,
    Scratch,
    in_turn,
    issued_by,
    scratch_for,
    with_fewer_columns,
)
from tvm_npu.codegen.snowflake.plan.joint import (
    MOST_PARTS,
    Joint,
    add_bytes,
    bytes_of,
    moved_by,
    rate_share,
    timed_together,
    with_rate,
    within,
)
from tvm_npu.codegen.snowflake.plan.least_sums import columns_of, least_sums, rows_of
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    kernels_words,
    places,
)
from tvm_npu.codegen.snowflake.plan.tiling import KERNEL_PLACES
from tvm_npu.codegen.snowflake.plan.timeline import resolved
from tvm_npu.sim.compiled import device, entry

TIE_CYCLES, TIE_BYTES = 1e-12, 1e-10
"""What a cycle counts beside bytes, and a byte beside cycles."""
SLACK = 2.0**-10
"""Cycles by which a bound is less than what it adds up to, in another order than a time does."""
SAMPLED = 12
"""Plans that `sample` times."""
NOTHING_ISSUED, NO_EDGES = Issued(0.0, 0.0, 0.0), timeline.Edges(0.0, 0.0)
SEEN, TIMED = range(2)
"""What a search counts: plans that fit and whose bound was computed, plans that were timed."""


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


@device
def _rooms(layer: Joint, p: Choice, sizes: list, rooms) -> bool:
    """Writes the `places` of each part; False where tiles do not fit all."""
    for number in range(layer.distinct):
        n = layer.parts[number]
        rows, columns, _, _ = sizes[number]
        own = within(n, p)
        room = places(n, own, largest(rows, own.r), largest(columns, own.c), kernels_words(n, own))
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
        rows, columns, _, _ = sizes[number]
        own = within(n, p)
        found = moved_of(n, own, fixed[number], rows, columns, rooms[number, 0], rooms[number, 1])
        if number == 0:
            share = rate_share(layer, found)
        add_bytes(layer, number, found, costs)
    return share


@device
def _vector(n: Numbers, p: Choice, fixed: Fixed, sizes) -> float:
    """The least that all sums take."""
    rows, columns, downs, across = sizes
    issued = least_sums(n, p.mode, p.m, p.r, p.c, downs, across)
    return max(fixed.sums * rows.by[p.r, TRACES] * columns.by[p.c, TRACES], issued)


@device
def _least(
    layer: Joint, p: Choice, sizes: list, fixed: list, rooms, share: float, costs, best: float,
    scratch: Scratch,
) -> float:  # fmt: skip
    """A bound on the time of all clusters, whose bytes are in ``costs``; a smaller one as soon as
    the plan's `_bound` is not less than ``best``."""
    moved, least = moved_by(costs), 0.0
    for number in range(layer.distinct):
        n = with_rate(layer.parts[number], share)
        rows, columns, _, _ = sizes[number]
        own, mine = within(n, p), fixed[number]
        found = moved_of(n, own, mine, rows, columns, rooms[number, 0], rooms[number, 1])
        memory = total_of(found) / n.rate + mine.ends
        least = max(least, moved / layer.parts[0].rate, resolved(memory - SLACK))
        if _bound(moved, least, False) >= best:
            return least
        vector = _vector(n, own, mine, sizes[number])
        apart = between(n, own.mode, mine, own.r, own.c)
        edges, issued = NO_EDGES, NOTHING_ISSUED
        for by_edges in (vector > memory, vector <= memory):  # what is likely to be enough first
            if by_edges:
                edges = timeline.edges_of(n, own, rooms[number, 1])
                sums = vector + edges.begin + apart + edges.end
                least = max(least, resolved(sums - SLACK))
            elif mine.sums > 0:
                issued = issued_by(n, own, rooms[number], scratch)
                least = max(least, resolved(memory + issued.all_code - SLACK))
            if _bound(moved, least, False) >= best:
                return least
        if mine.sums == 0:
            continue
        one = in_turn(n, own, rooms[number], edges, vector, issued, rows, columns, scratch)
        least = max(least, resolved(one - SLACK))
    return least


@device
def _least_of_fewer(layer: Joint, p: Choice, fixed: list, sizes: list) -> float:
    """`with_fewer_columns` for the first part, with the most that it can have of the memory's
    rate."""
    n, mine = layer.parts[0], fixed[0]
    if mine.sums == 0:
        return 0.0
    rows, columns, _, _ = sizes[0]
    inside = rows.by[p.r, INSIDE] * columns.by[p.c, FEWEST_INSIDE]
    found = bytes_of(n, p, inside, mine.kernels, MAP_PLACES, KERNEL_PLACES)
    least = with_fewer_columns(with_rate(n, rate_share(layer, found)), p, rows, columns)
    return resolved(max(1.0, least - SLACK))


@device
def _known(layer: Joint, mode: int, most_r: int, most_c: int) -> list:
    """`Sizes` of rows and of columns of each part."""
    return [
        (
            row_sizes(layer.parts[number], mode, min(most_r, layer.parts[number].rows.out)),
            column_sizes(layer.parts[number], mode, min(most_c, layer.parts[number].columns.out)),
            rows_of(layer.parts[number], mode, min(most_r, layer.parts[number].rows.out)),
            columns_of(layer.parts[number], min(most_c, layer.parts[number].columns.out)),
        )
        for number in range(layer.distinct)
    ]


@device
def _queued(layer, mode, sizes, sizes_m, sizes_r, sizes_c, by_bytes, best, counts):
    """(m, r, c, whether maps stay) of all plans whose bound is less than ``best``, and [2]: bounds
    and bytes."""
    first = layer.parts[0]
    rows, columns, _, _ = sizes[0]
    queue, bounds = np.zeros((256, 4), np.int64), np.zeros((2, 256))
    rooms, costs = np.zeros((MOST_PARTS, 3), np.int64), np.zeros(timeline.COSTS)
    scratch = scratch_for(first)
    left = np.ones(2, np.bool_)  # orders in which fewer columns may still be better
    size = 0
    for m in sizes_m:
        if kernels_words(first, within(first, Choice(mode, m, 1, 1, True))) > first.wbuf:
            continue
        fixed = [
            fixed_of(layer.parts[number], mode, min(m, layer.parts[number].filters))
            for number in range(layer.distinct)
        ]
        own_m = min(m, first.filters)
        for r in sizes_r:
            own_r = min(r, first.rows.out)
            least = by_rows(first, fixed[0], rows, columns, own_r)
            if not by_bytes and resolved(least) >= best:
                continue
            wide = widest(first, Choice(mode, own_m, own_r, 1, True), columns)
            left[0], left[1] = True, mode != LANE
            for c in sizes_c:
                own_c = min(c, first.columns.out)
                if own_c > wide or not has_room(first, mode, own_m, own_r, own_c, sizes[0]):
                    continue
                for maps_stay in range(2):
                    p = Choice(mode, own_m, own_r, own_c, maps_stay == 1)
                    if left[maps_stay] and not by_bytes:
                        left[maps_stay] = _least_of_fewer(layer, p, fixed, sizes) < best
                if not (left[0] or left[1]):
                    break
                least = by_columns(first, fixed[0], rows, columns, mode, own_m, own_r, own_c)
                if not by_bytes and resolved(least) >= best:
                    continue
                for maps_stay in range(2):
                    if not left[maps_stay]:
                        continue
                    p = Choice(mode, m, r, c, maps_stay == 1)
                    alone = total_of(
                        moved_of(
                            first, within(first, p), fixed[0], rows, columns, MAP_PLACES,
                            KERNEL_PLACES,
                        )
                    )
                    memory = resolved(max(least, alone / first.rate + fixed[0].ends))
                    if _bound(alone, memory, by_bytes) >= best:
                        continue
                    if not by_bytes:
                        sums = _vector(first, within(first, p), fixed[0], sizes[0])
                        if resolved(sums + fixed[0].ends) >= best:
                            continue
                    if not _rooms(layer, p, sizes, rooms):
                        continue
                    counts[SEEN] += 1
                    share = _bytes(layer, p, sizes, fixed, rooms, costs)
                    moved, cycles = moved_by(costs), memory
                    if not by_bytes:
                        cycles = max(
                            memory,
                            _least(layer, p, sizes, fixed, rooms, share, costs, best, scratch),
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
            fixed_of(layer.parts[number], mode, min(m, layer.parts[number].filters))
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
def search(layer, mode, sizes_m, most_r, most_c, by_bytes, best, found, counts):
    """The least `value` below ``best`` in a mode; ``found`` takes (m, r, c, whether maps stay) of
    the first plan that has it, by bounds and then as they are enumerated."""
    most_c = most_columns(layer, mode, sizes_m, most_c)
    sizes = _known(layer, mode, most_r, most_c)
    queue, bounds = _queued(
        layer, mode, sizes, sizes_m, np.arange(most_r, 0, -1), np.arange(most_c, 0, -1), by_bytes,
        best, counts,
    )  # fmt: skip
    return _timed(layer, mode, sizes, queue, bounds, len(queue), by_bytes, best, found, counts)


@device
def sample(layer, mode, sizes_m, most_r, most_c, by_bytes, best, counts):
    """A `value` that a plan in a mode has, below ``best`` where a few promising ones are."""
    most_c = most_columns(layer, mode, sizes_m, most_c)
    sizes = _known(layer, mode, most_r, most_c)
    queue, bounds = _queued(
        layer, mode, sizes, sizes_m, ladder(most_r), ladder(most_c), by_bytes, best, counts
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
        fixed_of(layer.parts[number], p.mode, min(p.m, layer.parts[number].filters))
        for number in range(layer.distinct)
    ]
    if not _rooms(layer, p, sizes, rooms):
        return 0.0
    share = _bytes(layer, p, sizes, fixed, rooms, costs)
    own = within(layer.parts[0], p)
    rows, columns, _, _ = sizes[0]
    least = by_rows(layer.parts[0], fixed[0], rows, columns, own.r)
    least = max(
        least,
        by_columns(layer.parts[0], fixed[0], rows, columns, p.mode, own.m, own.r, own.c),
        _least(
            layer, p, sizes, fixed, rooms, share, costs, np.inf, scratch_for(layer.parts[0])
        ),
    )
    return resolved(least)


@entry
def least_of_fewer(layer, p):
    """The bound that the search has on the times of ``p`` and of all plans with fewer columns."""
    sizes = _known(layer, p.mode, p.r, p.c)
    fixed = [
        fixed_of(layer.parts[number], p.mode, min(p.m, layer.parts[number].filters))
        for number in range(layer.distinct)
    ]
    return _least_of_fewer(layer, within(layer.parts[0], p), fixed, sizes)


@entry
def value(costs, by_bytes):
    """What a search minimizes: cycles, or bytes and then cycles."""
    return _value(costs, by_bytes)
