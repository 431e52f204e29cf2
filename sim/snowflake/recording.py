"""Time that units spend, counted by layer and, in runs that record events, noted one by one.

A unit's number is its place in `SnowflakeMachine.units`: lanes of one kind, a cluster each.
"""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.spans import extent
from tvm_npu.sim.event_table import note_store, write_event
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.snowflake.columns import (
    EVENT_ROOM,
    LOAD,
    LOAD_LANE,
    MEMORY_LANE,
    STORE,
    STORE_LANE,
    SnowflakeEvent,
    T,
    V,
)
from tvm_npu.sim.snowflake.isa import WORD_BYTES, Buffer
from tvm_npu.sim.snowflake.state import Array, Costs, State

MASKS, A, B, W, OUT, MEMORY = (EventColumn.OWN + column for column in SnowflakeEvent)
WRITTEN_BIT, WBUF_BIT, ICACHE_BIT = 4, 8, 24
"""Where the parts of column MASKS begin."""


@device
def events_fit(s: State, m: Costs) -> bool:
    """Whether the table has room for all that one step can bring."""
    return not m.records or s.event_count[0] + EVENT_ROOM <= len(s.events)


@device
def note_wait(
    s: State, m: Costs, lane: int, c: int, row: int, begin: float, end: float, cause: int
) -> None:
    """A unit of cluster c could have gone on at ``begin``; ``row`` is what waits."""
    if end <= begin:
        return
    unit = lane * m.clusters + c
    s.layer_wait[s.layer_of[row], unit] += end - begin
    if m.records:
        s.events[write_event(s, unit, row, begin, end), EventColumn.WAITS] = cause


@device
def note_vector(
    s: State, m: Costs, lane: int, c: int, r: Array, begin: float, end: float
) -> None:
    """A vector operation occupies its unit."""
    unit = lane * m.clusters + c
    s.layer_busy[s.layer_of[r[V.ROW]], unit] += end - begin
    if m.records:
        event = s.events[write_event(s, unit, r[V.ROW], begin, end)]
        event[MASKS] = r[V.READ_MASK] | r[V.WRITE_MASK] << WRITTEN_BIT
        event[MASKS] |= r[V.READ_WBUFS] << WBUF_BIT
        event[A] = _packed(r[V.READ_A], r[V.READ_A_END])
        event[B] = _packed(r[V.READ_B], r[V.READ_B_END])
        event[W] = _packed(r[V.READ_W], r[V.READ_W_END])
        event[OUT] = _packed(r[V.WRITE], r[V.WRITE_END])


@device
def _packed(begin: int, end: int) -> int:
    return begin | end << 32


@device
def note_transfer(
    s: State, m: Costs, c: int, unit: int, r: Array, begin: float, end: float, moves: bool
) -> None:
    """The memory's turn of a transfer. ``moves``: its bytes count here, and not with another
    cluster's share of the same load."""
    lane = (LOAD_LANE if unit == LOAD else STORE_LANE) * m.clusters + c
    layer, memory_lane = s.layer_of[r[T.ROW]], MEMORY_LANE * m.clusters
    s.layer_busy[layer, lane] += end - begin
    if moves:
        s.layer_busy[layer, memory_lane] += end - begin
    if not m.records:
        return
    first, last = extent(r[T.PLACE], r[T.WORDS], r[T.RUNS], r[T.BUFFER_STEP])
    size = WORD_BYTES * r[T.WORDS]
    memory = _packed(*extent(r[T.MEMORY], size, r[T.RUNS], r[T.MEMORY_STEP]))
    event = s.events[write_event(s, lane, r[T.ROW], begin, end)]
    if r[T.BUFFER] == Buffer.ICACHE:
        event[MASKS] = 1 << ICACHE_BIT
        event[W] = _packed(2 * WORD_BYTES * first, 2 * WORD_BYTES * first + size)
    elif r[T.BUFFER] == Buffer.WBUF:
        event[MASKS], event[W] = r[T.WBUFS] << WBUF_BIT, _packed(first, last)
    elif r[T.BUFFER] == Buffer.MBUF and unit == LOAD:
        event[MASKS], event[OUT] = r[T.CUS] << WRITTEN_BIT, _packed(first, last)
    else:
        event[MASKS], event[A] = r[T.CUS], _packed(first, last)
    if unit == STORE:
        maker = c * m.cus
        while r[T.CUS] >> (maker - c * m.cus) & 1 == 0:
            maker += 1
        note_store(event, maker, r[T.MEMORY], size, r[T.RUNS], r[T.MEMORY_STEP], 1, 0)
    if moves:
        event[EventColumn.STREAM] = r[T.STREAM]
        event[EventColumn.BYTES] = size * r[T.RUNS]
        event[EventColumn.LINKS] = 1 if unit == LOAD else 2
        event = s.events[write_event(s, memory_lane, r[T.ROW], begin, end)]
        if r[T.BUFFER] != Buffer.ICACHE:  # code does not lie where addresses point to
            event[MEMORY] = memory
            event[MASKS] = 0 if unit == LOAD else 1
