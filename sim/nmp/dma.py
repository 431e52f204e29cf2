"""The DMA engines: one a TLE, a queue each, one transfer at a time, one shared DRAM.

A transfer of B bursts and Y bytes keeps its engine busy for ``setup + B * burst_cycles +
Y / bytes_per_cycle`` and occupies the DRAM for ``B * cas_cycles + Y / dram.bytes_per_cycle``, in
chunks of a few bursts, first come, first served. Data arrives when the transfer is complete.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.isa.xnmp import DmaRegister
from tvm_npu.sim.nmp.compiled import device
from tvm_npu.sim.nmp.core import GO, IMM, RD, STOP, rs1, rs2, trap
from tvm_npu.sim.nmp.hazards import BOX, MULTICAST, STORES, transfer_clashes
from tvm_npu.sim.nmp.semaphores import SEM, SUB, add_tlt, wake
from tvm_npu.sim.nmp.state import QUEUE_FULL, Costs, Descriptor, State
from tvm_npu.sim.nmp.traps import TrapCode

_TOO_LARGE = int(TrapCode.TILE_TOO_LARGE)
_DRAM = int(TrapCode.DRAM_ACCESS)
_BAD = int(TrapCode.BAD_CONFIGURATION)
_MISALIGNED = int(TrapCode.MISALIGNED_ACCESS)
_WRONG_MEMORY = int(TrapCode.WRONG_MEMORY)
_SEMAPHORE = int(TrapCode.SEMAPHORE)

CHANNELS, ROWS, COLUMNS = (
    int(DmaRegister.CHANNELS), int(DmaRegister.ROWS), int(DmaRegister.COLUMNS),
)  # fmt: skip
CHANNEL_STRIDE, ROW_STRIDE = int(DmaRegister.CHANNEL_STRIDE), int(DmaRegister.ROW_STRIDE)
START_CHANNEL = int(DmaRegister.START_CHANNEL)
START_ROW, START_COLUMN = int(DmaRegister.START_ROW), int(DmaRegister.START_COLUMN)
BOX_CHANNELS, BOX_ROWS = int(DmaRegister.BOX_CHANNELS), int(DmaRegister.BOX_ROWS)
BOX_COLUMNS, FILL = int(DmaRegister.BOX_COLUMNS), int(DmaRegister.FILL)
ELEMENT_BYTES, SEGMENTS = int(DmaRegister.ELEMENT_BYTES), int(DmaRegister.SEGMENTS)
SEGMENT_BYTES = int(DmaRegister.SEGMENT_BYTES)
SEGMENT_STRIDE = int(DmaRegister.SEGMENT_STRIDE)

KIND, MEMORY, CORE, D_SEM = Descriptor.KIND, Descriptor.MEMORY, Descriptor.CORE, Descriptor.SEM
ADDRESS, LOCAL, SPAN = Descriptor.ADDRESS, Descriptor.LOCAL, Descriptor.SPAN
BURSTS, BYTES, LAYER = Descriptor.BURSTS, Descriptor.BYTES, Descriptor.LAYER
STREAM, PC, REGISTERS = Descriptor.STREAM, Descriptor.PC, Descriptor.REGISTERS

MB0, MB1, MB2, BIAS = 0, 1, 2, 3
LARGEST_EXTENT = 1 << 28
CHUNK_BURSTS = 16


@device
def nmp_dcfg(s: State, m: Costs, core: int, row: int) -> int:
    s.dma[core, s.decoded[row, RD]] = rs1(s, core, row)
    return GO


@device
def nmp_dcfgi(s: State, m: Costs, core: int, row: int) -> int:
    s.dma[core, s.decoded[row, RD]] = s.decoded[row, IMM]
    return GO


@device
def bursts_of(size: int, m: Costs) -> int:
    return (size + m.burst_bytes - 1) // m.burst_bytes


@device
def box_traffic(r: np.ndarray, m: Costs) -> tuple[int, int, int, int]:  # type: ignore[type-arg]
    """(bursts, bytes, first and last byte touched relative to the tensor) of a box transfer.

    Rows that span the full width of the tensor are one contiguous segment a channel."""
    size = r[ELEMENT_BYTES]
    c0, c1 = max(r[START_CHANNEL], 0), min(r[START_CHANNEL] + r[BOX_CHANNELS], r[CHANNELS])
    h0, h1 = max(r[START_ROW], 0), min(r[START_ROW] + r[BOX_ROWS], r[ROWS])
    w0, w1 = max(r[START_COLUMN], 0), min(r[START_COLUMN] + r[BOX_COLUMNS], r[COLUMNS])
    if c1 <= c0 or h1 <= h0 or w1 <= w0:
        return 0, 0, 0, 0
    row_bytes = (w1 - w0) * size
    total = (c1 - c0) * (h1 - h0) * row_bytes
    if row_bytes == r[ROW_STRIDE]:
        bursts = (c1 - c0) * bursts_of((h1 - h0) * row_bytes, m)
    else:
        bursts = (c1 - c0) * (h1 - h0) * bursts_of(row_bytes, m)
    first = c0 * r[CHANNEL_STRIDE] + h0 * r[ROW_STRIDE] + w0 * size
    last = (c1 - 1) * r[CHANNEL_STRIDE] + (h1 - 1) * r[ROW_STRIDE] + w1 * size
    return bursts, total, first, last


@device
def bad_register(s: State, core: int, first: int, last: int, low: int, high: int) -> bool:
    for register in range(first, last + 1):
        value = s.dma[core, register]
        if value < low or value > high:
            trap(s, core, _BAD, value, 0, register, 0)
            return True
    return False


@device
def issue(s: State, m: Costs, core: int, row: int, kind: int) -> int:
    """Checks a DMA instruction and queues its descriptor at the TLE's engine."""
    tle = core // m.tlts
    if s.queue_count[tle] >= m.queue_depth:
        s.status[core] = QUEUE_FULL
        s.pc[core] -= 4
        return STOP
    if s.decoded[row, SEM] >= m.semaphores:
        return trap(s, core, _SEMAPHORE, 0, 1, s.decoded[row, SEM], 0)
    r = s.dma[core]
    memory = s.decoded[row, SUB]
    address, local = rs1(s, core, row) & 0xFFFF_FFFF, rs2(s, core, row)
    if bad_register(s, core, ELEMENT_BYTES, ELEMENT_BYTES, 1, 2):
        return STOP
    size = r[ELEMENT_BYTES]
    if kind & BOX:
        if bad_register(s, core, CHANNELS, ROW_STRIDE, 0, LARGEST_EXTENT):
            return STOP
        if bad_register(s, core, BOX_CHANNELS, BOX_COLUMNS, 0, LARGEST_EXTENT >> 8):
            return STOP
        bursts, total, first, last = box_traffic(r, m)
        elements = r[BOX_CHANNELS] * r[BOX_ROWS] * r[BOX_COLUMNS]
        local_bytes = elements * size
        even_first, even_last = CHANNEL_STRIDE, ROW_STRIDE
    else:
        if bad_register(s, core, SEGMENTS, SEGMENT_STRIDE, 0, LARGEST_EXTENT):
            return STOP
        total = r[SEGMENTS] * r[SEGMENT_BYTES]
        local_bytes = total
        first, last = 0, 0
        if total:
            last = (r[SEGMENTS] - 1) * r[SEGMENT_STRIDE] + r[SEGMENT_BYTES]
        if r[SEGMENTS] == 1 or r[SEGMENT_STRIDE] == r[SEGMENT_BYTES]:
            bursts = bursts_of(total, m)
        else:
            bursts = r[SEGMENTS] * bursts_of(r[SEGMENT_BYTES], m)
        even_first, even_last = SEGMENT_BYTES, SEGMENT_STRIDE
    if address % size:
        return trap(s, core, _MISALIGNED, address, size, 0, 0)
    for register in range(even_first, even_last + 1):
        if r[register] % size:
            return trap(s, core, _BAD, r[register], 0, register, 0)
    stores = kind & STORES != 0
    if stores != (memory == MB2):
        return trap(s, core, _WRONG_MEMORY, 0, 0, 0, memory)
    limit = m.mb0_bytes
    if memory == MB1:
        limit = m.mb1_bytes
    elif memory == MB2:
        limit, local = m.mb2_bytes, local * size
    elif memory == BIAS:
        limit = m.bias_bytes
    if local < 0 or local + local_bytes > limit:
        return trap(s, core, _TOO_LARGE, local, local + local_bytes, limit, memory)
    if local % size:
        return trap(s, core, _MISALIGNED, local, size, 0, 0)
    begin, end = address + first, address + last
    if total and (begin < m.dram_base or end > m.dram_base + m.dram_bytes):
        return trap(s, core, _DRAM, begin, end, 0, 0)
    d = s.queue[tle, (s.queue_head[tle] + s.queue_count[tle]) % m.queue_depth]
    d[KIND], d[MEMORY], d[CORE], d[D_SEM] = kind, memory, core, s.decoded[row, SEM]
    d[ADDRESS], d[LOCAL], d[SPAN] = address, local, local_bytes
    d[BURSTS], d[BYTES] = bursts, total
    d[LAYER], d[STREAM], d[PC] = s.layer_of[row], s.stream_of[row], s.pc[core] - 4
    d[REGISTERS : REGISTERS + len(r)] = r
    s.queue_count[tle] += 1
    if s.queue_count[tle] == 1:
        start(s, m, tle, s.time[core])
    return GO


