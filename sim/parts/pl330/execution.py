"""The compiled heart of the controller: always what begins first goes next.

Two kinds of actors: a channel's thread, whose next instruction begins when the thread is ready and
the shared execution unit is free, and a channel's oldest waiting store, which asks for its memory
when its data has arrived. A memory serves requests in the order in which they are made. Ties go to
stores, then round-robin to the channel behind the one that had the last turn: a run is
deterministic and does not depend on the steps in which it is driven.

A load copies its bytes when it is issued, a store when it asks for its memory; neither has an
effect before `until`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim import compiled

Array = NDArray[Any]

ACTIONS = (
    "end", "nop", "load", "store", "read_barrier", "write_barrier", "loop", "loop_end",
    "send_event", "wait_event", "add", "add_negative", "move", "illegal",
)  # fmt: skip
"""Names of the semantic actions (`Instruction.execute`) in the order of the numbers below."""
END, NOP, LOAD, STORE, READ_BARRIER, WRITE_BARRIER, LOOP, LOOP_END = range(8)
SEND_EVENT, WAIT_EVENT, ADD, ADD_NEGATIVE, MOVE, ILLEGAL = range(8, 14)

STOPPED, RUNNING, WAITS_FOR_STORES, WAITS_FOR_ROOM, WAITS_FOR_EVENT = range(5)
TIME_REACHED, SIGNALLED, IDLE, TRAPPED = range(4)

SAR, CCR, DAR = range(3)
DDR, ON_CHIP = range(2)
(UNDEFINED, OUTSIDE_PROGRAM, OUTSIDE_MEMORY, UNALIGNED, BAD_CONTROL, NESTING, EVENT, OVERFLOW,
 UNDERFLOW) = range(1, 10)  # fmt: skip
"""`DmacTrapCode`s."""

INSTRUCTIONS, LOADS, STORES, LOADED, STORED, JUMPS, LINE_MISSES = range(7)
COUNTERS = 7

SIZE, MASK, MATCH, ACTION, OPERANDS = range(5)
"""Columns of the instruction table; from OPERANDS on (lowest bit, mask, bias) of a and b."""

INFINITY = np.inf
LOW32 = 0xFFFF_FFFF


class State(NamedTuple):
    """Arrays of the whole controller; the first axis is the channel where there is one."""

    table: Array  # int64 [instructions, OPERANDS + 6]
    row_of: Array  # int64 [256]: table row by an instruction's first byte, -1: none
    code: Array  # uint8 [channels, program_bytes]
    code_bytes: Array
    status: Array
    pc: Array
    line: Array  # the line that the thread reads; it keeps it when others take its slot
    ready: Array  # float64: when the thread can go on
    registers: Array  # int64 [channels, 3]: SAR, CCR, DAR
    counter: Array  # int64 [channels, 2]: rounds left behind this one
    body: Array  # int64 [channels, 2]: where the loop's body begins, -1: no loop
    nesting: Array  # int64 [channels, 3]: depth, then the open loops' counters
    fifo: Array  # uint8 [channels, fifo_bytes]
    fifo_head: Array
    fifo_count: Array
    claimed: Array  # bytes of the FIFO that waiting stores take
    data_ready: Array  # float64: when everything loaded has arrived
    stores: Array  # int64 [channels, store_queue, 3]: address, bytes, increments
    store_ready: Array  # float64 [channels, store_queue]
    store_head: Array
    store_count: Array
    store_done: Array  # float64: when the last store was complete
    next_ddr: Array  # int64 [channels, 2]: where the next sequential load and store would be
    waits_for: Array  # int64: event
    end: Array  # float64: when the program ended
    pending: Array  # uint8 [events]
    to_core: Array  # uint8 [events]: goes to the processor instead of to channels
    signal: Array  # float64 [events]
    tags: Array  # int64 [cache_lines]
    free: Array  # float64 [3]: DDR, on-chip memory, execution unit
    last: Array  # int64 [1]: channel of the last turn
    counters: Array  # int64 [channels, COUNTERS]
    trap: Array  # int64 [6]: code, channel, pc, a, b, c
    ddr: Array  # uint8
    on_chip: Array  # uint8


class Costs(NamedTuple):
    """`DmacTiming` and the memories' base addresses as plain numbers."""

    instruction: float
    line: float
    burst: float
    jump: float
    latency: float
    ddr_rate: float
    on_chip_rate: float
    bus_bytes: int
    line_bytes: int
    ddr_base: int
    on_chip_base: int


