"""nmp_pool, nmp_veop and nmp_activation, and their forms by filter and channel."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled.arithmetic import overlap
from tvm_npu.sim.compiled.spans import product, volume
from tvm_npu.sim.nmp.core import STOP, spend, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.mac import (
    LARGEST_EXTENT,
    MB0,
    MB1,
    beats_of,
    begin_operation,
    check_registers,
    end_operation,
    filter_shift,
    filter_words_ok,
    in_ok,
    out_ok,
    scales_ok,
    tile_ok,
)
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.xnmp import LARGEST_SHIFT, LARGEST_WEIGH_FACTOR, PoolKind, VectorOp
from tvm_npu.sim.nmp.xnmp import MacRegister as Reg


@device
def element(s: State, core: int, memory: int, wide: bool, index: int) -> int:
    if memory == MB0:
        return np.int64(s.mb0_half[core, index]) if wide else np.int64(s.mb0[core, index])
    return np.int64(s.mb1_half[core, index]) if wide else np.int64(s.mb1[core, index])


@device
def nmp_pool(s: State, m: Costs, core: int, row: int) -> int:
    if not begin_operation(s, m, core, row):
        return STOP
    if not check_registers(s, core, Reg.DILATION_ROWS, Reg.DILATION_COLUMNS, 1, 1):
        return STOP
    if not tile_ok(s, m, core):
        return STOP
    r = s.mac[core]
    channels = r[Reg.OUT_CHANNELS]
    if not in_ok(s, m, core, MB0, volume(channels, r[Reg.IN_ROWS], r[Reg.IN_COLUMNS])):
        return STOP
    away = s.decoded[row, SUB] == PoolKind.AVERAGE_AWAY
    if away and not scales_ok(s, m, core, row):
        return STOP
    if s.decoded[row, SUB] > PoolKind.AVERAGE_AWAY:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    window = product(r[Reg.KERNEL_ROWS], r[Reg.KERNEL_COLUMNS])
    if not spend(s, core, volume(channels, r[Reg.OUT_ROWS], product(r[Reg.OUT_COLUMNS], window))):
        return STOP
    average = s.decoded[row, SUB] >= PoolKind.AVERAGE
    wide = r[Reg.ELEMENT_BYTES] == 2
    base = r[Reg.IN_ADDRESS] // 2 if wide else r[Reg.IN_ADDRESS]
    at = r[Reg.OUT_ADDRESS]
    for c in range(channels):
        plane = base + c * r[Reg.IN_ROWS] * r[Reg.IN_COLUMNS]
        for p in range(r[Reg.OUT_ROWS]):
            top = p * r[Reg.STRIDE_ROWS]
            counted_rows = overlap(
                r[Reg.ORIGIN_ROW] + top,
                r[Reg.KERNEL_ROWS],
                r[Reg.COUNT_ROW_BEGIN],
                r[Reg.COUNT_ROW_END],
            )
            for q in range(r[Reg.OUT_COLUMNS]):
                left = q * r[Reg.STRIDE_COLUMNS]
                corner = plane + top * r[Reg.IN_COLUMNS] + left
                best = element(s, core, MB0, wide, corner)
                total = np.int64(0)
                for i in range(r[Reg.KERNEL_ROWS]):
                    for j in range(r[Reg.KERNEL_COLUMNS]):
                        x = element(s, core, MB0, wide, corner + i * r[Reg.IN_COLUMNS] + j)
                        best = max(best, x)
                        total += x
                if average:
                    count = counted_rows * overlap(
                        r[Reg.ORIGIN_COLUMN] + left, r[Reg.KERNEL_COLUMNS],
                        r[Reg.COUNT_COLUMN_BEGIN], r[Reg.COUNT_COLUMN_END],
                    )  # fmt: skip
                    if count < 1:
                        last = r[Reg.COUNT_ROW_END]
                        return trap(
                            s, core, Code.BAD_CONFIGURATION, last, 0, Reg.COUNT_ROW_END, 0
                        )
                    if away and total < 0:
                        best = -((count - 2 * total) // (2 * count))
                    else:
                        best = (2 * total + count) // (2 * count)
                s.mb2[core, at] = best
                at += 1
    window *= r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    beats = channels * beats_of(window, m, r[Reg.ELEMENT_BYTES])
    return end_operation(s, m, core, row, beats, 0)


@device
def begin_elements(s: State, m: Costs, core: int, row: int) -> int:
    """Begins an operation on all elements of the OUT tile: how many they are, 0 after a trap."""
    if not begin_operation(s, m, core, row):
        return 0
    if not check_registers(s, core, Reg.ELEMENT_BYTES, Reg.ELEMENT_BYTES, 1, 2):
        return 0
    if not check_registers(s, core, Reg.OUT_CHANNELS, Reg.OUT_COLUMNS, 1, LARGEST_EXTENT):
        return 0
    r = s.mac[core]
    return volume(r[Reg.OUT_CHANNELS], r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS])


@device
def nmp_veop(s: State, m: Costs, core: int, row: int) -> int:
    return vector_operation(s, m, core, row, False, False)


@device
def nmp_veopf(s: State, m: Costs, core: int, row: int) -> int:
    return vector_operation(s, m, core, row, True, False)


@device
def nmp_veopc(s: State, m: Costs, core: int, row: int) -> int:
    return vector_operation(s, m, core, row, False, True)


@device
def joined(op: int, a: int, b: int, shift_a: int, shift_b: int) -> int:
    """Two elements under an operation that takes two."""
    if op == VectorOp.MULTIPLY:
        return a * b
    if op == VectorOp.ADD:
        return (a << shift_a) + (b << shift_b)
    if op == VectorOp.SUBTRACT:
        return (a << shift_a) - (b << shift_b)
    return max(a << shift_a, b << shift_b)


@device
def vector_operation(
    s: State, m: Costs, core: int, row: int, by_filter: bool, by_channel: bool
) -> int:
    """``by_filter``: an ACCUMULATE with what each filter's word adds to SHIFT_B; ``by_channel``:
    the second operand has one element for each channel."""
    op = np.int64(s.decoded[row, SUB])
    if by_filter:
        op = np.int64(VectorOp.ACCUMULATE)
    two = op != VectorOp.COPY and op != VectorOp.ACCUMULATE
    weighs = op == VectorOp.WEIGH or op == VectorOp.WEIGH_ONE
    if weighs and not by_channel:
        return weigh(s, m, core, row, op == VectorOp.WEIGH)
    if weighs or (by_channel and not two):
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    count = begin_elements(s, m, core, row)
    if count == 0:
        return STOP
    if not check_registers(s, core, Reg.SHIFT_A, Reg.SHIFT_B, 0, LARGEST_SHIFT):
        return STOP
    r = s.mac[core]
    if not in_ok(s, m, core, MB0, count) or not out_ok(s, m, core, count):
        return STOP
    plane = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    each = plane if by_channel else np.int64(1)
    if two and not in_ok(s, m, core, MB1, count // each):
        return STOP
    if by_filter and not filter_words_ok(s, m, core, row, r[Reg.OUT_CHANNELS]):
        return STOP
    wide = r[Reg.ELEMENT_BYTES] == 2
    at_a = r[Reg.IN_ADDRESS] // 2 if wide else r[Reg.IN_ADDRESS]
    at_b = r[Reg.W_ADDRESS] // 2 if wide else r[Reg.W_ADDRESS]
    out = r[Reg.OUT_ADDRESS]
    bound = np.int64(1) << (m.accumulator_bits - 1)
    shift_a, shift_b = r[Reg.SHIFT_A], r[Reg.SHIFT_B]
    for k in range(count):
        if by_filter and k % plane == 0:
            shift_b = r[Reg.SHIFT_B] + filter_shift(s, core, k // plane)
            if shift_b > LARGEST_SHIFT:
                return trap(s, core, Code.BAD_CONFIGURATION, shift_b, 0, Reg.SHIFT_B, 0)
        a = element(s, core, MB0, wide, at_a + k)
        if op == VectorOp.COPY:
            value = a << shift_a
        elif two:
            b = element(s, core, MB1, wide, at_b + k // each)
            value = joined(op, a, b, shift_a, shift_b)
        else:
            kept = s.mb2[core, out + k]
            if abs(kept) >> (62 - shift_a):
                return trap(s, core, Code.ACCUMULATOR_OVERFLOW, kept, m.accumulator_bits, k, 0)
            value = (kept << shift_a) + (a << shift_b)
        if value >= bound or value < -bound:
            return trap(s, core, Code.ACCUMULATOR_OVERFLOW, value, m.accumulator_bits, k, 0)
        s.mb2[core, out + k] = value
    return end_operation(s, m, core, row, beats_of(count, m, r[Reg.ELEMENT_BYTES]), 0)


@device
def weigh(s: State, m: Costs, core: int, row: int, two: bool) -> int:
    """Sums of elements by factors, and a constant."""
    if not scales_ok(s, m, core, row):
        return STOP
    count = begin_elements(s, m, core, row)
    if count == 0:
        return STOP
    last = Reg.SHIFT_B if two else Reg.SHIFT_A
    most = LARGEST_WEIGH_FACTOR
    if not check_registers(s, core, Reg.SHIFT_A, last, -most, most):
        return STOP
    r = s.mac[core]
    if not in_ok(s, m, core, MB0, count) or not out_ok(s, m, core, count):
        return STOP
    if two and not in_ok(s, m, core, MB1, count):
        return STOP
    bound = np.int64(1) << (m.accumulator_bits - 1)
    a, b, out = r[Reg.IN_ADDRESS], r[Reg.W_ADDRESS], r[Reg.OUT_ADDRESS]
    for k in range(count):
        value = s.mb0[core, a + k] * r[Reg.SHIFT_A] + r[Reg.FACTOR]
        if two:
            value += s.mb1[core, b + k] * r[Reg.SHIFT_B]
        if value >= bound or value < -bound:
            return trap(s, core, Code.ACCUMULATOR_OVERFLOW, value, m.accumulator_bits, k, 0)
        s.mb2[core, out + k] = value
    return end_operation(s, m, core, row, beats_of(count, m, np.int64(1)), 0)


@device
def begin_activation(s: State, m: Costs, core: int, row: int) -> int:
    """Begins a requantization of the OUT tile: how many elements it has, 0 after a trap."""
    count = begin_elements(s, m, core, row)
    if count == 0:
        return 0
    if not check_registers(s, core, Reg.SHIFT, Reg.SHIFT, -LARGEST_SHIFT, 62):
        return 0
    return count if out_ok(s, m, core, count) else 0


@device
def clip_bounds(s: State, core: int, top: int) -> tuple[int, int]:
    """LOW and HIGH, saturated to the element type, whose largest value is ``top``."""
    low, high = s.mac[core, Reg.LOW], s.mac[core, Reg.HIGH]
    return min(max(low, -top - 1), top), min(max(high, -top - 1), top)


@device
def requantized(accumulator: int, shift: int, top: int, low: int, high: int) -> int:
    """``top`` is the element type's largest; low and high lie in the type."""
    if shift > 0:
        value = (accumulator + (np.int64(1) << (shift - 1))) >> shift
    else:
        value = min(max(accumulator, -top - 1), top) << -shift
    return min(max(value, low), high)


