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


@entry
def shortest_bottleneck(prefix_s, crossing_bytes, latency_s, byte_s, conflicts, twin, one_link):
    """Least bottleneck over all configurations, and how it is reached.

    best[i, used, last]: the least bottleneck of layers before i on the places ``used``, the last of
    them ``last`` (one slot for all when every link is the same). Returns the value and, backwards,
    the first layers and places of the stages.
    """
    layers = prefix_s.shape[0] - 1
    places = prefix_s.shape[1]
    masks = 1 << places
    lasts = 1 if one_link else places
    best = np.full((layers + 1, masks, lasts), np.inf)
    parent = np.full((layers + 1, masks, lasts, 3), NONE, np.int32)
    blocked = np.zeros(masks, np.int64)
    for used in range(masks):
        for place in range(places):
            if used & (1 << place):
                blocked[used] |= conflicts[place]
    best[0, 0, 0] = 0.0
    whole = np.inf
    end_used = 0
    end_last = 0
    for first in range(layers):
        for used in range(masks):
            for slot in range(lasts):
                so_far = best[first, used, slot]
                if so_far >= whole:
                    continue
                for place in range(places):
                    if blocked[used] & (1 << place):
                        continue
                    if twin[place] >= 0 and not used & (1 << twin[place]):
                        continue
                    before = NONE
                    if first > 0:
                        before = slot
                        if one_link:  # any other place: all links are the same
                            before = 0 if place > 0 else 1
                    target = used | (1 << place)
                    goes = 0 if one_link else place
                    for end in range(first + 1, layers + 1):
                        value = max(
                            so_far,
                            _stage_s(
                                prefix_s, crossing_bytes, latency_s, byte_s,
                                first, end, place, before,
                            ),
                        )  # fmt: skip
                        if value >= whole:
                            break
                        if value < best[end, target, goes]:
                            best[end, target, goes] = value
                            parent[end, target, goes, 0] = first
                            parent[end, target, goes, 1] = place
                            parent[end, target, goes, 2] = slot
                            if end == layers:
                                whole = value
                                end_used = target
                                end_last = goes
    firsts = np.full(places, NONE, np.int64)
    served = np.full(places, NONE, np.int64)
    count = 0
    end, used, slot = layers, end_used, end_last
    while end > 0:
        first = parent[end, used, slot, 0]
        place = parent[end, used, slot, 1]
        firsts[count] = first
        served[count] = place
        count += 1
        slot = parent[end, used, slot, 2]
        used &= ~(1 << place)
        end = first
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
