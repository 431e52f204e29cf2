"""When commands run: an interlocked machine.

Words issue one a cycle. The transfer engine and the compute engine each take commands in program
order; a command starts when it has issued, its engine is free, and the other engine is done with
all earlier commands that touch the same bytes, unless both only read them. What a transfer touches
outside of the chip counts from its first byte to its last.
"""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.spans import product
from tvm_npu.sim.event_table import add_event, note_store
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.tiles import rates
from tvm_npu.sim.tiles.intervals import latest, note
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.operands import FIRST, RESULT, SECOND, memory_of, pitches
from tvm_npu.sim.tiles.state import ENGINE, ISSUE, MOVER, Costs, State

COMPUTES, MOVES = 1, 2
"""Units, as `TileMachine.units` counts them."""

READS = 1
"""This bit of a list of ranges: reads; the next one: the compute engine's."""

contiguous_runs = device(rates.contiguous_runs)
transfer_cycles = device(rates.transfer_cycles)
array_conv_cycles = device(rates.array_conv_cycles)
most_taps_at_once = device(rates.most_taps_at_once)
array_element_cycles = device(rates.array_element_cycles)
core_operand_cycles = device(rates.core_operand_cycles)


@device
def record(s: State, row: int, engine: int, begin: float, end: float) -> int:
    """The event of the command at ``row``, which touches `State.ranges`; its number."""
    number = add_event(s, COMPUTES if engine == ENGINE else MOVES, row, begin, end)
    event = s.events[number]
    for k in range(s.range_count[0]):
        kind, first, last = s.ranges[k, 0], s.ranges[k, 1], s.ranges[k, 2]
        at = EventColumn.OWN + 3 * k
        event[at], event[at + 1], event[at + 2] = first, last, 0 if kind & READS else 1
    return number


@device
def book(s: State, m: Costs, row: int, engine: int, cycles: float) -> int:
    """Runs the command at ``row``, which touches `State.ranges`, on ``engine`` for ``cycles``. A
    core does nothing else meanwhile, so that the next word issues behind it. Returns the number of
    its event, -1 in runs that record none."""
    if not m.timed:
        return record(s, row, engine, 0.0, 0.0) if m.records else -1
    free = max(s.clock[engine], s.clock[ISSUE])
    start = free
    for k in range(s.range_count[0]):
        kind, begin, end = s.ranges[k, 0], s.ranges[k, 1], s.ranges[k, 2]
        writes_of_other = (kind ^ 2) & 2
        start = max(start, latest(s, writes_of_other, begin, end))
        if kind & READS == 0:
            start = max(start, latest(s, writes_of_other | READS, begin, end))
    done = start + cycles
    horizon = max(s.clock[MOVER + ENGINE - engine], s.clock[ISSUE])
    for k in range(s.range_count[0]):
        note(s, s.ranges[k, 0], s.ranges[k, 1], s.ranges[k, 2], done, horizon)
    s.clock[engine] = done
    if m.has_core and engine == ENGINE:
        s.clock[ISSUE] = done
    layer = s.layer_of[row]
    s.layer_busy[layer, ENGINE - engine] += cycles
    if engine == ENGINE:
        s.layer_wait[layer] += start - free
    s.layer_end[layer] = max(s.layer_end[layer], done)
    if not m.records:
        return -1
    if engine == ENGINE and start > free:
        number = add_event(s, COMPUTES, row, free, start)
        s.events[number, EventColumn.WAITS] = 1
    return record(s, row, engine, start, done)


