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

import numpy as np

from tvm_npu.sim.compiled.slices import EXECUTED, ran_away, slice_ends, spends
from tvm_npu.sim.parts.pl330.bursts import do_store, load, queue_store
from tvm_npu.sim.parts.pl330.state import (
    ACTION,
    ADD,
    ADD_NEGATIVE,
    CCR,
    COMPLETE,
    DAR,
    END,
    EVENT,
    HELD,
    IDLE,
    ILLEGAL,
    INFINITY,
    INSTRUCTIONS,
    LINE_MISSES,
    LOAD,
    LOOP,
    LOOP_END,
    LOW32,
    MASK,
    MATCH,
    MOVE,
    NEXT,
    OPERANDS,
    PAUSED,
    RAN_AWAY,
    READ_BARRIER,
    RUNNING,
    SAR,
    SEND_EVENT,
    SENT,
    SIGNALLED,
    SIZE,
    SPENT,
    STOPPED,
    STORE,
    TIME_REACHED,
    TRAPPED,
    WAIT_EVENT,
    WAITS_FOR_EVENT,
    WAITS_FOR_STORES,
    WRITE_BARRIER,
    device,
    entry,
    stop,
)
from tvm_npu.sim.parts.pl330.traps import DmacTrapCode as Code

INSTRUCTION_WORK = 64
"""An instruction, or the end of a store, takes about as long as so many bytes."""


@device
def _begin_loop(s, ch, counter, count, body):  # type: ignore[no-untyped-def]
    depth = s.nesting[ch, 0]
    if s.body[ch, counter] >= 0:
        stop(s, ch, Code.LOOP_NESTING, counter, 0, 0)
        return
    s.counter[ch, counter], s.body[ch, counter] = count - 1, body
    s.nesting[ch, 1 + depth] = counter
    s.nesting[ch, 0] = depth + 1


@device
def _end_loop(s, ch, counter, begin, behind):  # type: ignore[no-untyped-def]
    """Where the thread goes on."""
    depth = s.nesting[ch, 0]
    if depth == 0 or s.nesting[ch, depth] != counter or s.body[ch, counter] != begin:
        stop(s, ch, Code.LOOP_NESTING, counter, 0, 0)
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
def _ends_transfer(s, ch, event):  # type: ignore[no-untyped-def]
    """Whether the channel's transfer may send this event now; it does so once."""
    its = s.transfer[ch, EVENT]
    if event != its or s.transfer[ch, NEXT] == SENT or not s.transfer[ch, COMPLETE]:
        stop(s, ch, Code.TRANSFER_EVENT, event, its, 0)
        return False
    s.transfer[ch, NEXT] = SENT
    return True


@device
def _drained(s, ch):  # type: ignore[no-untyped-def]
    """Whether the channel's stores are complete or scheduled; else it waits for them."""
    if s.store_count[ch] > 0:
        s.status[ch] = WAITS_FOR_STORES
        return False
    return True


