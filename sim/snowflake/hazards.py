"""The race checker: what the program lets happen at the same time, whatever the times of this run.

An operation is pending until the program can know that it is complete: a `sync` behind it said so,
or a full queue. A new operation that touches what a pending one of another unit touches, one of
them writing, is a hazard; so is a vector instruction that reads what a pending one writes. Hazards
between clusters: `cluster_hazards`.
"""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.compiled.spans import extent
from tvm_npu.sim.snowflake.checks import GO, STOP, patterns_meet, spend, touches, trap
from tvm_npu.sim.snowflake.columns import (
    HULL,
    ISSUED,
    KNOWN,
    LOAD,
    MOST_HAZARDS,
    QUEUE,
    STORE,
    VECTOR,
    H,
    T,
    V,
)
from tvm_npu.sim.snowflake.isa import MOST_CUS, VMACS, WORD_BYTES, Buffer, MacMode
from tvm_npu.sim.snowflake.state import Array, Costs, State
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.traps import TrapMemory
from tvm_npu.sim.snowflake.vector_issue import MAC, VMOV

_EVERY_VMAC = (1 << VMACS) - 1
PAIR_WORK = 8
"""Of the comparison of two operations, or of two runs of them: some ns."""


@device
def record(
    s: State, m: Costs, earlier: int, before: int, later: int, c: int, memory: int, begin: int,
    end: int, cus: int,
) -> int:
    """A hazard of row ``later`` of cluster c; each pair of rows once. With ``strict`` it traps."""
    recorded = min(s.hazard_count[0], MOST_HAZARDS)
    if spend(s, c, later, recorded) == STOP:
        return STOP
    for k in range(recorded):
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
        return trap(s, c, later, Code.HAZARD, 0, 0, 0)
    return GO


@device
def know(s: State, c: int, unit: int, pending: int) -> None:
    """At most ``pending`` operations of a unit are incomplete now."""
    s.counts[c, unit, KNOWN] = max(s.counts[c, unit, KNOWN], s.counts[c, unit, ISSUED] - pending)


@device
def note(s: State, c: int, unit: int) -> None:
    """What the operation issued last touches joins the hull of what is pending."""
    issued, known, hull = s.counts[c, unit, ISSUED], s.counts[c, unit, KNOWN], s.hull[c, unit]
    if known >= issued - 1:
        hull[:] = 0
        hull[HULL.KNOWN] = issued - 1
    _join(s, c, unit, issued - 1, hull)


@device
def _join(s: State, c: int, unit: int, number: int, hull: Array) -> None:
    if unit == VECTOR:
        r = s.vector[c, number % QUEUE]
        _widen(hull, HULL.MBUF, r[V.WRITE], r[V.WRITE_END])
        return
    t = s.transfer[c, unit - LOAD, number % QUEUE]
    if t[T.BUFFER] != Buffer.ICACHE:
        begin, end = extent(t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP])
        _widen(hull, HULL.WBUF if t[T.BUFFER] == Buffer.WBUF else HULL.MBUF, begin, end)


@device
def _widen(hull: Array, at: int, begin: int, end: int) -> None:
    if begin >= end:
        return
    if hull[at] >= hull[at + 1]:
        hull[at], hull[at + 1] = begin, end
    else:
        hull[at], hull[at + 1] = min(hull[at], begin), max(hull[at + 1], end)


@device
def _near(hull: Array, unit: int, r: Array) -> bool:
    begin, end = hull[HULL.MBUF], hull[HULL.MBUF_END]
    if unit != VECTOR and max(begin, r[V.WRITE]) < min(end, r[V.WRITE_END]):
        return True
    if unit == STORE:
        return False
    if max(begin, r[V.READ_A]) < min(end, r[V.READ_A_END]):
        return True
    if max(begin, r[V.READ_B]) < min(end, r[V.READ_B_END]):
        return True
    return max(hull[HULL.WBUF], r[V.READ_W]) < min(hull[HULL.WBUF_END], r[V.READ_W_END])


@device
def _may_meet(s: State, c: int, unit: int, r: Array, issued: int) -> bool:
    """Whether a vector operation can meet pending ones of a unit, those before number ``issued``:
    what is far from all of them is seen at once."""
    known, hull = s.counts[c, unit, KNOWN], s.hull[c, unit]
    if known >= issued or not _near(hull, unit, r):
        return False
    if hull[HULL.KNOWN] < known:
        hull[:] = 0
        hull[HULL.KNOWN] = known
        for number in range(known, issued):
            _join(s, c, unit, number, hull)
    return _near(hull, unit, r)


