"""The race checker between clusters: it is a hazard when one stores to what another touches without
a barrier in between. A log keeps what clusters move until the next barrier.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.reductions import count_below
from tvm_npu.sim.compiled.slices import slice_ends
from tvm_npu.sim.compiled.spans import extent
from tvm_npu.sim.snowflake.checks import GO, GROW, STOP, patterns_meet, spend, trap
from tvm_npu.sim.snowflake.columns import ISSUED, LOAD, MOST_LOG, QUEUE, T
from tvm_npu.sim.snowflake.hazards import PAIR_WORK, record
from tvm_npu.sim.snowflake.isa import WORD_BYTES, Buffer
from tvm_npu.sim.snowflake.state import Array, Costs, State
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.traps import TrapMemory

_SORT_WORK = _SEARCH_WORK = 64
"""Of an entry of a log that is sorted, or searched for among the sorted ones."""

_PLACE, _ENTRY, _STEPS = range(3)
"""Columns of `State.checked`: how far the clusters' check has come (for each cluster: its stores
are sorted, then two places for each cluster); entries of the next log that are compared; stores
that are compared with the next entry."""


@device
def has_room(s: State, m: Costs, c: int) -> bool:
    """Whether one more transfer of a cluster can be logged, or traps (`log_transfer`)."""
    longest = max(s.log_count[c, 0], s.log_count[c, 1])
    return m.clusters == 1 or longest < s.log.shape[2] or longest >= MOST_LOG


@device
def log_transfer(s: State, c: int, unit: int) -> int:
    """Remembers the transfer that was issued last until the next barrier."""
    way = unit - LOAD
    t = s.transfer[c, way, (s.counts[c, unit, ISSUED] - 1) % QUEUE]
    if t[T.BUFFER] == Buffer.ICACHE:
        return GO
    if s.log_count[c, way] >= MOST_LOG:
        return trap(s, c, t[T.ROW], Code.NO_BARRIER, MOST_LOG, 0, 0)
    entry = s.log[c, way, s.log_count[c, way]]
    entry[0], entry[1], entry[2] = t[T.ROW], t[T.MEMORY], WORD_BYTES * t[T.WORDS]
    entry[3], entry[4] = t[T.RUNS], t[T.MEMORY_STEP]
    s.log_count[c, way] += 1
    return GO


@device
def _bounds(entry: Array) -> tuple[int, int]:
    return extent(entry[1], entry[2], entry[3], entry[4])


@device
def check_clusters(s: State, m: Costs) -> int:
    """What clusters have moved since the last barrier, against each other; forgets it then. GROW:
    another call goes on where this one was when the slice ended."""
    places = 1 + 2 * m.clusters
    for a in range(m.clusters):
        count, first = s.log_count[a, 1], places * a
        if count == 0 or s.checked[_PLACE] >= first + places:
            continue
        if slice_ends(s.work):
            return GROW
        if s.checked[_PLACE] <= first:
            s.checked[_PLACE] = first + 1
            if spend(s, a, s.log[a, 1, count - 1, 0], _SORT_WORK * count) == STOP:
                return STOP
        begins, order, reach = _sorted_stores(s, a, count)
        for place in range(s.checked[_PLACE], first + places):
            b, way = (place - first - 1) // 2, (place - first - 1) % 2
            s.checked[_PLACE] = place
            if b == a or (way == 1 and b < a):
                continue  # two stores are compared once
            outcome = _check_pair(s, m, a, b, way, begins, order, reach)
            if outcome != GO:
                return outcome
        s.checked[_PLACE] = first + places
    s.log_count[:] = 0
    s.checked[:] = 0
    return GO


@device
def _sorted_stores(s: State, a: int, count: int) -> tuple[Array, Array, Array]:
    """Of a cluster's stores by their begins: begins, places in the log, and how far each and those
    before it reach."""
    begins = np.empty(count, np.int64)
    for k in range(count):
        begins[k] = _bounds(s.log[a, 1, k])[0]
    # Quicksort takes minutes where a program has chosen the order.
    order = np.argsort(begins, kind="mergesort")
    begins = begins[order]
    reach = np.empty(count, np.int64)
    for k in range(count):
        end = _bounds(s.log[a, 1, order[k]])[1]
        reach[k] = max(end, reach[k - 1]) if k else end
    return begins, order, reach


@device
def _check_pair(
    s: State, m: Costs, a: int, b: int, way: int, begins: Array, order: Array, reach: Array
) -> int:
    """Stores of cluster a against transfers of cluster b, from where the last slice ended."""
    for k in range(s.checked[_ENTRY], s.log_count[b, way]):
        entry = s.log[b, way, k]
        s.checked[_ENTRY] = k
        if slice_ends(s.work):
            return GROW
        low, high = _bounds(entry)
        at = count_below(begins, high) - 1 - s.checked[_STEPS]
        while at >= 0 and reach[at] > low:
            if slice_ends(s.work):
                return GROW
            stored = s.log[a, 1, order[at]]
            if spend(s, b, entry[0], PAIR_WORK * (1 + min(entry[3], stored[3]))) == STOP:
                return STOP
            if patterns_meet(
                stored[1], stored[2], stored[3], stored[4], entry[1], entry[2], entry[3], entry[4]
            ):
                first, last = _bounds(stored)
                first, last = max(low, first), min(high, last)
                memory = TrapMemory.MEMORY
                if record(s, m, stored[0], a, entry[0], b, memory, first, last, 0) == STOP:
                    return STOP
            at -= 1
            s.checked[_STEPS] += 1
        s.checked[_STEPS] = 0
        if spend(s, b, entry[0], _SEARCH_WORK) == STOP:
            return STOP
    s.checked[_ENTRY] = 0
    return GO
