"""The race checker: what the program lets happen at the same time, whatever the times of this run.

An operation is pending until the program can know that it is complete: a `sync` behind it said so,
or a full queue. A new operation that touches what a pending one of another unit touches, one of
them writing, is a hazard; so is a vector instruction that reads what a pending one writes. Between
clusters it is a hazard when one stores to what another touches without a barrier in between.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.snowflake.checks import GO, STOP, patterns_meet, spend, touches, trap
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.state import (
    ISSUED,
    KNOWN,
    LOAD,
    MOST_HAZARDS,
    QUEUE,
    STORE,
    VECTOR,
    Array,
    Costs,
    H,
    State,
    T,
    V,
)
from tvm_npu.sim.snowflake.transfers import ICACHE, MBUF, WBUF
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode, TrapMemory

_MEMORY = int(TrapMemory.MEMORY)
_HAZARD = int(SnowflakeTrapCode.HAZARD)


@device
def _record(
    s: State, m: Costs, earlier: int, before: int, later: int, c: int, memory: int, begin: int,
    end: int, cus: int,
) -> int:
    """A hazard of row ``later`` of cluster c; each pair of rows once. With ``strict`` it traps."""
    for k in range(min(s.hazard_count[0], MOST_HAZARDS)):
        h = s.hazards[k]
        if h[H.EARLIER] == earlier and h[H.LATER] == later and h[H.MEMORY] == memory:
            return GO
    if s.hazard_count[0] < MOST_HAZARDS:
        h = s.hazards[s.hazard_count[0]]
        h[H.EARLIER], h[H.EARLIER_CLUSTER] = earlier, before
        h[H.LATER], h[H.LATER_CLUSTER] = later, c
        h[H.MEMORY], h[H.BEGIN], h[H.END], h[H.CUS] = memory, begin, end, cus
    s.hazard_count[0] += 1
    if m.strict:
        return trap(s, c, later, _HAZARD, 0, 0, 0)
    return GO


@device
def know(s: State, c: int, unit: int, pending: int) -> None:
    """At most ``pending`` operations of a unit are incomplete now."""
    s.counts[c, unit, KNOWN] = max(s.counts[c, unit, KNOWN], s.counts[c, unit, ISSUED] - pending)


@device
def _meets(r: Array, begin: int, end: int) -> bool:
    """Whether a transfer touches words begin..end of its buffers."""
    if begin >= end:
        return False
    return touches(r[T.PLACE], r[T.WORDS], r[T.RUNS], r[T.BUFFER_STEP], begin, end)


@device
def check_vector(s: State, m: Costs, c: int) -> int:
    """The vector operation that was issued last against what is pending."""
    number = s.counts[c, VECTOR, ISSUED] - 1
    r = s.vector[c, number % QUEUE]
    row = r[V.ROW]
    for k in range(s.counts[c, LOAD, KNOWN], s.counts[c, LOAD, ISSUED]):
        t = s.transfer[c, 0, k % QUEUE]
        cus = t[T.CUS] & (r[V.READ_MASK] | r[V.WRITE_MASK])
        if t[T.BUFFER] == WBUF:
            cus = t[T.CUS] & r[V.CUS]
            if cus and _meets(t, r[V.READ_W], r[V.READ_W_END]):
                if _record(s, m, t[T.ROW], c, row, c, WBUF, r[V.READ_W], r[V.READ_W_END], cus):
                    return STOP
        elif t[T.BUFFER] == MBUF and cus and _against(s, m, c, t, r, True):
            return STOP
    for k in range(s.counts[c, STORE, KNOWN], s.counts[c, STORE, ISSUED]):
        if _against(s, m, c, s.transfer[c, 1, k % QUEUE], r, False):
            return STOP
    for k in range(s.counts[c, VECTOR, KNOWN], number):
        w = s.vector[c, k % QUEUE]
        cus = w[V.WRITE_MASK] & r[V.READ_MASK]
        if cus == 0:
            continue
        begin, end = w[V.WRITE], w[V.WRITE_END]
        if max(begin, r[V.READ_A]) < min(end, r[V.READ_A_END]):
            if _record(s, m, w[V.ROW], c, row, c, MBUF, r[V.READ_A], r[V.READ_A_END], cus):
                return STOP
        elif max(begin, r[V.READ_B]) < min(end, r[V.READ_B_END]):
            if _record(s, m, w[V.ROW], c, row, c, MBUF, r[V.READ_B], r[V.READ_B_END], cus):
                return STOP
    return GO


@device
def _against(s: State, m: Costs, c: int, t: Array, r: Array, reads: bool) -> int:
    """A vector operation against a pending transfer from or to MBuf; ``reads``: what it reads
    counts, too."""
    written = t[T.CUS] & r[V.WRITE_MASK]
    if written and _meets(t, r[V.WRITE], r[V.WRITE_END]):
        return _record(
            s, m, t[T.ROW], c, r[V.ROW], c, MBUF, r[V.WRITE], r[V.WRITE_END], written
        )
    read = t[T.CUS] & r[V.READ_MASK]
    if reads and read:
        if _meets(t, r[V.READ_A], r[V.READ_A_END]):
            return _record(
                s, m, t[T.ROW], c, r[V.ROW], c, MBUF, r[V.READ_A], r[V.READ_A_END], read
            )
        if _meets(t, r[V.READ_B], r[V.READ_B_END]):
            return _record(
                s, m, t[T.ROW], c, r[V.ROW], c, MBUF, r[V.READ_B], r[V.READ_B_END], read
            )
    return GO


@device
def check_transfer(s: State, m: Costs, c: int, unit: int) -> int:
    """The transfer that was issued last against what is pending."""
    t = s.transfer[c, unit - LOAD, (s.counts[c, unit, ISSUED] - 1) % QUEUE]
    if t[T.BUFFER] == ICACHE:
        return GO
    for k in range(s.counts[c, VECTOR, KNOWN], s.counts[c, VECTOR, ISSUED]):
        if _after_vector(s, m, c, s.vector[c, k % QUEUE], t, unit == LOAD):
            return STOP
    other = STORE if unit == LOAD else LOAD
    for k in range(s.counts[c, other, KNOWN], s.counts[c, other, ISSUED]):
        p = s.transfer[c, other - LOAD, k % QUEUE]
        if p[T.BUFFER] == ICACHE:
            continue
        cus = t[T.CUS] & p[T.CUS]
        if cus and t[T.BUFFER] == p[T.BUFFER] and patterns_meet(
            t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP],
            p[T.PLACE], p[T.WORDS], p[T.RUNS], p[T.BUFFER_STEP],
        ):  # fmt: skip
            if _transfer_hazard(s, m, c, p, t, MBUF, cus):
                return STOP
        if patterns_meet(
            t[T.MEMORY], WORD_BYTES * t[T.WORDS], t[T.RUNS], t[T.MEMORY_STEP],
            p[T.MEMORY], WORD_BYTES * p[T.WORDS], p[T.RUNS], p[T.MEMORY_STEP],
        ):  # fmt: skip
            if _transfer_hazard(s, m, c, p, t, _MEMORY, 0):
                return STOP
    return GO


@device
def _transfer_hazard(
    s: State, m: Costs, c: int, p: Array, t: Array, memory: int, cus: int
) -> int:
    begin, step, size = t[T.PLACE], t[T.BUFFER_STEP], t[T.WORDS]
    if memory == _MEMORY:
        begin, step, size = t[T.MEMORY], t[T.MEMORY_STEP], WORD_BYTES * t[T.WORDS]
    far = (t[T.RUNS] - 1) * step
    begin, end = begin + min(0, far), begin + max(0, far) + size
    return _record(s, m, p[T.ROW], c, t[T.ROW], c, memory, begin, end, cus)


@device
def _after_vector(s: State, m: Costs, c: int, r: Array, t: Array, loads: bool) -> int:
    """A transfer against a pending vector operation; ``loads``: it writes to the buffers."""
    if t[T.BUFFER] == WBUF:
        cus = t[T.CUS] & r[V.CUS]
        if cus and _meets(t, r[V.READ_W], r[V.READ_W_END]):
            return _record(
                s, m, r[V.ROW], c, t[T.ROW], c, WBUF, r[V.READ_W], r[V.READ_W_END], cus
            )
        return GO
    cus = t[T.CUS] & r[V.WRITE_MASK]
    if cus and _meets(t, r[V.WRITE], r[V.WRITE_END]):
        return _record(s, m, r[V.ROW], c, t[T.ROW], c, MBUF, r[V.WRITE], r[V.WRITE_END], cus)
    cus = t[T.CUS] & r[V.READ_MASK]
    if loads and cus:
        if _meets(t, r[V.READ_A], r[V.READ_A_END]):
            return _record(
                s, m, r[V.ROW], c, t[T.ROW], c, MBUF, r[V.READ_A], r[V.READ_A_END], cus
            )
        if _meets(t, r[V.READ_B], r[V.READ_B_END]):
            return _record(
                s, m, r[V.ROW], c, t[T.ROW], c, MBUF, r[V.READ_B], r[V.READ_B_END], cus
            )
    return GO


@device
def has_room(s: State, m: Costs, c: int) -> bool:
    """Whether one more transfer of a cluster can be logged."""
    return m.clusters == 1 or max(s.log_count[c, 0], s.log_count[c, 1]) < s.log.shape[2]


@device
def log_transfer(s: State, c: int, unit: int) -> None:
    """Remembers the transfer that was issued last until the next barrier."""
    way = unit - LOAD
    t = s.transfer[c, way, (s.counts[c, unit, ISSUED] - 1) % QUEUE]
    if t[T.BUFFER] == ICACHE:
        return
    entry = s.log[c, way, s.log_count[c, way]]
    entry[0], entry[1], entry[2] = t[T.ROW], t[T.MEMORY], WORD_BYTES * t[T.WORDS]
    entry[3], entry[4] = t[T.RUNS], t[T.MEMORY_STEP]
    s.log_count[c, way] += 1


@device
def _bounds(entry: Array) -> tuple[int, int]:
    far = (entry[3] - 1) * entry[4]
    return entry[1] + min(0, far), entry[1] + max(0, far) + entry[2]


@device
def check_clusters(s: State, m: Costs) -> int:
    """What clusters have moved since the last barrier, against each other; forgets it then."""
    for a in range(m.clusters):
        count = s.log_count[a, 1]
        if count == 0:
            continue
        begins = np.empty(count, np.int64)
        for k in range(count):
            begins[k] = _bounds(s.log[a, 1, k])[0]
        order = np.argsort(begins)
        begins = begins[order]
        reach = np.empty(count, np.int64)  # the farthest end of this and all before it
        for k in range(count):
            end = _bounds(s.log[a, 1, order[k]])[1]
            reach[k] = max(end, reach[k - 1]) if k else end
        for b in range(m.clusters):
            for way in range(2):
                if b == a or (way == 1 and b < a):
                    continue  # two stores are compared once
                if _check_pair(s, m, a, b, way, begins, order, reach) == STOP:
                    return STOP
    s.log_count[:] = 0
    return GO


@device
def _check_pair(
    s: State, m: Costs, a: int, b: int, way: int, begins: Array, order: Array, reach: Array
) -> int:
    """Stores of cluster a against transfers of cluster b."""
    for k in range(s.log_count[b, way]):
        entry = s.log[b, way, k]
        low, high = _bounds(entry)
        at = np.searchsorted(begins, high) - 1
        while at >= 0 and reach[at] > low:
            stored = s.log[a, 1, order[at]]
            if spend(s, b, entry[0], 1 + min(entry[3], stored[3])) == STOP:
                return STOP
            if patterns_meet(
                stored[1], stored[2], stored[3], stored[4], entry[1], entry[2], entry[3], entry[4]
            ):
                if _record(s, m, stored[0], a, entry[0], b, _MEMORY, low, high, 0) == STOP:
                    return STOP
            at -= 1
    return GO
