"""A good configuration of any number of layers and places: compiled greedy cuts under a bound."""

from __future__ import annotations

import numpy as np

from tvm_npu.pipelines.search.bottleneck import NONE, _stage_s, slowest_stage_s
from tvm_npu.sim.compiled import device, entry

HALVINGS = 20
"""Of the interval in which a start looks for its least bound."""


@device
def _fill(
    prefix_s, crossing_bytes, latency_s, byte_s, members, clashes, work, taste, bound_s,
    edges, served,
):  # fmt: skip
    """Stages that each take at most ``bound_s``, from the first layer on: the place comes next that
    does the most work for the time it offers. Returns their number, 0 where layers are left."""
    layers = prefix_s.shape[0] - 1
    used = np.zeros(members.shape[0], np.int64)
    blocked = np.zeros(clashes.shape[0], np.bool_)
    count = 0
    first = 0
    before = NONE
    while first < layers:
        chosen = NONE
        far = first
        best = 0.0
        for kind in range(members.shape[0]):
            place = members[kind, used[kind]]
            if place == NONE:
                continue
            if blocked[place]:
                continue
            low = first
            high = layers
            while low < high:
                end = (low + high + 1) // 2
                taken = _stage_s(
                    prefix_s, crossing_bytes, latency_s, byte_s, first, end, place, before
                )
                if taken <= bound_s:
                    low = end
                else:
                    high = end - 1
            if low == first:
                continue
            value = (work[low] - work[first]) * prefix_s[layers, place] * taste[count, kind]
            if low == layers:
                value = np.inf
            if value > best:
                chosen, far, best = kind, low, value
        if chosen == NONE:
            return 0
        before = members[chosen, used[chosen]]
        used[chosen] += 1
        blocked |= clashes[before]
        served[count] = before
        first = far
        count += 1
        edges[count] = first
    return count


@entry
def greedy_cuts(prefix_s, crossing_bytes, latency_s, byte_s, members, clashes, work, tastes):
    """The best of several starts, one for each of ``tastes`` [starts, stages, classes]: the least
    bound by bisection under which `_fill` ends. Returns the bottleneck, edges and places."""
    layers = prefix_s.shape[0] - 1
    places = prefix_s.shape[1]
    edges = np.zeros(places + 1, np.int64)
    served = np.zeros(places, np.int64)
    best_edges = np.zeros(2, np.int64)
    best_edges[1] = layers
    best_served = np.zeros(1, np.int64)
    best_served[0] = np.argmin(prefix_s[layers])
    best_s = prefix_s[layers, best_served[0]]
    for start in range(tastes.shape[0]):
        low = 0.0
        high = best_s
        for halving in range(HALVINGS):
            # The first try of a later start is whether it is any better.
            middle = high * 0.9999 if start > 0 and halving == 0 else 0.5 * (low + high)
            count = _fill(
                prefix_s, crossing_bytes, latency_s, byte_s, members, clashes, work, tastes[start],
                middle, edges, served,
            )  # fmt: skip
            if count == 0:
                if start > 0 and halving == 0:
                    break
                low = middle
                continue
            slowest = slowest_stage_s(
                prefix_s, crossing_bytes, latency_s, byte_s, edges, served, count
            )
            high = slowest
            if slowest < best_s:
                best_s = slowest
                best_edges = edges[: count + 1].copy()
                best_served = served[:count].copy()
    return best_s, best_edges, best_served