@device
def check_vector(s: State, m: Costs, c: int) -> int:
    """The vector operation that was issued last against what is pending."""
    number = s.counts[c, VECTOR, ISSUED] - 1
    r = s.vector[c, number % QUEUE]
    for unit in (LOAD, STORE):
        issued = s.counts[c, unit, ISSUED]
        if _may_meet(s, c, unit, r, issued):
            known = s.counts[c, unit, KNOWN]
            if spend(s, c, r[V.ROW], PAIR_WORK * (issued - known)) == STOP:
                return STOP
            for k in range(known, issued):
                t = s.transfer[c, unit - LOAD, k % QUEUE]
                if _vector_and_transfer(s, m, c, r, t, unit == LOAD, t[T.ROW], r[V.ROW]) == STOP:
                    return STOP
    if _may_meet(s, c, VECTOR, r, number):
        known = s.counts[c, VECTOR, KNOWN]
        if spend(s, c, r[V.ROW], PAIR_WORK * (number - known)) == STOP:
            return STOP
        for k in range(known, number):
            if _vector_after_vector(s, m, c, s.vector[c, k % QUEUE], r) == STOP:
                return STOP
    note(s, c, VECTOR)
    return GO


@device
def check_transfer(s: State, m: Costs, c: int, unit: int) -> int:
    """The transfer that was issued last against what is pending."""
    t = s.transfer[c, unit - LOAD, (s.counts[c, unit, ISSUED] - 1) % QUEUE]
    note(s, c, unit)
    if t[T.BUFFER] == Buffer.ICACHE:
        return GO
    known, issued = s.counts[c, VECTOR, KNOWN], s.counts[c, VECTOR, ISSUED]
    if spend(s, c, t[T.ROW], PAIR_WORK * (issued - known)) == STOP:
        return STOP
    for k in range(known, issued):
        r = s.vector[c, k % QUEUE]
        if _vector_and_transfer(s, m, c, r, t, unit == LOAD, r[V.ROW], t[T.ROW]) == STOP:
            return STOP
    other = STORE if unit == LOAD else LOAD
    for k in range(s.counts[c, other, KNOWN], s.counts[c, other, ISSUED]):
        if _load_and_store(s, m, c, s.transfer[c, other - LOAD, k % QUEUE], t) == STOP:
            return STOP
    return GO


@device
def _vector_and_transfer(
    s: State, m: Costs, c: int, r: Array, t: Array, loads: bool, earlier: int, later: int
) -> int:
    """Rows ``earlier`` and ``later`` are those of the two. What a load writes must not be read or
    written, what a store reads must not be written."""
    if t[T.BUFFER] == Buffer.ICACHE:
        return GO
    begin, end = extent(t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP])
    if t[T.BUFFER] == Buffer.WBUF:
        wbufs = t[T.WBUFS] & r[V.READ_WBUFS]
        if wbufs and _meets(t, r[V.READ_W], r[V.READ_W_END]):
            cus = 0
            for u in range(m.cus):
                if wbufs >> VMACS * u & _EVERY_VMAC:
                    cus |= 1 << u
            begin, end = max(begin, r[V.READ_W]), min(end, r[V.READ_W_END])
            return record(s, m, earlier, c, later, c, Buffer.WBUF, begin, end, cus)
        return GO
    cus = t[T.CUS] & r[V.WRITE_MASK]
    if cus and _writes(r, t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP]):
        begin, end = max(begin, r[V.WRITE]), min(end, r[V.WRITE_END])
        return record(s, m, earlier, c, later, c, Buffer.MBUF, begin, end, cus)
    cus = t[T.CUS] & r[V.READ_MASK]
    if loads and cus:
        if r[V.KIND] == MAC and r[V.MODE] == MacMode.LANE:
            s.work[DONE] += PAIR_WORK * min(r[V.LENGTH], t[T.RUNS])
        if _reads_a(r, t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP]):
            begin, end = max(begin, r[V.READ_A]), min(end, r[V.READ_A_END])
            return record(s, m, earlier, c, later, c, Buffer.MBUF, begin, end, cus)
        if _meets(t, r[V.READ_B], r[V.READ_B_END]):
            begin, end = max(begin, r[V.READ_B]), min(end, r[V.READ_B_END])
            return record(s, m, earlier, c, later, c, Buffer.MBUF, begin, end, cus)
    return GO


