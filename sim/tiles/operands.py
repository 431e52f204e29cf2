"""Where the operands of a command lie, and how their elements come out of memory and go back.

Operands are packed; outside of the chip, where only a core reaches, rows and channels may lie
farther apart. Nothing has to be aligned.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.slices import ALLOWED, spends
from tvm_npu.sim.compiled.spans import product, reach, volume
from tvm_npu.sim.tiles.isa import LARGEST_EXTENT, TileMemory
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.state import ENGINE_READS, ENGINE_WRITES, Array, Costs, State
from tvm_npu.sim.tiles.traps import TileTrapCode as Code
from tvm_npu.sim.tiles.traps import TrapSlot

GO, STOP = 0, 1
NOWHERE = -1

CODE, ROW, A, B, C = TrapSlot.CODE, TrapSlot.ROW, TrapSlot.A, TrapSlot.B, TrapSlot.C
MEMORY, REGISTER = TrapSlot.MEMORY, TrapSlot.REGISTER

FIRST, SECOND, RESULT = 0, 1, 2
"""An operand's place in the OPERANDS register."""

LARGEST_PRODUCT = 1 << 40
ROW_WORK = 16
"""Of a row or filter that lies apart from others: to begin with one takes as long as so many
bytes."""


@device
def trap(s: State, code: int, a: int, b: int, c: int, memory: int, register: int) -> int:
    """Records the first trap, at the instruction word in execution."""
    record = s.trap
    if record[CODE] == 0:
        record[CODE], record[ROW] = code, s.pc[0]
        record[A], record[B], record[C] = a, b, c
        record[MEMORY], record[REGISTER] = memory, register
    return STOP


@device
def spend(s: State, units: int) -> bool:
    """Counts work before it is done; False, with a trap, when the run may not do it."""
    if spends(s.work, units):
        return True
    trap(s, Code.BUDGET, s.work[ALLOWED], 0, 0, 0, 0)
    return False


@device
def in_bounds(s: State, first: int, last: int, low: int, high: int) -> bool:
    """Registers ``first`` to ``last`` are ``low`` to ``high``; traps otherwise."""
    for register in range(first, last + 1):
        value = s.registers[register]
        if value < low or value > high:
            trap(s, Code.BAD_REGISTER, value, low, high, 0, register)
            return False
    return True


@device
def clip_bounds(s: State, m: Costs) -> tuple[int, int]:
    """LOW and HIGH, saturated to the element type."""
    low, high = s.registers[Reg.LOW], s.registers[Reg.HIGH]
    bottom, top = m.element_low, m.element_high
    return min(max(low, bottom), top), min(max(high, bottom), top)


@device
def window_in_bounds(s: State, last: int) -> bool:
    """The extents of IN and OUT, those of the window, OUT_CHANNELS to ``last``, and the padding
    are sane; traps otherwise."""
    return (
        in_bounds(s, Reg.IN_CHANNELS, Reg.IN_CHANNELS, 1, LARGEST_EXTENT)
        and in_bounds(s, Reg.IN_ROWS, Reg.IN_COLUMNS, 0, LARGEST_EXTENT)
        and in_bounds(s, Reg.OUT_CHANNELS, last, 1, LARGEST_EXTENT)
        and in_bounds(s, Reg.PAD_TOP, Reg.PAD_LEFT, 0, LARGEST_EXTENT)
    )


@device
def memory_of(s: State, operand: int) -> int:
    return (s.registers[Reg.OPERANDS] >> (3 * operand)) & 7


@device
def use(s: State, kind: int, begin: int, end: int) -> None:
    """Notes that the command at hand touches addresses begin..end (`timing` reads this)."""
    if begin < end:
        k = s.range_count[0]
        s.ranges[k, 0], s.ranges[k, 1], s.ranges[k, 2] = kind, begin, end
        s.range_count[0] = k + 1


@device
def races(s: State) -> bool:
    """Whether the command at hand touches bytes that a DMA program may be moving; traps then."""
    for channel in range(len(s.flights)):
        flight = s.flights[channel]
        if flight[0] == 0:
            continue
        for k in range(s.range_count[0]):
            kind, begin, end = s.ranges[k, 0], s.ranges[k, 1], s.ranges[k, 2]
            on_chip = begin < flight[3] and flight[2] < end
            outside = begin < flight[5] and flight[4] < end
            moved_there = (on_chip and flight[1] == 1) or (outside and flight[1] == 0)
            if moved_there or (kind == ENGINE_WRITES and (on_chip or outside)):
                memory = memory_at(s, begin)
                base = s.places[memory, 0]
                trap(s, Code.RACE, begin - base, end - base, channel, memory, 0)
                return True
    return False


