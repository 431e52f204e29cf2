"""Events of the NMP: what compiled code notes of them.

Units count as in `NmpMachine.units`: cores, MAC units, DMA engines.
"""

from __future__ import annotations

from tvm_npu.sim.event_table import note_store, write_event
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.nmp.columns import FORWARDED, LOADED, RING, STORED, Descriptor, NmpEvent
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.hazards import BOX, FORWARDS, STORES
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.xnmp import DmaRegister as Reg

CORE = EventColumn.OWN + NmpEvent.CORE
TLTS, TLES = EventColumn.OWN + NmpEvent.TLTS, EventColumn.OWN + NmpEvent.TLES
FIRST_ACCESS, TILE = EventColumn.OWN + NmpEvent.FIRST_ACCESS, EventColumn.OWN + NmpEvent.TILE
MB2, MEMORIES = 2, 4

D_ADDRESS = Descriptor.ADDRESS
D_BYTES = Descriptor.BYTES
D_CORE = Descriptor.CORE
D_KIND = Descriptor.KIND
D_LOCAL = Descriptor.LOCAL
D_MEMORY = Descriptor.MEMORY
D_PC = Descriptor.PC
D_REGISTERS = Descriptor.REGISTERS
D_SPAN = Descriptor.SPAN
D_STREAM = Descriptor.STREAM
D_TLES = Descriptor.TLES
D_TLTS = Descriptor.TLTS
D_USED = Descriptor.USED
D_USED_SPAN = Descriptor.USED_SPAN


def event_room(m: Costs) -> int:
    """The most events of one step: an operation or a transfer, and the wait of every core."""
    return m.cores + 1


_event_room = device(event_room)


@device
def events_fit(s: State, m: Costs) -> bool:
    """Whether the table has room for all that one step can bring."""
    return not m.records or s.event_count[0] + _event_room(m) <= len(s.events)


@device
def note_tile(s: State, event: Array, core: int, row: int) -> None:
    """The issuing core and its tile's indices."""
    event[CORE] = core
    for k in range(s.tile_registers.shape[1]):
        register = s.tile_registers[row, k]
        if register >= 0:
            event[TILE + k] = s.regs[core, register]


@device
def note_access(event: Array, number: int, memory: int, begin: int, end: int, writes: int) -> None:
    at = FIRST_ACCESS + 4 * number
    event[at], event[at + 1], event[at + 2], event[at + 3] = memory, begin, end, writes


@device
def record_wait(s: State, core: int, row: int, begin: float, end: float) -> None:
    """The core was blocked by the instruction at ``row``."""
    number = write_event(s, core, row, begin, end)
    event = s.events[number]
    event[EventColumn.WAITS] = 1
    note_tile(s, event, core, row)


@device
def record_operation(s: State, m: Costs, core: int, row: int, begin: float, end: float) -> None:
    """The core's MAC unit works on `State.mac_ranges`."""
    number = write_event(s, m.cores + core, row, begin, end)
    event = s.events[number]
    note_tile(s, event, core, row)
    used = s.mac_ranges[core]
    for memory in range(MEMORIES):
        writes = 1 if memory == MB2 else 0
        note_access(event, memory, memory, used[2 * memory], used[2 * memory + 1], writes)


@device
def note_stored(m: Costs, event: Array, d: Array) -> None:
    """Where in DRAM a store writes, for its core; of a box what lies inside of the tensor."""
    r, core, begin = d[D_REGISTERS:], d[D_CORE], d[D_ADDRESS] - m.dram_base
    if d[D_BYTES] == 0:
        return
    if d[D_KIND] & BOX == 0:
        runs, step = r[Reg.SEGMENTS], r[Reg.SEGMENT_STRIDE]
        note_store(event, core, begin, r[Reg.SEGMENT_BYTES], runs, step, 1, 0)
        return
    c0, h0, w0 = max(r[Reg.START_CHANNEL], 0), max(r[Reg.START_ROW], 0), max(r[Reg.START_COLUMN], 0)
    channels = min(r[Reg.START_CHANNEL] + r[Reg.BOX_CHANNELS], r[Reg.CHANNELS]) - c0
    rows = min(r[Reg.START_ROW] + r[Reg.BOX_ROWS], r[Reg.ROWS]) - h0
    columns = min(r[Reg.START_COLUMN] + r[Reg.BOX_COLUMNS], r[Reg.COLUMNS]) - w0
    size, row_step, channel_step = r[Reg.ELEMENT_BYTES], r[Reg.ROW_STRIDE], r[Reg.CHANNEL_STRIDE]
    begin += c0 * channel_step + h0 * row_step + w0 * size
    note_store(event, core, begin, columns * size, rows, row_step, channels, channel_step)


@device
def record_transfer(s: State, m: Costs, d: Array) -> int:
    """The event of a transfer that has been queued; it begins and ends later."""
    core = d[D_CORE]
    tle = core // m.tlts
    row = (d[D_PC] - s.code_base[0]) >> 2
    number = write_event(s, 2 * m.cores + tle, row, 0.0, 0.0)
    event = s.events[number]
    note_tile(s, event, core, row)
    event[EventColumn.STREAM], event[EventColumn.BYTES] = d[D_STREAM], d[D_BYTES]
    event[TLTS], event[TLES] = d[D_TLTS], d[D_TLES]
    begin, end = d[D_LOCAL], d[D_LOCAL] + d[D_SPAN]
    if d[D_KIND] & STORES:
        link = STORED
        note_access(event, 0, d[D_MEMORY], begin, end, 0)
        note_stored(m, event, d)
    else:
        link = LOADED
        note_access(event, 0, d[D_MEMORY], begin, end, 1)
        if d[D_KIND] & FORWARDS:
            link = FORWARDED
            used = d[D_USED]
            note_access(event, 1, MB2, used, used + d[D_USED_SPAN], 0)
    event[EventColumn.LINKS] = 1 << link
    if d[D_TLES] != 1 << tle:
        event[EventColumn.LINKS] |= 1 << RING
    return number