@device
def start(s: State, m: Costs, tle: int, now: float) -> None:
    """The engine takes up the descriptor at the head of its queue."""
    d = s.queue[tle, s.queue_head[tle]]
    s.left_bursts[tle] = d[BURSTS]
    s.left_bytes[tle] = d[BYTES]
    s.time[m.cores + tle] = now + m.dme_setup
    direction = 1 if d[KIND] & STORES else 0
    s.layer_bytes[d[LAYER], d[STREAM], direction] += d[BYTES]
    s.layer_bursts[d[LAYER], d[STREAM], direction] += d[BURSTS]
    s.layer_dma_cycles[d[LAYER], tle] += m.dme_setup


@device
def advance(s: State, m: Costs, tle: int) -> bool:
    """One event of an engine: move a chunk, or complete the transfer. False after a trap."""
    actor = m.cores + tle
    now = s.time[actor]
    if s.left_bursts[tle] > 0:
        bursts = min(s.left_bursts[tle], CHUNK_BURSTS)
        size = s.left_bytes[tle] * bursts / s.left_bursts[tle]
        s.left_bursts[tle] -= bursts
        s.left_bytes[tle] -= size
        begin = max(now, s.dram_free[0])
        occupied = bursts * m.cas + size / m.dram_rate
        s.dram_free[0] = begin + occupied
        busy = max(occupied, bursts * m.dme_burst + size / m.dme_rate)
        s.time[actor] = begin + busy
        layer = s.queue[tle, s.queue_head[tle], LAYER]
        s.layer_dma_cycles[layer, tle] += begin + busy - now
        return True
    d = s.queue[tle, s.queue_head[tle]]
    if not complete(s, m, d, now):
        return False
    s.layer_end[d[LAYER]] = max(s.layer_end[d[LAYER]], now)
    s.queue_head[tle] = (s.queue_head[tle] + 1) % m.queue_depth
    s.queue_count[tle] -= 1
    for core in range(tle * m.tlts, (tle + 1) * m.tlts):
        if s.status[core] == QUEUE_FULL:
            wake(s, m, core, now)
    if s.queue_count[tle] > 0:
        start(s, m, tle, now)
    else:
        s.time[actor] = np.inf
    return True