@device
def _fetch(s, m, ch, now):  # type: ignore[no-untyped-def]
    """(row of the table, word) of the instruction at a channel's pc; row -1 when its line has to
    come first or it trapped."""
    pc, size_of_code = s.pc[ch], s.code_bytes[ch]
    if pc >= size_of_code:
        stop(s, ch, Code.OUTSIDE_PROGRAM, size_of_code, 0, 0)
        return -1, np.int64(0)
    line = pc // m.line_bytes * len(s.status) + ch
    slot = (pc // m.line_bytes + ch) % len(s.tags)
    if s.tags[slot] != line and s.line[ch] != line:
        s.tags[slot], s.line[ch] = line, line
        s.counters[ch, LINE_MISSES] += 1
        s.ready[ch] = now + m.line
        return -1, np.int64(0)
    s.line[ch] = line
    first = s.code[ch, pc]
    row = s.row_of[first]
    size = s.table[row, SIZE] if row >= 0 else 0
    if row >= 0 and pc + size > size_of_code:
        stop(s, ch, Code.OUTSIDE_PROGRAM, size_of_code, 0, 0)
        return -1, np.int64(0)
    word = np.int64(0)
    for i in range(size):
        word |= np.int64(s.code[ch, pc + i]) << (8 * i)
    if row < 0 or word & s.table[row, MASK] != s.table[row, MATCH]:
        stop(s, ch, Code.UNDEFINED_INSTRUCTION, first, 0, 0)
        return -1, np.int64(0)
    return row, word


@device
def _move(s, m, ch, register, value):  # type: ignore[no-untyped-def]
    """DMAMOV; False when it trapped."""
    if register > DAR:
        stop(s, ch, Code.UNDEFINED_INSTRUCTION, s.code[ch, s.pc[ch]], 0, 0)
        return False
    if register == CCR:
        largest = max(1 << ((value >> 1) & 7), 1 << ((value >> 15) & 7))
        if largest > m.bus_bytes or value >> 28:
            stop(s, ch, Code.BAD_CONTROL, value, m.bus_bytes, 0)
            return False
    s.registers[ch, register] = value
    return True


@device
def _wait_event(s, ch, event, invalidates):  # type: ignore[no-untyped-def]
    """DMAWFE: takes an event that is pending, else waits for it."""
    if s.pending[event] and not s.to_core[event]:
        s.pending[event] = 0
    else:
        s.status[ch] = WAITS_FOR_EVENT
        s.waits_for[ch] = event
    if invalidates:
        s.line[ch] = -1
        for i in range(len(s.tags)):
            if s.tags[i] % len(s.status) == ch:
                s.tags[i] = -1


@device
def _execute(s, m, ch, now):  # type: ignore[no-untyped-def]
    """One instruction of a channel; the number of an event for the processor, else -1."""
    row, word = _fetch(s, m, ch, now)
    if row < 0:
        return -1
    k = OPERANDS
    a = ((word >> s.table[row, k]) & s.table[row, k + 1]) + s.table[row, k + 2]
    b = ((word >> s.table[row, k + 3]) & s.table[row, k + 4]) + s.table[row, k + 5]
    action = s.table[row, ACTION]
    after = now + m.instruction
    pc = s.pc[ch]
    next_pc = pc + s.table[row, SIZE]
    event = -1
    if action == LOAD:
        if not load(s, m, ch, now):
            return -1
    elif action == STORE:
        if not queue_store(s, m, ch, now):
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
        if not _move(s, m, ch, a, b):
            return -1
    elif action == READ_BARRIER:
        after = max(after, s.data_ready[ch])
    elif action == WRITE_BARRIER or action == END:
        if not _drained(s, ch):
            return -1
        after = max(after, s.store_done[ch])
        s.transfer[ch, COMPLETE] = 1
    elif action == SEND_EVENT or action == WAIT_EVENT:
        if a >= len(s.pending):
            stop(s, ch, Code.EVENT_NUMBER, a, len(s.pending) - 1, 0)
            return -1
        if action == SEND_EVENT:
            if s.transfer[ch, HELD] and not _ends_transfer(s, ch, a):
                return -1
            _send_event(s, a, after)
            event = a if s.to_core[a] else -1
        else:
            _wait_event(s, ch, a, b == 1)
    elif action == ILLEGAL:
        stop(s, ch, Code.UNDEFINED_INSTRUCTION, s.code[ch, pc], 0, 0)
        return -1
    s.pc[ch] = next_pc
    s.ready[ch] = after
    s.free[2] = now + m.instruction
    s.counters[ch, INSTRUCTIONS] += 1
    s.work[EXECUTED] += 1
    if action == END:
        s.status[ch] = STOPPED
        s.end[ch] = after
    return event


@entry
def run_until(s, m, until, wanted):  # type: ignore[no-untyped-def]
    """Does all that begins before ``until``, or up to what is wanted: the signal of event
    ``wanted`` to the processor, or the end of channel -2 - ``wanted``; -1: nothing. Why it
    stopped: TIME_REACHED, SIGNALLED, IDLE, TRAPPED, PAUSED (the slice ends), SPENT (no more work is
    allowed) or RAN_AWAY (no more instructions are)."""
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
        if slice_ends(s.work):
            return PAUSED
        if not spends(s.work, INSTRUCTION_WORK):
            return SPENT
        if stores:
            do_store(s, m, chosen)
            continue
        if ran_away(s.work):
            return RAN_AWAY
        s.last[0] = chosen
        event = _execute(s, m, chosen, earliest)
        if s.trap[0] != 0:
            return TRAPPED
        if event >= 0 and event == wanted:
            return SIGNALLED
        if wanted < -1 and s.status[-2 - wanted] == STOPPED:
            return SIGNALLED