@device
def memory_at(s: State, address: int) -> int:
    """The memory that has an address of the simulator."""
    for memory in range(len(s.places)):
        begin, size = s.places[memory, 0], s.places[memory, 1]
        if begin <= address < begin + size:
            return memory
    return TileMemory.CONSTANTS


@device
def fits(s: State, memory: int, begin: int, size: int, register: int) -> bool:
    """Bytes begin..begin+size lie in ``memory``; traps otherwise."""
    if begin < 0 or begin + size > s.places[memory, 1]:
        trap(s, Code.TILE_OUTSIDE, begin, begin + size, s.places[memory, 1], memory, register)
        return False
    return True


@device
def was_written(s: State, m: Costs, memory: int, begin: int, end: int) -> bool:
    """Addresses begin..end, if on chip, were written in this run; traps otherwise."""
    if begin < m.chip_begin:
        return True
    written = s.written[begin - m.chip_begin : end - m.chip_begin]
    least = np.uint8(1)
    for k in range(len(written)):
        least = min(least, written[k])
    if least == 0:
        at = 0
        while written[at] != 0:
            at += 1
        trap(s, Code.NOT_WRITTEN, begin + at - s.places[memory, 0], 0, 0, memory, 0)
        return False
    return True


@device
def mark_written(s: State, m: Costs, begin: int, end: int, value: int) -> None:
    """Addresses begin..end hold values (``value`` 1) or nothing that can be read (0). What was
    made from their old content is void."""
    if begin >= m.chip_begin:
        s.written[begin - m.chip_begin : end - m.chip_begin] = value
    if begin < s.tile_key[1] and s.tile_key[0] < end:
        s.tile_key[0], s.tile_key[1] = NOWHERE, NOWHERE
    if begin < s.columns_key[1] and s.columns_key[0] < end:
        s.columns_key[0], s.columns_key[1] = NOWHERE, NOWHERE


@device
def reachable(s: State, m: Costs, operand: int) -> int:
    """The memory of an operand; NOWHERE, with a trap, where the machine cannot have one."""
    memory = memory_of(s, operand)
    good = memory < TileMemory.BIAS or (
        m.has_core and TileMemory.BIAS < memory <= TileMemory.ACTIVATIONS
    )
    if operand == RESULT and memory == TileMemory.CONSTANTS:
        good = False
    if not good:
        trap(s, Code.WRONG_MEMORY, 0, 0, 0, memory, Reg.OPERANDS)
        return NOWHERE
    return memory


@device
def pitches(s: State, operand: int, memory: int, rows: int, columns: int, width: int) -> tuple[
    int, int
]:  # fmt: skip
    """Bytes from one row, and from one channel, of an operand to the next."""
    row, channel = product(columns, width), 0
    if memory > TileMemory.BIAS and operand != SECOND:
        first = operand == FIRST
        row_register = s.registers[Reg.IN_ROW_BYTES if first else Reg.OUT_ROW_BYTES]
        channel = s.registers[Reg.IN_CHANNEL_BYTES if first else Reg.OUT_CHANNEL_BYTES]
        if row_register != 0:
            row = row_register
    return row, channel if channel != 0 else product(row, rows)


@device
def locate(
    s: State, m: Costs, operand: int, channels: int, rows: int, columns: int, width: int,
    reads: bool, writes: bool,
) -> int:  # fmt: skip
    """Address of an operand [channels][rows][columns] of ``width`` bytes each, after all checks;
    NOWHERE when they trap."""
    memory = reachable(s, m, operand)
    if memory == NOWHERE:
        return NOWHERE
    register = Reg.IN_OFFSET
    if operand == SECOND:
        register = Reg.W_OFFSET
    elif operand == RESULT:
        register = Reg.OUT_OFFSET
    row_bytes, channel_bytes = pitches(s, operand, memory, rows, columns, width)
    size, apart = 0, 0
    if channels > 0 and rows > 0 and columns > 0:
        packed = product(columns, width)
        if row_bytes != packed or channel_bytes != product(rows, packed):
            apart = product(channels, rows)
        if row_bytes < packed and rows > 1:
            which = Reg.IN_ROW_BYTES if operand == FIRST else Reg.OUT_ROW_BYTES
            trap(s, Code.BAD_REGISTER, row_bytes, packed, LARGEST_PRODUCT, memory, which)
            return NOWHERE
        plane = packed if rows == 1 else reach(packed, rows, row_bytes)
        if channel_bytes < plane and channels > 1:
            which = Reg.IN_CHANNEL_BYTES if operand == FIRST else Reg.OUT_CHANNEL_BYTES
            least = product(rows, row_bytes)
            trap(s, Code.BAD_REGISTER, channel_bytes, least, LARGEST_PRODUCT, memory, which)
            return NOWHERE
        size = plane if channels == 1 else reach(plane, channels, channel_bytes)
    offset = s.registers[register]
    if not fits(s, memory, offset, size, register):
        return NOWHERE
    if not spend(s, size + product(ROW_WORK, apart)):
        return NOWHERE
    begin = s.places[memory, 0] + offset
    if reads:
        if not was_written(s, m, memory, begin, begin + size):
            return NOWHERE
        use(s, ENGINE_READS, begin, begin + size)
    if writes:
        use(s, ENGINE_WRITES, begin, begin + size)
    return begin


