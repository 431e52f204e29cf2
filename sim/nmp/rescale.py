"""nmp_rescale: requantization by multipliers, with a zero point."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.nmp.activation import constants_ok
from tvm_npu.sim.nmp.core import STOP, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.mac import beats_of, check_registers, end_operation, scales_ok
from tvm_npu.sim.nmp.scale_words import (
    LARGEST_MULTIPLIER,
    MOST_SCALE_SHIFT,
    SCALE_SHIFT_BITS,
    SCALED_ACCUMULATOR_BITS,
)
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.vector import begin_elements, clip_bounds, out_ok
from tvm_npu.sim.nmp.xnmp import SLOPE_BEATS, Rescale
from tvm_npu.sim.nmp.xnmp import MacRegister as Reg

WORD_BYTES = 4
SMALLEST, LARGEST = -128, 127


@device
def nmp_rescale(s: State, m: Costs, core: int, row: int) -> int:
    form = s.decoded[row, SUB]
    if not scales_ok(s, m, core, row):
        return STOP
    count = begin_elements(s, m, core, row)
    if count == 0 or not out_ok(s, m, core, count):
        return STOP
    r = s.mac[core]
    if not check_registers(s, core, Reg.SHIFT, Reg.SHIFT, SMALLEST, LARGEST):
        return STOP
    channels = r[Reg.OUT_CHANNELS]
    by_channel = form == Rescale.CHANNEL or form == Rescale.CHANNEL_EVEN
    to_even = form >= Rescale.ONE_EVEN
    if by_channel and not constants_ok(s, m, core, channels, WORD_BYTES):
        return STOP
    bound = np.int64(1) << (SCALED_ACCUMULATOR_BITS - 1)
    low, high = clip_bounds(s, core, np.int64(LARGEST))
    plane = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    memory, at = s.mb2[core], r[Reg.OUT_ADDRESS]
    word = r[Reg.FACTOR]
    for c in range(channels):
        if by_channel:
            word = np.int64(s.bias_word[core, r[Reg.TABLE_ADDRESS] // WORD_BYTES + c])
        shift = word & ((1 << SCALE_SHIFT_BITS) - 1)
        if shift > MOST_SCALE_SHIFT:
            return trap(s, core, Code.BAD_CONFIGURATION, shift, 0, Reg.FACTOR, 0)
        multiplier = (word >> SCALE_SHIFT_BITS) & LARGEST_MULTIPLIER
        half = (np.int64(1) << shift) >> 1
        even = np.int64(to_even and shift > 0)
        for k in range(at, at + plane):
            if memory[k] >= bound or memory[k] < -bound:
                bits = SCALED_ACCUMULATOR_BITS
                return trap(s, core, Code.ACCUMULATOR_OVERFLOW, memory[k], bits, k, 0)
            product = memory[k] * multiplier
            # One less than half brings halves behind an even number back to it.
            product += half - (even & ~(product >> shift))
            value = (product >> shift) + r[Reg.SHIFT]
            memory[k] = min(max(value, low), high)
        at += plane
    beats = beats_of(count, m, np.int64(1)) * SLOPE_BEATS
    return end_operation(s, m, core, row, beats, 0)
