"""The DMA instructions: what they check, and the descriptors that they queue."""

from __future__ import annotations

from tvm_npu.sim.compiled.arrays import copy_into
from tvm_npu.sim.compiled.spans import product, reach, volume
from tvm_npu.sim.nmp.columns import QUEUE_FULL
from tvm_npu.sim.nmp.core import GO, IMM, RD, STOP, may_load, may_store, rs1, rs2, spend, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.dma import (
    BIAS,
    BURSTS,
    BYTES,
    CORE,
    D_SEM,
    EVENT,
    KIND,
    LAYER,
    LOCAL,
    MB0,
    MB1,
    MB2,
    MEMORY,
    SPAN,
    STREAM,
    TLES,
    TLTS,
    crosses,
    start,
)
from tvm_npu.sim.nmp.environment import meets_code, note_stored
from tvm_npu.sim.nmp.hazards import (
    BOX,
    FORWARDS,
    MULTICAST,
    PC,
    STORES,
    USED,
    USED_SPAN,
    transfer_clashes,
    transfers_race,
)
from tvm_npu.sim.nmp.recording import record_transfer
from tvm_npu.sim.nmp.scalar import LOW32
from tvm_npu.sim.nmp.semaphores import SEM, SUB
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.transfers import ADDRESS, REGISTERS
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.xnmp import DmaRegister as Reg

LARGEST_EXTENT = 1 << 28


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
def box_traffic(r: Array, m: Costs) -> tuple[int, int, int, int]:
    """(bursts, bytes, first and last byte touched relative to the tensor) of a box transfer.

    Rows that span the full width of the tensor are one contiguous segment a channel."""
    size = r[Reg.ELEMENT_BYTES]
    c0, h0, w0 = max(r[Reg.START_CHANNEL], 0), max(r[Reg.START_ROW], 0), max(r[Reg.START_COLUMN], 0)
    c1 = min(r[Reg.START_CHANNEL] + r[Reg.BOX_CHANNELS], r[Reg.CHANNELS])
    h1 = min(r[Reg.START_ROW] + r[Reg.BOX_ROWS], r[Reg.ROWS])
    w1 = min(r[Reg.START_COLUMN] + r[Reg.BOX_COLUMNS], r[Reg.COLUMNS])
    if c1 <= c0 or h1 <= h0 or w1 <= w0:
        return 0, 0, 0, 0
    row_bytes = (w1 - w0) * size
    total = volume(c1 - c0, h1 - h0, row_bytes)
    if row_bytes == r[Reg.ROW_STRIDE]:
        bursts = (c1 - c0) * bursts_of((h1 - h0) * row_bytes, m)
    else:
        bursts = (c1 - c0) * (h1 - h0) * bursts_of(row_bytes, m)
    first = product(c0, r[Reg.CHANNEL_STRIDE]) + product(h0, r[Reg.ROW_STRIDE]) + w0 * size
    last = reach(reach(w1 * size, h1, r[Reg.ROW_STRIDE]), c1, r[Reg.CHANNEL_STRIDE])
    return bursts, total, first, last


@device
def bad_register(s: State, core: int, first: int, last: int, low: int, high: int) -> bool:
    for register in range(first, last + 1):
        value = s.dma[core, register]
        if value < low or value > high:
            trap(s, core, Code.BAD_CONFIGURATION, value, 0, register, 0)
            return True
    return False


@device
def extent(s: State, m: Costs, core: int, kind: int) -> tuple[int, int, int, int, int]:
    """What the configuration registers say: (bytes on chip, bursts, bytes moved, first and last
    byte touched relative to the address); bytes on chip -1 after a trap."""
    r = s.dma[core]
    if bad_register(s, core, Reg.ELEMENT_BYTES, Reg.ELEMENT_BYTES, 1, 2):
        return -1, 0, 0, 0, 0
    size = r[Reg.ELEMENT_BYTES]
    if kind & BOX:
        if bad_register(s, core, Reg.CHANNELS, Reg.ROW_STRIDE, 0, LARGEST_EXTENT):
            return -1, 0, 0, 0, 0
        if bad_register(s, core, Reg.BOX_CHANNELS, Reg.BOX_COLUMNS, 0, LARGEST_EXTENT >> 8):
            return -1, 0, 0, 0, 0
        bursts, total, first, last = box_traffic(r, m)
        elements = volume(r[Reg.BOX_CHANNELS], r[Reg.BOX_ROWS], r[Reg.BOX_COLUMNS])
        local_bytes = product(elements, size)
        return local_bytes, bursts, total, first, last
    if bad_register(s, core, Reg.SEGMENTS, Reg.SEGMENT_STRIDE, 0, LARGEST_EXTENT):
        return -1, 0, 0, 0, 0
    total = product(r[Reg.SEGMENTS], r[Reg.SEGMENT_BYTES])
    last = reach(r[Reg.SEGMENT_BYTES], r[Reg.SEGMENTS], r[Reg.SEGMENT_STRIDE])
    if r[Reg.SEGMENTS] == 1 or r[Reg.SEGMENT_STRIDE] == r[Reg.SEGMENT_BYTES]:
        bursts = bursts_of(total, m)
    else:
        bursts = r[Reg.SEGMENTS] * bursts_of(r[Reg.SEGMENT_BYTES], m)
    return total, bursts, total, 0, last