@device
def load_run(
    s: State, m: Costs, memory: int, address: int, count: int, target: Array, at: int
) -> bool:
    """``count`` elements that follow each other, into target[at..]; False, with a trap, when one
    is outside of the element type."""
    width = m.element_bytes
    if address % width:
        s.memory[m.scratch_begin : m.scratch_begin + count * width] = s.memory[
            address : address + count * width
        ]
        address = m.scratch_begin
    if width == 1:
        for k in range(count):
            target[at + k] = s.memory_byte[address + k]
        return True
    low, high = np.int32(0), np.int32(0)
    if width == 2:
        base = address // 2
        for k in range(count):
            half = np.int32(s.memory_half[base + k])
            low, high = min(low, half), max(high, half)
            target[at + k] = half
    else:
        base = address // 4
        for k in range(count):
            word = s.memory_word[base + k]
            low, high = min(low, word), max(high, word)
            target[at + k] = word
    if low < m.element_low or high > m.element_high:
        bad = low if low < m.element_low else high
        trap(s, Code.BAD_ELEMENT, np.int64(bad), m.element_low, m.element_high, memory, 0)
        return False
    return True


@device
def load_elements(
    s: State, m: Costs, operand: int, address: int, channels: int, rows: int, columns: int,
    target: Array,
) -> bool:  # fmt: skip
    """A located operand into ``target``, packed; False when an element traps."""
    if volume(channels, rows, columns) == 0:
        return True
    width, memory = m.element_bytes, memory_of(s, operand)
    row_bytes, channel_bytes = pitches(s, operand, memory, rows, columns, width)
    if row_bytes == columns * width and channel_bytes == rows * row_bytes:
        return load_run(s, m, memory, address, channels * rows * columns, target, 0)
    at = 0
    for c in range(channels):
        for i in range(rows):
            from_ = address + c * channel_bytes + i * row_bytes
            if not load_run(s, m, memory, from_, columns, target, at):
                return False
            at += columns
    return True


@device
def load_first(s: State, m: Costs, address: int, channels: int, rows: int, columns: int) -> bool:
    """`load_elements` of the first operand into `State.tile`, unless that is what it holds."""
    key, count = s.tile_key, channels * rows * columns
    if key[0] == address and key[2] == count and address >= m.chip_begin:
        return True
    key[0], key[1] = NOWHERE, NOWHERE
    if not load_elements(s, m, FIRST, address, channels, rows, columns, s.tile):
        return False
    key[0], key[1], key[2] = address, address + count * m.element_bytes, count
    return True


@device
def store_run(s: State, m: Costs, address: int, source: Array, at: int, count: int) -> None:
    """source[at..] as ``count`` elements that follow each other."""
    width = m.element_bytes
    target = m.scratch_begin if address % width else address
    if width == 1:
        for k in range(count):
            s.memory_byte[target + k] = source[at + k]
    elif width == 2:
        base = target // 2
        for k in range(count):
            s.memory_half[base + k] = source[at + k]
    else:
        base = target // 4
        for k in range(count):
            s.memory_word[base + k] = source[at + k]
    if target != address:
        s.memory[address : address + count * width] = s.memory[target : target + count * width]


@device
def store_elements(
    s: State, m: Costs, address: int, channels: int, rows: int, columns: int, source: Array
) -> None:
    """Packed ``source`` as the located result."""
    width = m.element_bytes
    row_bytes, channel_bytes = pitches(s, RESULT, memory_of(s, RESULT), rows, columns, width)
    if row_bytes == columns * width and channel_bytes == rows * row_bytes:
        store_run(s, m, address, source, 0, channels * rows * columns)
        mark_written(s, m, address, address + channels * rows * columns * width, 1)
        return
    for c in range(channels):
        for i in range(rows):
            to = address + c * channel_bytes + i * row_bytes
            store_run(s, m, to, source, (c * rows + i) * columns, columns)
            mark_written(s, m, to, to + columns * width, 1)
