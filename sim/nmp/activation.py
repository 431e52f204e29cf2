"""nmp_activationx: functions by a table of their values, and slopes of negative values.

The table or the slopes lie in the bias buffer.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.nmp.core import STOP, trap
from tvm_npu.sim.nmp.mac import BIAS, beats_of, check_registers, end_operation, fits
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.vector import begin_activation, requantized
from tvm_npu.sim.nmp.xnmp import (
    LARGEST_SLOPE,
    LARGEST_TABLE_SHIFT,
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
MOST_ACCUMULATOR_BITS = 48
"""A product with a slope then has 63 bits at most."""


@device
def nmp_activationx(s: State, m: Costs, core: int, row: int) -> int:
    form = s.decoded[row, SUB]
    if form > Activation.PRELU:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    count = begin_activation(s, m, core, row)
    if count == 0:
        return STOP
    if form == Activation.TABLE:
        return by_table(s, m, core, row, count)
    return by_slopes(s, m, core, row, count, form == Activation.PRELU)


@device
def constants_ok(s: State, m: Costs, core: int, count: int, size: int) -> bool:
    """``count`` values of ``size`` bytes lie at TABLE_ADDRESS of the bias buffer."""
    begin = s.mac[core, Reg.TABLE_ADDRESS]
    if begin % size:
        trap(s, core, Code.BAD_CONFIGURATION, begin, 0, Reg.TABLE_ADDRESS, 0)
        return False
    return fits(s, m, core, BIAS, begin, begin + count * size, m.bias_bytes)


@device
def by_table(s: State, m: Costs, core: int, row: int, count: int) -> int:
    r = s.mac[core]
    size = r[Reg.ELEMENT_BYTES]
    if not constants_ok(s, m, core, HALF_ENTRIES if size == 2 else BYTE_ENTRIES, size):
        return STOP
    if not check_registers(s, core, Reg.FACTOR, Reg.FACTOR, 0, LARGEST_TABLE_SHIFT):
        return STOP
    zoom, shift = r[Reg.FACTOR], r[Reg.SHIFT]
    top = (np.int64(1) << (8 * size - 1)) - 1
    low, high = max(r[Reg.LOW], -top - 1), min(r[Reg.HIGH], top)
    table = r[Reg.TABLE_ADDRESS] // size
    memory, out = s.mb2[core], r[Reg.OUT_ADDRESS]
    for k in range(out, out + count):
        a = requantized(memory[k], shift, top, low, high) << zoom
        x = min(max(a, -top - 1), top) + top + 1
        if size == 1:
            memory[k] = s.bias[core, table + x]
            continue
        at = table + (x >> SEGMENT_BITS)
        first = np.int64(s.bias_half[core, at])
        rise = (np.int64(s.bias_half[core, at + 1]) - first) * (x & ((1 << SEGMENT_BITS) - 1))
        memory[k] = first + ((rise + (1 << (SEGMENT_BITS - 1))) >> SEGMENT_BITS)
    beats = beats_of(count, m, size) * (HALF_BEATS if size == 2 else BYTE_BEATS)
    return end_operation(s, m, core, row, beats, 0)


@device
def by_slopes(s: State, m: Costs, core: int, row: int, count: int, by_channel: bool) -> int:
    r = s.mac[core]
    channels = r[Reg.OUT_CHANNELS]
    if by_channel and not constants_ok(s, m, core, channels, SLOPE_BYTES):
        return STOP
    if m.accumulator_bits > MOST_ACCUMULATOR_BITS:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    size, shift = r[Reg.ELEMENT_BYTES], r[Reg.SHIFT]
    if not check_registers(s, core, Reg.SHIFT, Reg.SHIFT, -62, 62 - SLOPE_BITS):
        return STOP
    top = (np.int64(1) << (8 * size - 1)) - 1
    low, high = max(r[Reg.LOW], -top - 1), min(r[Reg.HIGH], top)
    area = count // channels
    slope = r[Reg.FACTOR]
    memory, at = s.mb2[core], r[Reg.OUT_ADDRESS]
    for c in range(channels):
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
    return end_operation(s, m, core, row, beats_of(count, m, size) * SLOPE_BEATS, 0)