@device
def nmp_activation(s: State, m: Costs, core: int, row: int) -> int:
    return activation(s, m, core, row, False)


@device
def nmp_activationf(s: State, m: Costs, core: int, row: int) -> int:
    return activation(s, m, core, row, True)


@device
def activation(s: State, m: Costs, core: int, row: int, by_filter: bool) -> int:
    """``by_filter``: with what each filter's word adds to SHIFT."""
    count = begin_activation(s, m, core, row)
    if count == 0:
        return STOP
    r = s.mac[core]
    if by_filter and not filter_words_ok(s, m, core, row, r[Reg.OUT_CHANNELS]):
        return STOP
    shift = r[Reg.SHIFT]
    top = (np.int64(1) << (8 * r[Reg.ELEMENT_BYTES] - 1)) - 1
    low, high = clip_bounds(s, core, top)
    out, memory = r[Reg.OUT_ADDRESS], s.mb2[core]
    each = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS] if by_filter else count
    for c in range(count // each):
        if by_filter:
            shift = min(r[Reg.SHIFT] + filter_shift(s, core, c), np.int64(62))
        accumulators = memory[out + c * each : out + (c + 1) * each]
        for k in range(each):
            accumulators[k] = requantized(accumulators[k], shift, top, low, high)
    return end_operation(s, m, core, row, beats_of(count, m, r[Reg.ELEMENT_BYTES]), 0)