device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)
"""Nothing here allocates."""


@device
def _stop(s, ch, code, a, b, c):  # type: ignore[no-untyped-def]
    s.trap[0], s.trap[1], s.trap[2] = code, ch, s.pc[ch]
    s.trap[3], s.trap[4], s.trap[5] = a, b, c


@device
def _memory(s, m, address, size):  # type: ignore[no-untyped-def]
    """Which memory holds these bytes; -1: none."""
    if m.ddr_base <= address and address + size <= m.ddr_base + len(s.ddr):
        return DDR
    if m.on_chip_base <= address and address + size <= m.on_chip_base + len(s.on_chip):
        return ON_CHIP
    return -1


@device
def _occupy(s, m, ch, memory, address, size, stores, now):  # type: ignore[no-untyped-def]
    """Reserves a memory for a burst; when the burst is over there."""
    begin = max(now, s.free[memory])
    busy = m.burst
    if memory == DDR:
        busy += size / m.ddr_rate
        if address != s.next_ddr[ch, stores]:
            busy += m.jump
            s.counters[ch, JUMPS] += 1
        s.next_ddr[ch, stores] = address + size
    else:
        busy += size / m.on_chip_rate
    s.free[memory] = begin + busy
    return begin + busy


@device
def _burst(s, m, ch, side):  # type: ignore[no-untyped-def]
    """(bytes, span in memory, increments) of a burst by CCR; checks its address, (0, 0, 0) when it
    trapped. ``side``: 0 source, 1 destination."""
    control = s.registers[ch, CCR] >> (14 * side)
    beat = 1 << ((control >> 1) & 7)
    size = beat * (((control >> 4) & 15) + 1)
    increments = control & 1
    span = size if increments else beat
    address = s.registers[ch, DAR if side else SAR]
    if address % beat:
        _stop(s, ch, UNALIGNED, address, beat, 0)
        return 0, 0, 0
    if _memory(s, m, address, span) < 0:
        _stop(s, ch, OUTSIDE_MEMORY, address, span, 0)
        return 0, 0, 0
    return size, span, increments


@device
def _load(s, m, ch, now):  # type: ignore[no-untyped-def]
    """DMALD; False when the channel has to wait or trapped."""
    size, span, increments = _burst(s, m, ch, 0)
    if size == 0:
        return False
    capacity = s.fifo.shape[1]
    if s.fifo_count[ch] + size > capacity:
        if s.store_count[ch] == 0:
            _stop(s, ch, OVERFLOW, size, s.fifo_count[ch], capacity)
        s.status[ch] = WAITS_FOR_ROOM
        return False
    address = s.registers[ch, SAR]
    memory = _memory(s, m, address, span)
    source = s.ddr if memory == DDR else s.on_chip
    begin = address - (m.ddr_base if memory == DDR else m.on_chip_base)
    position = (s.fifo_head[ch] + s.fifo_count[ch]) % capacity
    if span == size:
        first = min(size, capacity - position)
        for i in range(first):
            s.fifo[ch, position + i] = source[begin + i]
        for i in range(first, size):
            s.fifo[ch, i - first] = source[begin + i]
    else:
        for i in range(size):
            s.fifo[ch, (position + i) % capacity] = source[begin + i % span]
    s.fifo_count[ch] += size
    over = _occupy(s, m, ch, memory, address, span, 0, now)
    if memory == DDR:
        over += m.latency
    s.data_ready[ch] = max(s.data_ready[ch], over)
    if increments:
        s.registers[ch, SAR] = (address + size) & LOW32
    s.counters[ch, LOADS] += 1
    s.counters[ch, LOADED] += size
    return True


@device
def _queue_store(s, m, ch, now):  # type: ignore[no-untyped-def]
    """DMAST; False when the channel has to wait or trapped."""
    size, span, increments = _burst(s, m, ch, 1)
    if size == 0:
        return False
    if s.store_count[ch] == s.stores.shape[1]:
        s.status[ch] = WAITS_FOR_ROOM
        return False
    loaded = s.fifo_count[ch] - s.claimed[ch]
    if loaded < size:
        _stop(s, ch, UNDERFLOW, size, loaded, 0)
        return False
    slot = (s.store_head[ch] + s.store_count[ch]) % s.stores.shape[1]
    address = s.registers[ch, DAR]
    s.stores[ch, slot, 0], s.stores[ch, slot, 1], s.stores[ch, slot, 2] = address, size, span
    s.store_ready[ch, slot] = max(now, s.data_ready[ch])
    s.store_count[ch] += 1
    s.claimed[ch] += size
    if increments:
        s.registers[ch, DAR] = (address + size) & LOW32
    s.counters[ch, STORES] += 1
    s.counters[ch, STORED] += size
    return True


