"""nmp_activationx and nmp_activationxf: functions by tables, and slopes of negative values.

The table or the slopes lie in the bias buffer.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.nmp.core import STOP, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.mac import (
    BIAS,
    beats_of,
    check_registers,
    end_operation,
    filter_shift,
    filter_words_ok,
    fits,
)
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.vector import begin_activation, clip_bounds, requantized
from tvm_npu.sim.nmp.xnmp import (
    LARGEST_SLOPE,
    LARGEST_TABLE_SHIFT,
    MOST_ACCUMULATOR_BITS,
    SLOPE_BEATS,
    SLOPE_BITS,
    TABLE_BEATS,
    TABLE_ENTRIES,
    TABLE_SEGMENT_BITS,
    Activation,
)
from tvm_npu.sim.nmp.xnmp import MacRegister as Reg

BYTE_ENTRIES, HALF_ENTRIES = TABLE_ENTRIES[1], TABLE_ENTRIES[2]
BYTE_BEATS, HALF_BEATS = TABLE_BEATS[1], TABLE_BEATS[2]
SEGMENT_BITS = TABLE_SEGMENT_BITS[2]
SLOPE_BYTES = 4


@device
def nmp_activationx(s: State, m: Costs, core: int, row: int) -> int:
    return extended_activation(s, m, core, row, False)


@device
def nmp_activationxf(s: State, m: Costs, core: int, row: int) -> int:
    return extended_activation(s, m, core, row, True)


@device
def extended_activation(s: State, m: Costs, core: int, row: int, by_filter: bool) -> int:
    """``by_filter``: with what each filter's word adds to SHIFT."""
    form = s.decoded[row, SUB]
    if form > Activation.PRELU:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    count = begin_activation(s, m, core, row)
    if count == 0:
        return STOP
    if by_filter and not filter_words_ok(s, m, core, row, s.mac[core, Reg.OUT_CHANNELS]):
        return STOP
    if form == Activation.TABLE:
        return by_table(s, m, core, row, by_filter)
    return by_slopes(s, m, core, row, by_filter, form == Activation.PRELU)


@device
def constants_ok(s: State, m: Costs, core: int, count: int, size: int) -> bool:
    """``count`` values of ``size`` bytes lie at TABLE_ADDRESS of the bias buffer."""
    begin = s.mac[core, Reg.TABLE_ADDRESS]
    if begin % size:
        trap(s, core, Code.BAD_CONFIGURATION, begin, 0, Reg.TABLE_ADDRESS, 0)
        return False
    first, last = s.mac_ranges[core, 2 * BIAS], s.mac_ranges[core, 2 * BIAS + 1]
    if not fits(s, m, core, BIAS, begin, begin + count * size, m.bias_bytes):
        return False
    if last > first:  # and the words of filters
        s.mac_ranges[core, 2 * BIAS] = min(first, begin)
        s.mac_ranges[core, 2 * BIAS + 1] = max(last, begin + count * size)
    return True


@device
def shift_of(s: State, core: int, channel: int, by_filter: bool, most: int) -> int:
    if not by_filter:
        return min(s.mac[core, Reg.SHIFT], np.int64(most))
    return min(s.mac[core, Reg.SHIFT] + filter_shift(s, core, channel), np.int64(most))


@device
def by_table(s: State, m: Costs, core: int, row: int, by_filter: bool) -> int:
    r = s.mac[core]
    size, channels = r[Reg.ELEMENT_BYTES], r[Reg.OUT_CHANNELS]
    if not constants_ok(s, m, core, HALF_ENTRIES if size == 2 else BYTE_ENTRIES, size):
        return STOP
    if not check_registers(s, core, Reg.FACTOR, Reg.FACTOR, 0, LARGEST_TABLE_SHIFT):
        return STOP
    area = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    top = (np.int64(1) << (8 * size - 1)) - 1
    low, high = clip_bounds(s, core, top)
    table = r[Reg.TABLE_ADDRESS] // size
    memory, at = s.mb2[core], r[Reg.OUT_ADDRESS]
    for c in range(channels):
        shift = shift_of(s, core, c, by_filter, 62)
        for k in range(at, at + area):
            a = requantized(memory[k], shift, top, low, high) << r[Reg.FACTOR]
            x = min(max(a, -top - 1), top) + top + 1
            memory[k] = looked_up(s, core, size, table, x)
        at += area
    beats = beats_of(channels * area, m, size) * (HALF_BEATS if size == 2 else BYTE_BEATS)
    return end_operation(s, m, core, row, beats, 0)


@device
def looked_up(s: State, core: int, size: int, table: int, x: int) -> int:
    """The value at argument ``x``, from 0 on, of the table whose first element is ``table``."""
    if size == 1:
        return np.int64(s.bias[core, table + x])
    at = table + (x >> SEGMENT_BITS)
    first = np.int64(s.bias_half[core, at])
    rise = (np.int64(s.bias_half[core, at + 1]) - first) * (x & ((1 << SEGMENT_BITS) - 1))
    return first + ((rise + (1 << (SEGMENT_BITS - 1))) >> SEGMENT_BITS)


@device
def by_slopes(
    s: State, m: Costs, core: int, row: int, by_filter: bool, by_channel: bool
) -> int:
    r = s.mac[core]
    channels = r[Reg.OUT_CHANNELS]
    if by_channel and not constants_ok(s, m, core, channels, SLOPE_BYTES):
        return STOP
    if m.accumulator_bits > MOST_ACCUMULATOR_BITS:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    size = r[Reg.ELEMENT_BYTES]
    top = (np.int64(1) << (8 * size - 1)) - 1
    low, high = clip_bounds(s, core, top)
    area = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    slope = r[Reg.FACTOR]
    memory, at = s.mb2[core], r[Reg.OUT_ADDRESS]
    for c in range(channels):
        shift = shift_of(s, core, c, by_filter, 62 - SLOPE_BITS)
        if by_channel:
            slope = np.int64(s.bias_word[core, r[Reg.TABLE_ADDRESS] // SLOPE_BYTES + c])
        if abs(slope) > LARGEST_SLOPE:
            return trap(s, core, Code.BAD_CONFIGURATION, slope, 0, Reg.FACTOR, 0)
        for k in range(at, at + area):
            if memory[k] < 0:
                scaled = memory[k] * slope
                memory[k] = requantized(scaled, shift + SLOPE_BITS, top, low, high)
            else:
                memory[k] = requantized(memory[k], shift, top, low, high)
        at += area
    beats = beats_of(channels * area, m, size) * SLOPE_BEATS
    return end_operation(s, m, core, row, beats, 0)
