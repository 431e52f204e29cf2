"""Compiled searches over a time table: dynamic programming and complete enumeration."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device, entry

NONE = -1


@device
def _stage_s(prefix_s, crossing_bytes, latency_s, byte_s, first, end, place, before):
    taken = prefix_s[end, place] - prefix_s[first, place]
    if before >= 0:
        taken += latency_s[before, place] + crossing_bytes[first - 1] * byte_s[before, place]
    return taken


@device
def slowest_stage_s(prefix_s, crossing_bytes, latency_s, byte_s, edges, served, count):
    """The bottleneck of the first ``count`` stages: between ``edges``, on the places ``served``."""
    slowest = 0.0
    for stage in range(count):
        before = served[stage - 1] if stage > 0 else NONE
        slowest = max(
            slowest,
            _stage_s(
                prefix_s, crossing_bytes, latency_s, byte_s,
                edges[stage], edges[stage + 1], served[stage], before,
            ),
        )  # fmt: skip
    return slowest


@entry
def shortest_bottleneck(
    prefix_s, crossing_bytes, latency_s, byte_s, steps, one_link, bound_s, fewest, most
):  # fmt: skip
    """Least bottleneck over all configurations, if it is below ``bound_s``, and how it is reached.

    best[i, used, last]: the least bottleneck of layers before i on the set of places ``used``
    (`PlaceClasses.steps`), the last of them of class ``last`` (one slot for all when every link is
    the same), for i from ``fewest`` to ``most`` of the set (`bands`), one set after the other.
    Returns the value and, backwards, the first layers and places of the stages.
    """
    layers = prefix_s.shape[0] - 1
    places = prefix_s.shape[1]
    sets = steps.shape[0]
    lasts = 1 if one_link else steps.shape[1]
    rows = np.zeros(sets + 1, np.int64)  # where the band of a set begins
    for used in range(sets):
        rows[used + 1] = rows[used] + max(0, most[used] - fewest[used] + 1)
    best = np.full((rows[sets], lasts), np.inf)
    parent = np.empty((rows[sets], lasts, 4), np.int32)
    whole = bound_s
    end_used = NONE
    end_last = 0
    if fewest[0] == 0:
        best[0, 0] = 0.0
    for first in range(layers):
        for used in range(sets):
            if first < fewest[used] or first > most[used]:
                continue
            row = rows[used] + first - fewest[used]
            for slot in range(lasts):
                so_far = best[row, slot]
                if so_far >= whole:
                    continue
                for choice in range(steps.shape[1]):
                    place = steps[used, choice, 0]
                    if place == NONE:
                        break
                    before = NONE
                    if first > 0:
                        before = parent[row, slot, 1]
                        if one_link:  # any other place: all links are the same
                            before = 0 if place > 0 else 1
                    target = steps[used, choice, 2]
                    goes = 0 if one_link else steps[used, choice, 1]
                    least = fewest[target]
                    for end in range(max(first + 1, least), most[target] + 1):
                        value = max(
                            so_far,
                            _stage_s(
                                prefix_s, crossing_bytes, latency_s, byte_s,
                                first, end, place, before,
                            ),
                        )  # fmt: skip
                        if value >= whole:
                            break
                        at = rows[target] + end - least
                        if value < best[at, goes]:
                            best[at, goes] = value
                            parent[at, goes, 0] = first
                            parent[at, goes, 1] = place
                            parent[at, goes, 2] = slot
                            parent[at, goes, 3] = used
                            if end == layers:
                                whole = value
                                end_used = target
                                end_last = goes
    firsts = np.full(places, NONE, np.int64)
    served = np.full(places, NONE, np.int64)
    count = 0
    end, used, slot = layers, end_used, end_last
    while end > 0 and end_used != NONE:
        row = rows[used] + end - fewest[used]
        firsts[count] = parent[row, slot, 0]
        served[count] = parent[row, slot, 1]
        used, slot = parent[row, slot, 3], parent[row, slot, 2]
        end = firsts[count]
        count += 1
    return whole, firsts[:count], served[:count]


@entry
def enumerate_all(prefix_s, crossing_bytes, latency_s, byte_s, conflicts, twin, most_stages):
    """Every configuration once, depth first. Returns the least bottleneck, edges and places of its
    first holder, the number of configurations, and the sums over all of them of the bottleneck and
    of the stages' times."""
    layers = prefix_s.shape[0] - 1
    places = prefix_s.shape[1]
    ends = np.zeros(places + 1, np.int64)  # ends[d]: layers before stage d
    at = np.full(places + 1, NONE, np.int64)  # at[d]: place of stage d
    used = np.zeros(places + 1, np.int64)
    blocked = np.zeros(places + 1, np.int64)
    high = np.zeros(places + 1)
    total = np.zeros(places + 1)
    best = np.inf
    best_count = 0
    best_ends = np.zeros(places + 1, np.int64)
    best_at = np.zeros(places + 1, np.int64)
    count = 0
    bottlenecks = 0.0
    totals = 0.0
    depth = 0
    ends[1] = 0
    while depth >= 0:
        # The next (place, end) of stage ``depth``.
        place = at[depth]
        end = ends[depth + 1] + 1
        if place == NONE or end > layers:
            place += 1
            while place < places and (
                blocked[depth] & (1 << place)
                or (twin[place] >= 0 and not used[depth] & (1 << twin[place]))
            ):
                place += 1
            if place == places:
                at[depth] = NONE
                depth -= 1
                continue
            at[depth] = place
            end = ends[depth] + 1
            if depth == most_stages - 1:
                end = layers
        ends[depth + 1] = end
        before = at[depth - 1] if depth > 0 else NONE
        taken = _stage_s(
            prefix_s, crossing_bytes, latency_s, byte_s, ends[depth], end, place, before
        )
        value = max(high[depth], taken)
        if end == layers:
            count += 1
            bottlenecks += value
            totals += total[depth] + taken
            if value < best:
                best = value
                best_count = depth + 1
                best_ends[:] = ends
                best_at[:] = at
            continue
        high[depth + 1] = value
        total[depth + 1] = total[depth] + taken
        used[depth + 1] = used[depth] | (1 << place)
        blocked[depth + 1] = blocked[depth] | conflicts[place]
        depth += 1
        at[depth] = NONE
        ends[depth + 1] = layers
    return best, best_ends[: best_count + 1], best_at[:best_count], count, bottlenecks, totals
