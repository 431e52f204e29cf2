"""Who uses which bytes of a TLT's memories: MAC operations against DMA transfers.

A program must wait for a transfer before it uses what it brings or overwrites what it takes, and
for a MAC operation before a transfer touches its operands or result. A program that does not is
wrong even where the outcome happens to be right, so it traps.
"""

from __future__ import annotations

from tvm_npu.sim.nmp.compiled import device
from tvm_npu.sim.nmp.core import trap
from tvm_npu.sim.nmp.state import Array, Costs, Descriptor, State
from tvm_npu.sim.nmp.traps import TrapCode

_HAZARD = int(TrapCode.HAZARD)

KIND, CORE, MEMORY = Descriptor.KIND, Descriptor.CORE, Descriptor.MEMORY
LOCAL, SPAN, PC = Descriptor.LOCAL, Descriptor.SPAN, Descriptor.PC

BOX, STORES, MULTICAST = 1, 2, 4
"""Bits of a descriptor's kind."""


@device
def free_ranges(s: State, core: int) -> None:
    """The MAC unit uses nothing."""
    s.mac_ranges[core, :] = 0


@device
def use_range(s: State, m: Costs, core: int, memory: int, begin: int, end: int) -> bool:
    """The MAC operation that issues uses these bytes; False, with a trap, when a transfer that is
    not complete uses them too."""
    s.mac_ranges[core, 2 * memory] = begin
    s.mac_ranges[core, 2 * memory + 1] = end
    tle = core // m.tlts
    for k in range(s.queue_count[tle]):
        d = s.queue[tle, (s.queue_head[tle] + k) % m.queue_depth]
        if d[MEMORY] == memory and (d[CORE] == core or d[KIND] & MULTICAST):
            if d[LOCAL] < end and begin < d[LOCAL] + d[SPAN] and d[SPAN] > 0:
                trap(s, core, _HAZARD, core, d[PC], 0, memory)
                return False
    return True


@device
def transfer_clashes(s: State, d: Array, core: int, now: float) -> bool:
    """Whether a transfer that completes uses bytes of an operation that runs; then it traps, at
    the transfer's instruction."""
    if s.mac_sem[core] < 0 or s.mac_done[core] <= now or d[SPAN] == 0:
        return False
    used = s.mac_ranges[core, 2 * d[MEMORY] : 2 * d[MEMORY] + 2]
    if d[LOCAL] >= used[1] or used[0] >= d[LOCAL] + d[SPAN]:
        return False
    s.pc[d[CORE]] = d[PC] + 4
    trap(s, d[CORE], _HAZARD, core, -1, 0, d[MEMORY])
    return True