@device
def book_transfer(
    s: State, m: Costs, row: int, size_bytes: int, stream: int, link: int
) -> None:
    r = s.registers
    runs = contiguous_runs(
        r[Reg.RUN_BYTES], r[Reg.COUNT_INNER], r[Reg.STRIDE_INNER], r[Reg.COUNT_OUTER],
        r[Reg.STRIDE_OUTER],
    )  # fmt: skip
    s.layer_runs[s.layer_of[row]] += runs
    cycles = transfer_cycles(m.mover_setup, m.mover_segment, m.mover_rate, runs, size_bytes)
    number = book(s, m, row, MOVER, cycles)
    if number >= 0:
        event = s.events[number]
        event[EventColumn.STREAM], event[EventColumn.LINKS] = stream, 1 << link
        event[EventColumn.BYTES] = size_bytes
        if link == 1:
            inner, outer = r[Reg.COUNT_INNER], r[Reg.COUNT_OUTER]
            begin = s.places[TileMemory.ACTIVATIONS, 0] + r[Reg.ADDRESS]
            note_store(
                event, 0, begin, r[Reg.RUN_BYTES], inner, r[Reg.STRIDE_INNER], outer,
                r[Reg.STRIDE_OUTER],
            )  # fmt: skip


@device
def book_conv(s: State, m: Costs, row: int) -> None:
    r = s.registers
    if m.has_core:
        book(s, m, row, ENGINE, core_conv_cycles(s, m))
        return
    cycles = array_conv_cycles(
        m.setup, r[Reg.GROUPS], r[Reg.OUT_CHANNELS] // r[Reg.GROUPS], r[Reg.IN_CHANNELS],
        r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS], r[Reg.KERNEL_ROWS] * r[Reg.KERNEL_COLUMNS],
        m.over_channels, m.over_filters, m.over_rows, m.over_columns, max(1, r[Reg.TAPS_AT_ONCE]),
    )  # fmt: skip
    book(s, m, row, ENGINE, cycles)


@device
def operand_cycles(
    s: State, m: Costs, operand: int, accesses: int, size_bytes: int, walks: int
) -> float:
    """A core's accesses to an operand of a command."""
    outside = memory_of(s, operand) >= TileMemory.CONSTANTS
    miss = m.dram_miss if outside else m.chip_miss
    access = m.dram_access if outside else m.chip_access
    return core_operand_cycles(
        m.cache_bytes, m.line_bytes, m.hit, miss, access, accesses, size_bytes, walks
    )


@device
def core_conv_cycles(s: State, m: Costs) -> float:
    """A loop over filters around one over places: it walks over the input once a filter, over the
    weights once; a sum stays in a register and is read and written once."""
    r = s.registers
    filters, positions = r[Reg.OUT_CHANNELS], r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    depth = r[Reg.IN_CHANNELS] * r[Reg.KERNEL_ROWS] * r[Reg.KERNEL_COLUMNS]
    products, sums = filters * positions * depth, filters * positions
    in_bytes = r[Reg.GROUPS] * r[Reg.IN_CHANNELS] * m.element_bytes
    in_bytes *= r[Reg.IN_ROWS] * r[Reg.IN_COLUMNS]
    cycles = m.setup + products * m.mac
    cycles += operand_cycles(s, m, FIRST, products, in_bytes, filters // r[Reg.GROUPS])
    cycles += operand_cycles(s, m, SECOND, products, filters * depth * m.element_bytes, 1)
    return cycles + operand_cycles(s, m, RESULT, 2 * sums, sums * m.accumulator_bytes, 1)


@device
def book_elements(s: State, m: Costs, row: int, operations: int) -> None:
    """A command of so many operations, none of which depends on another. A core reads and writes
    one value for each."""
    if m.has_core:
        size = product(operations, m.element_bytes)
        cycles = m.setup + operations * m.operation
        cycles += operand_cycles(s, m, RESULT, 2 * operations, size, 1)
    else:
        cycles = array_element_cycles(operations, m.pes)
    number = book(s, m, row, ENGINE, cycles)
    memory = memory_of(s, RESULT)
    if number >= 0 and memory >= TileMemory.CONSTANTS:  # a core writes there itself
        r, width = s.registers, m.element_bytes
        begin = s.places[memory, 0] + r[Reg.OUT_OFFSET]
        row_bytes, channel_bytes = pitches(
            s, RESULT, memory, r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS], width
        )
        note_store(
            s.events[number], 0, begin, r[Reg.OUT_COLUMNS] * width, r[Reg.OUT_ROWS], row_bytes,
            r[Reg.OUT_CHANNELS], channel_bytes,
        )  # fmt: skip
