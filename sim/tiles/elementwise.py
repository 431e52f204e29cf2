"""tfinish, tvec and tfill: commands that make each element by itself."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.accumulators import copy_rows, is_plain, load_sums
from tvm_npu.sim.tiles.isa import LARGEST_EXTENT, Finish, TileMemory, TileVector
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.operands import (
    ENGINE_READS,
    FIRST,
    GO,
    NOWHERE,
    RESULT,
    SECOND,
    STOP,
    clip_bounds,
    fits,
    in_bounds,
    load_elements,
    load_first,
    locate,
    mark_written,
    store_elements,
    trap,
    use,
    was_written,
)
from tvm_npu.sim.tiles.state import Costs, State
from tvm_npu.sim.tiles.timing import book_elements
from tvm_npu.sim.tiles.traps import TileTrapCode as Code

SUB = 6
LARGEST_SHIFT = 47
LARGEST = (1 << 63) - 1
"""What an accumulator of 8 bytes holds."""


@device
def requantize(value: int, shift: int, low: int, high: int, bottom: int, top: int) -> int:
    """clip(saturate((value + half) >> shift), low, high); ``bottom`` and ``top`` are the element
    type's ends. No intermediate value can overflow."""
    if shift > 0:
        value = ((value >> (shift - 1)) + 1) >> 1
    elif shift < 0:
        value = min(max(value, bottom), top) << -shift
    return min(max(min(max(value, bottom), top), low), high)


@device
def biased(accumulator: int, bias: int) -> int:
    """The sum with an int32, saturated to 64 bits, which no requantized value shows."""
    value = accumulator + bias
    if (accumulator ^ value) & (bias ^ value) < 0:
        return LARGEST if bias > 0 else -LARGEST - 1
    return value


@device
def result_is_good(s: State) -> bool:
    """Registers that all commands with a requantized result read."""
    return (
        in_bounds(s, Reg.OUT_CHANNELS, Reg.OUT_COLUMNS, 1, LARGEST_EXTENT)
        and in_bounds(s, Reg.SHIFT, Reg.SHIFT, -LARGEST_SHIFT, 62)
        and in_bounds(s, Reg.LOW, Reg.LOW, -(1 << 31), s.registers[Reg.HIGH])
        and in_bounds(s, Reg.SHIFT_A, Reg.SHIFT_B, 0, LARGEST_SHIFT)
    )


@device
def bias_of(s: State, channel: int) -> int:
    """int32 at any byte of the bias memory."""
    at = s.places[TileMemory.BIAS, 0] + s.registers[Reg.BIAS_OFFSET] + BIAS_BYTES * channel
    value = np.int64(0)
    for k in range(BIAS_BYTES - 1):
        value |= np.int64(s.memory[at + k]) << (8 * k)
    return value | np.int64(s.memory_byte[at + BIAS_BYTES - 1]) << (8 * (BIAS_BYTES - 1))


@device
def biases_are_there(s: State, m: Costs, channels: int) -> bool:
    offset = s.registers[Reg.BIAS_OFFSET]
    if not fits(s, TileMemory.BIAS, offset, channels * BIAS_BYTES, Reg.BIAS_OFFSET):
        return False
    begin = s.places[TileMemory.BIAS, 0] + offset
    use(s, ENGINE_READS, begin, begin + channels * BIAS_BYTES)
    return was_written(s, m, TileMemory.BIAS, begin, begin + channels * BIAS_BYTES)


