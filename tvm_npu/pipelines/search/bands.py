"""What dynamic programming need not look at: for each set of places a band of layers.

Under a bound of the bottleneck, the places in use can be done with so many layers at most, and
those left must be able to do the rest. Between the two lies the band of the set: few layers where
the bound is near the optimum.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.pipelines.search.bottleneck import NONE, _stage_s, slowest_stage_s
from tvm_npu.sim.compiled import device, entry

HALVINGS = 12
"""Of the interval in which a closer bound is looked for."""
LEAST_SHARE = 0.5
"""Of the bound at first: where the interval begins."""


@entry
def bands(prefix_s, steps, bound_s):
    """For each set of ``steps`` (`PlaceClasses.steps`) the fewest and the most layers that may be
    done on it in a configuration whose bottleneck is below ``bound_s``; the fewest is above the
    most where there is none. Nothing below the bound is lost: transfers are left out, so that
    whatever a set can do, it can do after more layers, too."""
    layers = prefix_s.shape[0] - 1
    sets = steps.shape[0]
    fewest = np.full(sets, layers, np.int32)
    most = np.full(sets, NONE, np.int32)
    most[0] = 0
    for used in range(sets):
        first = most[used]
        if first < 0:
            continue
        for choice in range(steps.shape[1]):
            place = steps[used, choice, 0]
            if place == NONE:
                break
            low, high = first, layers
            while low < high:
                middle = (low + high + 1) // 2
                if prefix_s[middle, place] - prefix_s[first, place] < bound_s:
                    low = middle
                else:
                    high = middle - 1
            target = steps[used, choice, 2]
            most[target] = max(most[target], low)
    for used in range(sets - 1, -1, -1):
        for choice in range(steps.shape[1]):
            place = steps[used, choice, 0]
            if place == NONE:
                break
            end = fewest[steps[used, choice, 2]]
            low, high = 0, min(end, fewest[used])
            while low < high:
                middle = (low + high) // 2
                if prefix_s[end, place] - prefix_s[middle, place] < bound_s:
                    high = middle
                else:
                    low = middle + 1
            fewest[used] = min(fewest[used], low)
    return fewest, most


@entry
def least_bottleneck(prefix_s, crossing_bytes, latency_s, byte_s):
    """No configuration's bottleneck is below: every layer is in some stage, alone or not, behind
    the fastest link or at the beginning."""
    layers = prefix_s.shape[0] - 1
    places = prefix_s.shape[1]
    links = np.full((places, 2), np.inf)
    for place in range(places):
        for before in range(places):
            if before != place:
                links[place, 0] = min(links[place, 0], latency_s[before, place])
                links[place, 1] = min(links[place, 1], byte_s[before, place])
    least = 0.0
    for layer in range(layers):
        shortest = np.inf
        for place in range(places):
            for first in range(layer, -1, -1):
                taken = prefix_s[layer + 1, place] - prefix_s[first, place]
                if taken >= shortest:
                    break
                if first > 0:
                    if places == 1:
                        continue
                    taken += links[place, 0] + crossing_bytes[first - 1] * links[place, 1]
                shortest = min(shortest, taken)
        least = max(least, shortest)
    return least


@device
def _reach(
    prefix_s, crossing_bytes, latency_s, byte_s, steps, bound_s, reached, parents, edges, served
):  # fmt: skip
    """A configuration in which every stage is below ``bound_s`` and every set of places is done
    with as many layers as it can be: only one of the many, as its transfers may be the larger ones.
    Number of its stages, 0 where layers are left; ``edges`` and ``served`` backwards."""
    layers = prefix_s.shape[0] - 1
    reached[:] = NONE
    reached[0] = 0
    parents[0, 1] = NONE
    for used in range(steps.shape[0]):
        first = reached[used]
        if first < 0:
            continue
        for choice in range(steps.shape[1]):
            place = steps[used, choice, 0]
            if place == NONE:
                break
            target = steps[used, choice, 2]
            low, high = max(first, reached[target]), layers
            farther = low
            while low < high:
                end = (low + high + 1) // 2
                taken = _stage_s(
                    prefix_s, crossing_bytes, latency_s, byte_s, first, end, place, parents[used, 1]
                )
                if taken < bound_s:
                    low = end
                else:
                    high = end - 1
            if low == farther:
                continue
            reached[target] = low
            parents[target, 0] = used
            parents[target, 1] = place
            if low == layers:
                count = 0
                while target != 0:
                    edges[count] = reached[target]
                    served[count] = parents[target, 1]
                    target = parents[target, 0]
                    count += 1
                edges[count] = 0
                return count
    return 0


@entry
def farthest_cuts(prefix_s, crossing_bytes, latency_s, byte_s, steps, bound_s):
    """A close configuration below ``bound_s``, by bisection with `_reach`: its bottleneck, edges
    and places; no places where none is found."""
    places = prefix_s.shape[1]
    reached = np.empty(steps.shape[0], np.int32)
    parents = np.empty((steps.shape[0], 2), np.int32)
    edges = np.zeros(places + 1, np.int64)
    served = np.zeros(places, np.int64)
    best_edges = edges[:1].copy()
    best_served = served[:0].copy()
    low, high = LEAST_SHARE * bound_s, bound_s
    for halving in range(HALVINGS):
        middle = high if halving == 0 else 0.5 * (low + high)
        count = _reach(
            prefix_s, crossing_bytes, latency_s, byte_s, steps, middle, reached, parents, edges,
            served,
        )  # fmt: skip
        if count == 0:
            if halving == 0:
                break
            low = middle
            continue
        best_edges = edges[: count + 1][::-1].copy()
        best_served = served[:count][::-1].copy()
        high = slowest_stage_s(
            prefix_s, crossing_bytes, latency_s, byte_s, best_edges, best_served, count
        )
    return high, best_edges, best_served