@device
def complete(s: State, m: Costs, d: np.ndarray, now: float) -> bool:  # type: ignore[type-arg]
    """Moves the data of a finished transfer and signals the receivers."""
    core, kind = d[CORE], d[KIND]
    if kind & STORES:
        if transfer_clashes(s, d, core, now):
            return False
        if d[BYTES] == 0:
            pass
        elif kind & BOX:
            store_box(s, m, d)
        else:
            store_segments(s, m, d)
        if d[D_SEM] > 0:
            add_tlt(s, m, core, d[D_SEM], 1, now)
        return True
    first, last = core, core + 1
    if kind & MULTICAST:
        first = core // m.tlts * m.tlts
        last = first + m.tlts
    memory, local, size = d[MEMORY], d[LOCAL], d[SPAN]
    if memory == MB0 and size > 0:
        note_content(s, m, first, last, local, local + size)
    for receiver in range(first, last):
        if transfer_clashes(s, d, receiver, now):
            return False
        target = s.mb0[receiver]
        if memory == MB1:
            target = s.mb1[receiver]
        elif memory == BIAS:
            target = s.bias[receiver]
        if size == 0:
            pass
        elif receiver == first:
            if kind & BOX:
                load_box(s, m, d, target)
            else:
                load_segments(s, m, d, target)
        else:
            source = s.mb0[first]
            if memory == MB1:
                source = s.mb1[first]
            elif memory == BIAS:
                source = s.bias[first]
            target[local : local + size] = source[local : local + size]
    if d[D_SEM] > 0:
        for receiver in range(first, last):
            add_tlt(s, m, receiver, d[D_SEM], 1, now)
    return True


@device
def note_content(s: State, m: Costs, first: int, last: int, begin: int, end: int) -> None:
    """MB0 of these cores gets new content: the same for all in begin..end, and in what was the
    same before when that touches it. With one core all of MB0 is the same."""
    tags, spans = s.mb0_tag[first:last], s.mb0_span[first:last]
    joins = begin <= spans[0, 1] and spans[0, 0] <= end
    for k in range(1, last - first):
        joins = joins and tags[k] == tags[0]
    if last - first == 1:
        begin, end = 0, m.mb0_bytes
    elif joins:
        begin, end = min(begin, spans[0, 0]), max(end, spans[0, 1])
    s.tag_counter[0] += 1
    tags[:] = s.tag_counter[0]
    spans[:, 0] = begin
    spans[:, 1] = end