@device
def tfinish(s: State, m: Costs, row: int) -> int:
    if not result_is_good(s):
        return STOP
    r = s.registers
    channels, rows, columns = r[Reg.OUT_CHANNELS], r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]
    width = m.accumulator_bytes
    out_at = locate(s, m, RESULT, channels, rows, columns, width, True, True)
    if out_at == NOWHERE:
        return STOP
    with_bias = s.decoded[row, SUB] & Finish.BIAS != 0
    with_residual = s.decoded[row, SUB] & Finish.RESIDUAL != 0
    if with_bias and not biases_are_there(s, m, channels):
        return STOP
    if with_residual:
        at = locate(s, m, FIRST, channels, rows, columns, m.element_bytes, True, False)
        if at == NOWHERE or not load_first(s, m, at, channels, rows, columns):
            return STOP
    positions = rows * columns
    count = channels * positions
    plain = is_plain(s, m, out_at, rows, columns, width)
    sums_at = out_at if plain else m.sums_begin
    if not plain:
        copy_rows(s, m, out_at, sums_at, channels, rows, columns, width, False)
    load_sums(s, m, sums_at, count, s.sums)
    shift, (low, high) = r[Reg.SHIFT], clip_bounds(s, m)
    shift_a, shift_b = r[Reg.SHIFT_A], r[Reg.SHIFT_B]
    # A shift must lose no bit: these are the sums that stay within 62.
    limit = np.int64(1) << (62 - shift_a)
    for c in range(channels):
        bias = bias_of(s, c) if with_bias else np.int64(0)
        sums = s.sums[c * positions : (c + 1) * positions]
        target = s.products[c * positions : (c + 1) * positions]
        least, most = np.int64(0), np.int64(0)
        if with_residual:
            residual = s.tile[c * positions : (c + 1) * positions]
            for k in range(positions):
                value = biased(sums[k], bias)
                least, most = min(least, value), max(most, value)
                value = (value << shift_a) + (np.int64(residual[k]) << shift_b)
                target[k] = requantize(value, shift, low, high, m.element_low, m.element_high)
        else:
            for k in range(positions):
                value = biased(sums[k], bias)
                target[k] = requantize(value, shift, low, high, m.element_low, m.element_high)
        if with_residual and (least < -limit or most >= limit):
            return trap(s, Code.ACCUMULATOR_OVERFLOW, c, 63 - shift_a, 0, 0, 0)
    mark_written(s, m, out_at, out_at + count * width, 0)
    store_elements(s, m, out_at, channels, rows, columns, s.products)
    book_elements(s, m, row, count)
    return GO


@device
def tvec(s: State, m: Costs, row: int) -> int:
    op = s.decoded[row, SUB]
    if op > TileVector.MULTIPLY:
        return trap(s, Code.ILLEGAL_INSTRUCTION, s.words[row], 0, 0, 0, 0)
    if not result_is_good(s):
        return STOP
    r = s.registers
    channels, rows, columns = r[Reg.OUT_CHANNELS], r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]
    width = m.element_bytes
    a_at = locate(s, m, FIRST, channels, rows, columns, width, True, False)
    if a_at == NOWHERE or not load_first(s, m, a_at, channels, rows, columns):
        return STOP
    if op != TileVector.COPY:
        b_at = locate(s, m, SECOND, channels, rows, columns, width, True, False)
        if b_at == NOWHERE:
            return STOP
        if not load_elements(s, m, SECOND, b_at, channels, rows, columns, s.weights):
            return STOP
    out_at = locate(s, m, RESULT, channels, rows, columns, width, False, True)
    if out_at == NOWHERE:
        return STOP
    count = channels * rows * columns
    shift, (low, high) = r[Reg.SHIFT], clip_bounds(s, m)
    shift_a, shift_b = r[Reg.SHIFT_A], r[Reg.SHIFT_B]
    for k in range(count):
        value = np.int64(s.tile[k])
        if op == TileVector.MULTIPLY:
            value *= np.int64(s.weights[k])
        else:
            value <<= shift_a
            if op == TileVector.ADD:
                value += np.int64(s.weights[k]) << shift_b
        s.products[k] = requantize(value, shift, low, high, m.element_low, m.element_high)
    store_elements(s, m, out_at, channels, rows, columns, s.products)
    book_elements(s, m, row, count)
    return GO


@device
def tfill(s: State, m: Costs, row: int) -> int:
    if not in_bounds(s, Reg.OUT_CHANNELS, Reg.OUT_COLUMNS, 1, LARGEST_EXTENT):
        return STOP
    if not in_bounds(s, Reg.FILL, Reg.FILL, m.element_low, m.element_high):
        return STOP
    r = s.registers
    channels, rows, columns = r[Reg.OUT_CHANNELS], r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]
    at = locate(s, m, RESULT, channels, rows, columns, m.element_bytes, False, True)
    if at == NOWHERE:
        return STOP
    count = channels * rows * columns
    s.products[:count] = r[Reg.FILL]
    store_elements(s, m, at, channels, rows, columns, s.products)
    book_elements(s, m, row, count)
    return GO
