"""Who uses which bytes of a TLT's memories: MAC operations against DMA transfers.

A program must wait for a transfer before it uses what it brings or overwrites what it takes, and
for a MAC operation before it issues a transfer that touches its operands or result. A program that
does not is wrong even where the outcome happens to be right, so it traps: at the MAC operation when
such a transfer is not complete, at the transfer when such an operation runs. Where a memory has one
port, all its bytes are touched by either. Engines of different TLEs that bring something to the
same bytes at the same time trap, too. In MB2, which is addressed in elements, elements count in
place of bytes: a transfer and an operation may take elements of different widths.
"""

from __future__ import annotations

from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.nmp.columns import Descriptor
from tvm_npu.sim.nmp.core import trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister

KIND, CORE, MEMORY = Descriptor.KIND, Descriptor.CORE, Descriptor.MEMORY
LOCAL, SPAN, PC = Descriptor.LOCAL, Descriptor.SPAN, Descriptor.PC
TLTS, TLES = Descriptor.TLTS, Descriptor.TLES
USED, USED_SPAN = Descriptor.USED, Descriptor.USED_SPAN

ELEMENT_BYTES = Descriptor.REGISTERS + DmaRegister.ELEMENT_BYTES

BOX, STORES, MULTICAST, FORWARDS = 1, 2, 4, 8
"""Bits of a descriptor's kind."""

MB2 = 2


@device
def free_ranges(s: State, core: int) -> None:
    """The MAC unit uses nothing."""
    s.mac_ranges[core, :] = 0


@device
def clash(m: Costs, begin: int, end: int, other_begin: int, other_end: int) -> bool:
    """Whether two uses of one memory must not be at the same time; empty ones always may."""
    if begin >= end or other_begin >= other_end:
        return False
    return m.ports == 1 or (begin < other_end and other_begin < end)


@device
def place(memory: int, at: int, element_bytes: int) -> int:
    """Byte ``at`` of a memory as uses of it are compared: in MB2 its element."""
    return at // element_bytes if memory == MB2 else at


@device
def receives(m: Costs, d: Array, core: int) -> bool:
    """Whether ``core`` is among a transfer's receivers, or the sender of a store."""
    return (d[TLES] >> (core // m.tlts)) & (d[TLTS] >> (core % m.tlts)) & 1 != 0


@device
def queue_clashes(
    s: State, m: Costs, tle: int, core: int, memory: int, begin: int, end: int
) -> bool:
    """Whether a transfer in the queue of ``tle`` uses places begin..end of the core's memory; then
    it traps at the core's instruction."""
    s.work[DONE] += s.queue_count[tle]
    for k in range(s.queue_count[tle]):
        d = s.queue[tle, (s.queue_head[tle] + k) % m.queue_depth]
        found, size = False, d[ELEMENT_BYTES]
        if d[MEMORY] == memory and receives(m, d, core):
            last = place(memory, d[LOCAL] + d[SPAN], size)
            found = clash(m, place(memory, d[LOCAL], size), last, begin, end)
        elif memory == MB2 and d[KIND] & FORWARDS and d[CORE] == core:
            last = place(memory, d[USED] + d[USED_SPAN], size)
            found = clash(m, place(memory, d[USED], size), last, begin, end)
        if found:
            trap(s, core, Code.HAZARD, core, d[PC], 0, memory)
            return True
    return False


@device
def use_range(s: State, m: Costs, core: int, memory: int, begin: int, end: int) -> bool:
    """The MAC operation that issues uses these bytes; False, with a trap, when a transfer that is
    not complete uses them too."""
    s.mac_ranges[core, 2 * memory] = begin
    s.mac_ranges[core, 2 * memory + 1] = end
    size = s.mac[core, MacRegister.ELEMENT_BYTES]
    s.mac_width[core] = size
    begin, end = place(memory, begin, size), place(memory, end, size)
    own = core // m.tlts
    if s.ring_queued[0] == 0:
        return not queue_clashes(s, m, own, core, memory, begin, end)
    for tle in range(m.tles):
        if queue_clashes(s, m, tle, core, memory, begin, end):
            return False
    return True


@device
def operation_clashes(
    s: State, m: Costs, d: Array, core: int, memory: int, begin: int, end: int
) -> bool:
    """Whether bytes begin..end of the core's memory, which transfer ``d`` uses, are in use by an
    operation that runs while it issues; then it traps at the sender's instruction."""
    sender = d[CORE]
    if s.mac_sem[core] < 0 or s.mac_done[core] <= s.time[sender]:
        return False
    used, width, size = s.mac_ranges[core], s.mac_width[core], d[ELEMENT_BYTES]
    if not clash(
        m, place(memory, used[2 * memory], width), place(memory, used[2 * memory + 1], width),
        place(memory, begin, size), place(memory, end, size),
    ):  # fmt: skip
        return False
    trap(s, sender, Code.HAZARD, core, -1, 0, memory)
    return True


@device
def transfer_clashes(s: State, m: Costs, d: Array) -> bool:
    """Whether a transfer that issues uses bytes of operations that run; then it traps."""
    for tle in range(m.tles):
        if d[SPAN] == 0 or (d[TLES] >> tle) & 1 == 0:
            continue
        s.work[DONE] += m.tlts
        for core in range(tle * m.tlts, (tle + 1) * m.tlts):
            if receives(m, d, core) and operation_clashes(
                s, m, d, core, d[MEMORY], d[LOCAL], d[LOCAL] + d[SPAN]
            ):
                return True
    if d[KIND] & FORWARDS:
        return operation_clashes(s, m, d, d[CORE], MB2, d[USED], d[USED] + d[USED_SPAN])
    return False


@device
def common_receiver(m: Costs, d: Array, other: Array) -> int:
    """The first core that both transfers write to; -1: none."""
    if d[TLTS] & other[TLTS] and d[TLES] & other[TLES]:
        for core in range(m.cores):
            if receives(m, d, core) and receives(m, other, core):
                return core
    return -1


@device
def transfers_race(s: State, m: Costs, d: Array) -> bool:
    """Whether a load or forward that issues writes bytes that one of another TLE's engine, not
    complete, writes too; then it traps."""
    own = d[CORE] // m.tlts
    for tle in range(m.tles):
        if tle == own:
            continue
        s.work[DONE] += s.queue_count[tle]
        for k in range(s.queue_count[tle]):
            other = s.queue[tle, (s.queue_head[tle] + k) % m.queue_depth]
            if other[MEMORY] != d[MEMORY] or other[LOCAL] >= d[LOCAL] + d[SPAN]:
                continue
            if d[LOCAL] >= other[LOCAL] + other[SPAN]:
                continue
            core = common_receiver(m, d, other)
            if core >= 0:
                trap(s, d[CORE], Code.RACE, core, other[PC], 0, d[MEMORY])
                return True
    return False