@device
def _do_store(s, m, ch):  # type: ignore[no-untyped-def]
    """The oldest waiting store gets its memory."""
    slot = s.store_head[ch]
    address, size, span = s.stores[ch, slot, 0], s.stores[ch, slot, 1], s.stores[ch, slot, 2]
    memory = _memory(s, m, address, span)
    target = s.ddr if memory == DDR else s.on_chip
    begin = address - (m.ddr_base if memory == DDR else m.on_chip_base)
    capacity = s.fifo.shape[1]
    head = s.fifo_head[ch]
    if span == size:
        first = min(size, capacity - head)
        for i in range(first):
            target[begin + i] = s.fifo[ch, head + i]
        for i in range(first, size):
            target[begin + i] = s.fifo[ch, i - first]
    else:
        for i in range(size):
            target[begin + i % span] = s.fifo[ch, (head + i) % capacity]
    s.fifo_head[ch] = (head + size) % capacity
    s.fifo_count[ch] -= size
    s.claimed[ch] -= size
    over = _occupy(s, m, ch, memory, address, span, 1, s.store_ready[ch, slot])
    s.store_done[ch] = max(s.store_done[ch], over)
    s.store_head[ch] = (slot + 1) % s.stores.shape[1]
    s.store_count[ch] -= 1
    status = s.status[ch]
    if status == WAITS_FOR_ROOM or (status == WAITS_FOR_STORES and s.store_count[ch] == 0):
        s.status[ch] = RUNNING
        s.ready[ch] = max(s.ready[ch], s.store_done[ch])


@device
def _begin_loop(s, ch, counter, count, body):  # type: ignore[no-untyped-def]
    depth = s.nesting[ch, 0]
    if s.body[ch, counter] >= 0:
        _stop(s, ch, NESTING, counter, 0, 0)
        return
    s.counter[ch, counter], s.body[ch, counter] = count - 1, body
    s.nesting[ch, 1 + depth] = counter
    s.nesting[ch, 0] = depth + 1


@device
def _end_loop(s, ch, counter, begin, behind):  # type: ignore[no-untyped-def]
    """Where the thread goes on."""
    depth = s.nesting[ch, 0]
    if depth == 0 or s.nesting[ch, depth] != counter or s.body[ch, counter] != begin:
        _stop(s, ch, NESTING, counter, 0, 0)
        return behind
    if s.counter[ch, counter] > 0:
        s.counter[ch, counter] -= 1
        return begin
    s.body[ch, counter] = -1
    s.nesting[ch, 0] = depth - 1
    return behind


def send_event(s, event, now):  # type: ignore[no-untyped-def]
    """Wakes every channel that waits for it, else leaves it pending."""
    s.signal[event] = now
    woken = False
    if not s.to_core[event]:
        for ch in range(len(s.status)):
            if s.status[ch] == WAITS_FOR_EVENT and s.waits_for[ch] == event:
                s.status[ch] = RUNNING
                s.ready[ch] = max(s.ready[ch], now)
                s.waits_for[ch] = -1
                woken = True
    if not woken:
        s.pending[event] = 1


_send_event = device(send_event)


@device
def _drained(s, ch):  # type: ignore[no-untyped-def]
    """Whether the channel's stores are complete or scheduled; else it waits for them."""
    if s.store_count[ch] > 0:
        s.status[ch] = WAITS_FOR_STORES
        return False
    return True