@device
def odd_register(s: State, core: int, kind: int) -> bool:
    """Whether a stride or length is no whole number of elements; then it traps."""
    first, last = Reg.SEGMENT_BYTES, Reg.SEGMENT_STRIDE
    if kind & BOX:
        first, last = Reg.CHANNEL_STRIDE, Reg.ROW_STRIDE
    for register in range(first, last + 1):
        if s.dma[core, register] % s.dma[core, Reg.ELEMENT_BYTES]:
            trap(s, core, Code.BAD_CONFIGURATION, s.dma[core, register], 0, register, 0)
            return True
    return False


@device
def receivers(s: State, m: Costs, core: int, kind: int) -> tuple[int, int]:
    """(TLTs, TLEs) as bits; TLTs 0 after a trap."""
    tlts, tles = 1 << (core % m.tlts), 1 << (core // m.tlts)
    if kind & STORES:
        return tlts, tles
    r = s.dma[core]
    if kind & (MULTICAST | FORWARDS):
        named = r[Reg.RECEIVER_TLTS] & LOW32
        if named >> m.tlts:
            trap(s, core, Code.BAD_CONFIGURATION, r[Reg.RECEIVER_TLTS], 0, Reg.RECEIVER_TLTS, 0)
            return 0, 0
        if named:
            tlts = named
        elif kind & MULTICAST:
            tlts = (1 << m.tlts) - 1
    named = r[Reg.RECEIVER_TLES] & LOW32
    if named >> m.tles:
        trap(s, core, Code.BAD_CONFIGURATION, r[Reg.RECEIVER_TLES], 0, Reg.RECEIVER_TLES, 0)
        return 0, 0
    if not m.has_ring and (kind & FORWARDS or (named and named != tles)):
        trap(s, core, Code.NO_RING, 0, 0, 0, 0)
        return 0, 0
    return tlts, named if named else tles


@device
def misplaced(s: State, m: Costs, core: int, memory: int, local: int, count: int) -> bool:
    """Whether bytes of ``memory`` are outside of it or no whole elements; then it traps."""
    limit = m.mb0_bytes
    if memory == MB1:
        limit = m.mb1_bytes
    elif memory == MB2:
        limit = m.mb2_bytes
    elif memory == BIAS:
        limit = m.bias_bytes
    if local < 0 or local + count > limit:
        trap(s, core, Code.TILE_TOO_LARGE, local, local + count, limit, memory)
        return True
    if not spend(s, core, count):
        return True
    size = s.dma[core, Reg.ELEMENT_BYTES]
    if local % size:
        trap(s, core, Code.MISALIGNED_ACCESS, local, size, 0, 0)
        return True
    return False


@device
def blocked(s: State, m: Costs, core: int, row: int) -> bool:
    """Whether a DMA instruction cannot issue: it blocks when the queue is full, and traps when it
    names a semaphore that the machine does not have."""
    if s.queue_count[core // m.tlts] >= m.queue_depth:
        s.status[core] = QUEUE_FULL
        s.pc[core] -= 4
        return True
    if s.decoded[row, SEM] >= m.semaphores:
        trap(s, core, Code.SEMAPHORE, 0, 1, s.decoded[row, SEM], 0)
        return True
    return False


@device
def note_code(s: State, core: int, kind: int, address: int, begin: int, end: int) -> None:
    """Words of the code that a store to begin..end changes are none any more; those between its
    segments or rows stay."""
    if not meets_code(s, begin, end):
        return
    r = s.dma[core]
    if kind & BOX == 0:
        for k in range(r[Reg.SEGMENTS]):
            at = address + k * r[Reg.SEGMENT_STRIDE]
            note_stored(s, at, at + r[Reg.SEGMENT_BYTES])
        return
    size = r[Reg.ELEMENT_BYTES]
    first, last = max(r[Reg.START_COLUMN], 0), r[Reg.START_COLUMN] + r[Reg.BOX_COLUMNS]
    row_bytes = (min(last, r[Reg.COLUMNS]) - first) * size
    last_channel = min(r[Reg.START_CHANNEL] + r[Reg.BOX_CHANNELS], r[Reg.CHANNELS])
    last_row = min(r[Reg.START_ROW] + r[Reg.BOX_ROWS], r[Reg.ROWS])
    for c in range(max(r[Reg.START_CHANNEL], 0), last_channel):
        for h in range(max(r[Reg.START_ROW], 0), last_row):
            at = address + c * r[Reg.CHANNEL_STRIDE] + h * r[Reg.ROW_STRIDE] + first * size
            note_stored(s, at, at + row_bytes)


@device
def issue(s: State, m: Costs, core: int, row: int, kind: int) -> int:
    """Checks a load or store and queues its descriptor at the TLE's engine."""
    if blocked(s, m, core, row):
        return STOP
    memory = s.decoded[row, SUB]
    address, local = rs1(s, core, row) & LOW32, rs2(s, core, row)
    local_bytes, bursts, total, first, last = extent(s, m, core, kind)
    if local_bytes < 0:
        return STOP
    size = s.dma[core, Reg.ELEMENT_BYTES]
    if address % size:
        return trap(s, core, Code.MISALIGNED_ACCESS, address, size, 0, 0)
    if odd_register(s, core, kind):
        return STOP
    stores = kind & STORES != 0
    if stores != (memory == MB2):
        return trap(s, core, Code.WRONG_MEMORY, 0, 0, 0, memory)
    if memory == MB2:
        local *= size
    if misplaced(s, m, core, memory, local, local_bytes):
        return STOP
    begin, end = address + first, address + last
    if total and (begin < m.dram_base or end > m.dram_base + m.dram_bytes):
        return trap(s, core, Code.DRAM_ACCESS, begin, end, 0, 0)
    if total and stores:
        if not may_store(s, core, begin, end):
            return STOP
        note_code(s, core, kind, address, begin, end)
    if total and not stores and not may_load(s, core, begin, end):
        return STOP
    tlts, tles = receivers(s, m, core, kind)
    if tlts == 0:
        return STOP
    d = s.queue[core // m.tlts, free_place(s, m, core // m.tlts)]
    describe(s, d, core, row, kind)
    d[MEMORY], d[ADDRESS], d[LOCAL], d[SPAN] = memory, address, local, local_bytes
    d[BURSTS], d[BYTES], d[TLTS], d[TLES] = bursts, total, tlts, tles
    return enqueue(s, m, core, d)


@device
def issue_forward(s: State, m: Costs, core: int, row: int, kind: int) -> int:
    """Checks a forward from MB2 to MB0 and queues its descriptor at the TLE's engine."""
    if blocked(s, m, core, row):
        return STOP
    local_bytes, _, total, first, last = extent(s, m, core, kind)
    if local_bytes < 0 or odd_register(s, core, kind):
        return STOP
    local, source = rs1(s, core, row), rs2(s, core, row) * s.dma[core, Reg.ELEMENT_BYTES]
    if misplaced(s, m, core, MB0, local, local_bytes):
        return STOP
    if total and misplaced(s, m, core, MB2, source + first, last - first):
        return STOP
    tlts, tles = receivers(s, m, core, kind)
    if tlts == 0:
        return STOP
    d = s.queue[core // m.tlts, free_place(s, m, core // m.tlts)]
    describe(s, d, core, row, kind)
    d[MEMORY], d[ADDRESS], d[LOCAL], d[SPAN] = MB0, source, local, local_bytes
    d[BURSTS], d[BYTES], d[TLTS], d[TLES] = bursts_of(total, m), total, tlts, tles
    d[USED], d[USED_SPAN] = source + first, last - first
    return enqueue(s, m, core, d)


@device
def free_place(s: State, m: Costs, tle: int) -> int:
    """Of the descriptor behind a TLE's queue."""
    return (s.queue_head[tle] + s.queue_count[tle]) % m.queue_depth


@device
def describe(s: State, d: Array, core: int, row: int, kind: int) -> None:
    """What any transfer has."""
    d[KIND], d[CORE], d[D_SEM] = kind, core, s.decoded[row, SEM]
    d[LAYER], d[STREAM], d[PC] = s.layer_of[row], s.stream_of[row], s.pc[core] - 4
    d[USED], d[USED_SPAN] = 0, 0
    copy_into(d[REGISTERS:], s.dma[core])


@device
def enqueue(s: State, m: Costs, core: int, d: Array) -> int:
    if transfer_clashes(s, m, d):
        return STOP
    tle = core // m.tlts
    shared_ring = crosses(d, tle)
    if (shared_ring or s.ring_queued[0] > 0) and d[SPAN] > 0 and transfers_race(s, m, d):
        return STOP
    if shared_ring:
        s.ring_queued[0] += 1
    if m.records:
        d[EVENT] = record_transfer(s, m, d)
    s.queue_count[tle] += 1
    if s.queue_count[tle] == 1:
        start(s, m, tle, s.time[core])
    return GO


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


@device
def nmp_forward(s: State, m: Costs, core: int, row: int) -> int:
    return issue_forward(s, m, core, row, FORWARDS)


@device
def nmp_forward3d(s: State, m: Costs, core: int, row: int) -> int:
    return issue_forward(s, m, core, row, FORWARDS | BOX)