@device
def _vector_after_vector(s: State, m: Costs, c: int, w: Array, r: Array) -> int:
    """``r`` must not read what ``w`` writes; what both write is written in order."""
    cus = w[V.WRITE_MASK] & r[V.READ_MASK]
    begin, end = w[V.WRITE], w[V.WRITE_END]
    if cus == 0 or begin >= end:
        return GO
    part, count = end - begin, 1
    if _is_by_cu(w):
        part, count = _part_words(w, end - begin), m.cus
    for u in range(count):
        if count > 1 and w[V.CUS] >> u & 1 == 0:
            continue
        first, last = begin + part * u, min(begin + part * (u + 1), end)
        if _reads_a(r, first, last - first, 1, 0):
            first, last = max(first, r[V.READ_A]), min(last, r[V.READ_A_END])
            return record(s, m, w[V.ROW], c, r[V.ROW], c, Buffer.MBUF, first, last, cus)
        if max(first, r[V.READ_B]) < min(last, r[V.READ_B_END]):
            first, last = max(first, r[V.READ_B]), min(last, r[V.READ_B_END])
            return record(s, m, w[V.ROW], c, r[V.ROW], c, Buffer.MBUF, first, last, cus)
    return GO


@device
def _meets(t: Array, begin: int, end: int) -> bool:
    """Whether a transfer touches words begin..end of its buffers."""
    if begin >= end:
        return False
    return touches(t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP], begin, end)


@device
def _is_by_cu(r: Array) -> bool:
    """Whether the results in one MBuf, or what `vmov` reads there, belong to several CUs."""
    if r[V.KIND] == VMOV:
        return r[V.FINISH] == 0
    return r[V.KIND] == MAC and r[V.MODE] == MacMode.COOP


@device
def _part_words(r: Array, words: int) -> int:
    """Of ``words`` in coop mode, those of a CU; the last one may have fewer."""
    return VMACS * (words // r[V.OUTPUTS])


@device
def _parts_meet(
    r: Array, begin: int, end: int, place: int, words: int, runs: int, step: int
) -> bool:
    """Whether runs meet the parts of begin..end that belong to CUs which take part."""
    part = _part_words(r, end - begin)
    for u in range(MOST_CUS):
        first, last = begin + part * u, min(begin + part * (u + 1), end)
        if r[V.CUS] >> u & 1 and first < last and touches(place, words, runs, step, first, last):
            return True
    return False


@device
def _writes(r: Array, place: int, words: int, runs: int, step: int) -> bool:
    """Whether a vector operation writes words of runs."""
    begin, end = r[V.WRITE], r[V.WRITE_END]
    if begin >= end or not touches(place, words, runs, step, begin, end):
        return False
    return not _is_by_cu(r) or _parts_meet(r, begin, end, place, words, runs, step)


@device
def _reads_a(r: Array, place: int, words: int, runs: int, step: int) -> bool:
    """Whether a vector operation's operand in MBuf lies on words of runs."""
    begin, end = r[V.READ_A], r[V.READ_A_END]
    if begin >= end or not touches(place, words, runs, step, begin, end):
        return False
    if r[V.KIND] == MAC and r[V.MODE] == MacMode.LANE:
        return patterns_meet(
            begin, r[V.OUTPUTS], r[V.LENGTH], r[V.LANE_STEP], place, words, runs, step
        )
    if r[V.KIND] == VMOV and _is_by_cu(r):
        return _parts_meet(r, begin, end, place, words, runs, step)
    return True


@device
def _load_and_store(s: State, m: Costs, c: int, p: Array, t: Array) -> int:
    """A pending transfer ``p`` of the other unit, and the one issued last: in MBuf and in
    memory."""
    if p[T.BUFFER] == Buffer.ICACHE:
        return GO
    s.work[DONE] += 2 * PAIR_WORK * min(t[T.RUNS], p[T.RUNS])
    cus = t[T.CUS] & p[T.CUS]
    if cus and t[T.BUFFER] == p[T.BUFFER] and patterns_meet(
        t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP],
        p[T.PLACE], p[T.WORDS], p[T.RUNS], p[T.BUFFER_STEP],
    ):  # fmt: skip
        begin, end = extent(t[T.PLACE], t[T.WORDS], t[T.RUNS], t[T.BUFFER_STEP])
        first, last = extent(p[T.PLACE], p[T.WORDS], p[T.RUNS], p[T.BUFFER_STEP])
        begin, end = max(begin, first), min(end, last)
        if record(s, m, p[T.ROW], c, t[T.ROW], c, Buffer.MBUF, begin, end, cus) == STOP:
            return STOP
    size, other = WORD_BYTES * t[T.WORDS], WORD_BYTES * p[T.WORDS]
    if patterns_meet(
        t[T.MEMORY], size, t[T.RUNS], t[T.MEMORY_STEP],
        p[T.MEMORY], other, p[T.RUNS], p[T.MEMORY_STEP],
    ):  # fmt: skip
        begin, end = extent(t[T.MEMORY], size, t[T.RUNS], t[T.MEMORY_STEP])
        first, last = extent(p[T.MEMORY], other, p[T.RUNS], p[T.MEMORY_STEP])
        begin, end = max(begin, first), min(end, last)
        return record(s, m, p[T.ROW], c, t[T.ROW], c, TrapMemory.MEMORY, begin, end, 0)
    return GO