@device
def _execute(s, m, ch, now):  # type: ignore[no-untyped-def]
    """One instruction of a channel; the number of an event for the processor, else -1."""
    pc, size_of_code = s.pc[ch], s.code_bytes[ch]
    if pc >= size_of_code:
        _stop(s, ch, OUTSIDE_PROGRAM, size_of_code, 0, 0)
        return -1
    line = pc // m.line_bytes * len(s.status) + ch
    slot = (pc // m.line_bytes + ch) % len(s.tags)
    if s.tags[slot] != line and s.line[ch] != line:
        s.tags[slot], s.line[ch] = line, line
        s.counters[ch, LINE_MISSES] += 1
        s.ready[ch] = now + m.line
        return -1
    s.line[ch] = line
    first = s.code[ch, pc]
    row = s.row_of[first]
    size = s.table[row, SIZE] if row >= 0 else 0
    if row >= 0 and pc + size > size_of_code:
        _stop(s, ch, OUTSIDE_PROGRAM, size_of_code, 0, 0)
        return -1
    word = np.int64(0)
    for i in range(size):
        word |= np.int64(s.code[ch, pc + i]) << (8 * i)
    if row < 0 or word & s.table[row, MASK] != s.table[row, MATCH]:
        _stop(s, ch, UNDEFINED, first, 0, 0)
        return -1
    k = OPERANDS
    a = ((word >> s.table[row, k]) & s.table[row, k + 1]) + s.table[row, k + 2]
    b = ((word >> s.table[row, k + 3]) & s.table[row, k + 4]) + s.table[row, k + 5]
    action = s.table[row, ACTION]
    after = now + m.instruction
    next_pc = pc + size
    event = -1
    if action == LOAD:
        if not _load(s, m, ch, now):
            return -1
    elif action == STORE:
        if not _queue_store(s, m, ch, now):
            return -1
    elif action == LOOP:
        _begin_loop(s, ch, a, b, next_pc)
    elif action == LOOP_END:
        next_pc = _end_loop(s, ch, a, pc - b, next_pc)
    elif action == ADD or action == ADD_NEGATIVE:
        register = DAR if a == 1 else SAR
        step = b if action == ADD else b - 0x10000
        s.registers[ch, register] = (s.registers[ch, register] + step) & LOW32
    elif action == MOVE:
        if a > DAR:
            _stop(s, ch, UNDEFINED, first, 0, 0)
            return -1
        if a == CCR:
            largest = max(1 << ((b >> 1) & 7), 1 << ((b >> 15) & 7))
            if largest > m.bus_bytes or b >> 28:
                _stop(s, ch, BAD_CONTROL, b, m.bus_bytes, 0)
                return -1
        s.registers[ch, a] = b
    elif action == READ_BARRIER:
        after = max(after, s.data_ready[ch])
    elif action == WRITE_BARRIER or action == END:
        if not _drained(s, ch):
            return -1
        after = max(after, s.store_done[ch])
    elif action == SEND_EVENT or action == WAIT_EVENT:
        if a >= len(s.pending):
            _stop(s, ch, EVENT, a, len(s.pending) - 1, 0)
            return -1
        if action == SEND_EVENT:
            _send_event(s, a, after)
            event = a if s.to_core[a] else -1
        elif s.pending[a] and not s.to_core[a]:
            s.pending[a] = 0
        else:
            s.status[ch] = WAITS_FOR_EVENT
            s.waits_for[ch] = a
        if action == WAIT_EVENT and b == 1:
            s.line[ch] = -1
            for i in range(len(s.tags)):
                if s.tags[i] % len(s.status) == ch:
                    s.tags[i] = -1
    elif action == ILLEGAL:
        _stop(s, ch, UNDEFINED, first, 0, 0)
        return -1
    s.pc[ch] = next_pc
    s.ready[ch] = after
    s.free[2] = now + m.instruction
    s.counters[ch, INSTRUCTIONS] += 1
    if action == END:
        s.status[ch] = STOPPED
        s.end[ch] = after
    return event


@entry
def run_until(s, m, until, wanted):  # type: ignore[no-untyped-def]
    """Does all that begins before ``until``, or up to what is wanted: the signal of event
    ``wanted`` to the processor, or the end of channel -2 - ``wanted``; -1: nothing. Why it
    stopped: TIME_REACHED, SIGNALLED, IDLE or TRAPPED."""
    channels = len(s.status)
    while True:
        earliest, chosen, stores = INFINITY, -1, False
        for k in range(channels):
            ch = (s.last[0] + 1 + k) % channels
            if s.store_count[ch] > 0:
                asked = s.store_ready[ch, s.store_head[ch]]
                if asked < earliest or (asked == earliest and not stores):
                    earliest, chosen, stores = asked, ch, True
            if s.status[ch] == RUNNING:
                begins = max(s.ready[ch], s.free[2])
                if begins < earliest:
                    earliest, chosen, stores = begins, ch, False
        if chosen < 0:
            return IDLE
        if earliest >= until:
            return TIME_REACHED
        if stores:
            _do_store(s, m, chosen)
            continue
        s.last[0] = chosen
        event = _execute(s, m, chosen, earliest)
        if s.trap[0] != 0:
            return TRAPPED
        if event >= 0 and event == wanted:
            return SIGNALLED
        if wanted < -1 and s.status[-2 - wanted] == STOPPED:
            return SIGNALLED