@device
def load_segments(s: State, m: Costs, d: np.ndarray, target: np.ndarray) -> None:  # type: ignore[type-arg]
    size = d[REGISTERS + SEGMENT_BYTES]
    at = d[LOCAL]
    for k in range(d[REGISTERS + SEGMENTS]):
        base = d[ADDRESS] - m.dram_base + k * d[REGISTERS + SEGMENT_STRIDE]
        for i in range(size):
            target[at + i] = np.int8(s.dram[base + i])
        at += size


@device
def load_box(s: State, m: Costs, d: np.ndarray, target: np.ndarray) -> None:  # type: ignore[type-arg]
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL]
    fill_low, fill_high = np.int8(r[FILL] & 0xFF), np.int8((r[FILL] >> 8) & 0xFF)
    w0 = max(r[START_COLUMN], 0)
    w1 = max(min(r[START_COLUMN] + r[BOX_COLUMNS], r[COLUMNS]), w0)
    row_bytes = r[BOX_COLUMNS] * size
    left = min((w0 - r[START_COLUMN]) * size, row_bytes)
    middle = min((w1 - w0) * size, row_bytes - left)
    for c in range(r[START_CHANNEL], r[START_CHANNEL] + r[BOX_CHANNELS]):
        for h in range(r[START_ROW], r[START_ROW] + r[BOX_ROWS]):
            inside = 0 <= c < r[CHANNELS] and 0 <= h < r[ROWS]
            begin = left if inside else row_bytes
            end = left + middle if inside else row_bytes
            for i in range(begin):
                target[at + i] = fill_low if size == 1 or i & 1 == 0 else fill_high
            if inside:
                base = d[ADDRESS] - m.dram_base + c * r[CHANNEL_STRIDE] + h * r[ROW_STRIDE]
                base += w0 * size
                for i in range(middle):
                    target[at + begin + i] = np.int8(s.dram[base + i])
            for i in range(end, row_bytes):
                target[at + i] = fill_low if size == 1 or i & 1 == 0 else fill_high
            at += row_bytes


@device
def store_segments(s: State, m: Costs, d: np.ndarray) -> None:  # type: ignore[type-arg]
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL] // size
    count = r[SEGMENT_BYTES] // size
    memory = s.mb2[d[CORE]]
    for k in range(r[SEGMENTS]):
        base = (d[ADDRESS] - m.dram_base + k * r[SEGMENT_STRIDE]) // size
        if size == 2:
            for i in range(count):
                s.dram_half[base + i] = np.int16(memory[at + i])
        else:
            for i in range(count):
                s.dram[base + i] = np.uint8(memory[at + i] & 0xFF)
        at += count


@device
def store_box(s: State, m: Costs, d: np.ndarray) -> None:  # type: ignore[type-arg]
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL] // size
    memory = s.mb2[d[CORE]]
    for c in range(r[START_CHANNEL], r[START_CHANNEL] + r[BOX_CHANNELS]):
        for h in range(r[START_ROW], r[START_ROW] + r[BOX_ROWS]):
            if 0 <= c < r[CHANNELS] and 0 <= h < r[ROWS]:
                base = d[ADDRESS] - m.dram_base + c * r[CHANNEL_STRIDE] + h * r[ROW_STRIDE]
                base = base // size + r[START_COLUMN]
                w0 = max(0, -r[START_COLUMN])
                w1 = min(r[BOX_COLUMNS], r[COLUMNS] - r[START_COLUMN])
                if size == 2:
                    for i in range(w0, w1):
                        s.dram_half[base + i] = np.int16(memory[at + i])
                else:
                    for i in range(w0, w1):
                        s.dram[base + i] = np.uint8(memory[at + i] & 0xFF)
            at += r[BOX_COLUMNS]


@device
def nmp_load(s: State, m: Costs, core: int, row: int) -> int:
    return issue(s, m, core, row, 0)


@device
def nmp_load3d(s: State, m: Costs, core: int, row: int) -> int:
    return issue(s, m, core, row, BOX)


@device
def nmp_mload(s: State, m: Costs, core: int, row: int) -> int:
    return issue(s, m, core, row, MULTICAST)


@device
def nmp_mload3d(s: State, m: Costs, core: int, row: int) -> int:
    return issue(s, m, core, row, MULTICAST | BOX)


@device
def nmp_store(s: State, m: Costs, core: int, row: int) -> int:
    return issue(s, m, core, row, STORES)


@device
def nmp_store3d(s: State, m: Costs, core: int, row: int) -> int:
    return issue(s, m, core, row, STORES | BOX)
