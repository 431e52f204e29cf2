"""Loads and stores of a channel: bursts between a memory and the channel's FIFO."""

from __future__ import annotations

from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.parts.pl330.state import (
    BEGIN,
    CCR,
    CHIP_SIDE,
    COMPLETE,
    DAR,
    DDR,
    FINISH,
    HELD,
    JUMPS,
    LOADED,
    LOADS,
    LOW32,
    MOST_RUNS,
    NEXT,
    ON_CHIP,
    RUNNING,
    SAR,
    SENT,
    STORED,
    STORES,
    WAITS_FOR_ROOM,
    WAITS_FOR_STORES,
    device,
    stop,
)
from tvm_npu.sim.parts.pl330.traps import DmacTrapCode as Code


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
        stop(s, ch, Code.UNALIGNED_BURST, address, beat, 0)
        return 0, 0, 0
    memory = _memory(s, m, address, span)
    if memory < 0:
        stop(s, ch, Code.OUTSIDE_MEMORY, address, span, 0)
        return 0, 0, 0
    if s.transfer[ch, HELD] and not _of_transfer(s, ch, side, memory, address, size, span):
        stop(s, ch, Code.OUTSIDE_TRANSFER, address, span, 0)
        return 0, 0, 0
    return size, span, increments


@device
def _of_transfer(s, ch, side, memory, address, size, span):  # type: ignore[no-untyped-def]
    """Whether a burst is one that the channel's transfer has now."""
    if s.transfer[ch, NEXT] == SENT:
        return False
    if side == s.transfer[ch, CHIP_SIDE]:
        return memory == ON_CHIP and address == s.transfer[ch, NEXT] and span == size
    begin, end = s.transfer[ch, BEGIN], s.transfer[ch, FINISH]
    return memory == DDR and begin <= address and address + span <= end


@device
def _goes_on(s, ch, side, size):  # type: ignore[no-untyped-def]
    """A burst is under way."""
    if side == s.transfer[ch, CHIP_SIDE]:
        s.transfer[ch, NEXT] += size
    if side == 1:
        s.transfer[ch, COMPLETE] = 0
    s.work[DONE] += size


@device
def load(s, m, ch, now):  # type: ignore[no-untyped-def]
    """DMALD; False when the channel has to wait or trapped."""
    size, span, increments = _burst(s, m, ch, 0)
    if size == 0:
        return False
    capacity = s.fifo.shape[1]
    if s.fifo_count[ch] + size > capacity:
        if s.store_count[ch] == 0:
            stop(s, ch, Code.FIFO_OVERFLOW, size, s.fifo_count[ch], capacity)
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
    _goes_on(s, ch, 0, size)
    s.counters[ch, LOADS] += 1
    s.counters[ch, LOADED] += size
    return True


@device
def queue_store(s, m, ch, now):  # type: ignore[no-untyped-def]
    """DMAST; False when the channel has to wait or trapped."""
    size, span, increments = _burst(s, m, ch, 1)
    if size == 0:
        return False
    if s.store_count[ch] == s.stores.shape[1]:
        s.status[ch] = WAITS_FOR_ROOM
        return False
    loaded = s.fifo_count[ch] - s.claimed[ch]
    if loaded < size:
        stop(s, ch, Code.FIFO_UNDERFLOW, size, loaded, 0)
        return False
    slot = (s.store_head[ch] + s.store_count[ch]) % s.stores.shape[1]
    address = s.registers[ch, DAR]
    s.stores[ch, slot, 0], s.stores[ch, slot, 1], s.stores[ch, slot, 2] = address, size, span
    s.store_ready[ch, slot] = max(now, s.data_ready[ch])
    s.store_count[ch] += 1
    s.claimed[ch] += size
    if increments:
        s.registers[ch, DAR] = (address + size) & LOW32
    _goes_on(s, ch, 1, size)
    s.counters[ch, STORES] += 1
    s.counters[ch, STORED] += size
    return True


@device
def _note_run(s, ch, begin, end):  # type: ignore[no-untyped-def]
    """A store wrote bytes begin..end of DDR."""
    count = s.run_count[ch]
    if 0 < count <= MOST_RUNS and s.runs[ch, count - 1, 1] == begin:
        s.runs[ch, count - 1, 1] = end
        return
    if count < MOST_RUNS:
        s.runs[ch, count, 0], s.runs[ch, count, 1] = begin, end
    s.run_count[ch] = count + 1


@device
def do_store(s, m, ch):  # type: ignore[no-untyped-def]
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
    if memory == DDR:
        _note_run(s, ch, begin, begin + span)
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
