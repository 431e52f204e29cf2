"""nmp_pool, nmp_veop and nmp_activation."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.nmp.core import STOP, trap
from tvm_npu.sim.nmp.mac import (
    LARGEST_EXTENT,
    MB0,
    MB1,
    beats_of,
    begin_operation,
    check_registers,
    end_operation,
    in_ok,
    out_ok,
    tile_ok,
)
from tvm_npu.sim.nmp.mac_registers import (
    COUNT_COLUMN_BEGIN,
    COUNT_COLUMN_END,
    COUNT_ROW_BEGIN,
    COUNT_ROW_END,
    DILATION_COLUMNS,
    DILATION_ROWS,
    ELEMENT_BYTES,
    HIGH,
    IN_ADDRESS,
    IN_COLUMNS,
    IN_ROWS,
    KERNEL_COLUMNS,
    KERNEL_ROWS,
    LOW,
    ORIGIN_COLUMN,
    ORIGIN_ROW,
    OUT_ADDRESS,
    OUT_CHANNELS,
    OUT_COLUMNS,
    OUT_ROWS,
    SHIFT,
    SHIFT_A,
    SHIFT_B,
    STRIDE_COLUMNS,
    STRIDE_ROWS,
    W_ADDRESS,
)
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.nmp.xnmp import PoolKind, VectorOp

_OVERFLOW = int(TrapCode.ACCUMULATOR_OVERFLOW)
_BAD = int(TrapCode.BAD_CONFIGURATION)
_ILLEGAL = int(TrapCode.ILLEGAL_INSTRUCTION)

AVERAGE = int(PoolKind.AVERAGE)
COPY, ADD, MULTIPLY = int(VectorOp.COPY), int(VectorOp.ADD), int(VectorOp.MULTIPLY)
LARGEST_SHIFT = 47


@device
def element(s: State, core: int, memory: int, wide: bool, index: int) -> int:
    if memory == MB0:
        return np.int64(s.mb0_half[core, index]) if wide else np.int64(s.mb0[core, index])
    return np.int64(s.mb1_half[core, index]) if wide else np.int64(s.mb1[core, index])


@device
def overlap(begin: int, length: int, low: int, high: int) -> int:
    return max(0, min(begin + length, high) - max(begin, low))


@device
def nmp_pool(s: State, m: Costs, core: int, row: int) -> int:
    if not begin_operation(s, m, core, row):
        return STOP
    if not check_registers(s, core, DILATION_ROWS, DILATION_COLUMNS, 1, 1):
        return STOP
    if not tile_ok(s, m, core):
        return STOP
    r = s.mac[core]
    channels = r[OUT_CHANNELS]
    if not in_ok(s, m, core, MB0, channels * r[IN_ROWS] * r[IN_COLUMNS]):
        return STOP
    if s.decoded[row, SUB] > AVERAGE:
        return trap(s, core, _ILLEGAL, np.int64(s.words[row]), 0, 0, 0)
    average = s.decoded[row, SUB] == AVERAGE
    wide = r[ELEMENT_BYTES] == 2
    base = r[IN_ADDRESS] // 2 if wide else r[IN_ADDRESS]
    at = r[OUT_ADDRESS]
    for c in range(channels):
        plane = base + c * r[IN_ROWS] * r[IN_COLUMNS]
        for p in range(r[OUT_ROWS]):
            top = p * r[STRIDE_ROWS]
            counted_rows = overlap(
                r[ORIGIN_ROW] + top, r[KERNEL_ROWS], r[COUNT_ROW_BEGIN], r[COUNT_ROW_END]
            )
            for q in range(r[OUT_COLUMNS]):
                left = q * r[STRIDE_COLUMNS]
                corner = plane + top * r[IN_COLUMNS] + left
                best = element(s, core, MB0, wide, corner)
                total = np.int64(0)
                for i in range(r[KERNEL_ROWS]):
                    for j in range(r[KERNEL_COLUMNS]):
                        x = element(s, core, MB0, wide, corner + i * r[IN_COLUMNS] + j)
                        best = max(best, x)
                        total += x
                if average:
                    count = counted_rows * overlap(
                        r[ORIGIN_COLUMN] + left, r[KERNEL_COLUMNS],
                        r[COUNT_COLUMN_BEGIN], r[COUNT_COLUMN_END],
                    )  # fmt: skip
                    if count < 1:
                        return trap(s, core, _BAD, r[COUNT_ROW_END], 0, COUNT_ROW_END, 0)
                    best = (2 * total + count) // (2 * count)
                s.mb2[core, at] = best
                at += 1
    window = r[OUT_ROWS] * r[OUT_COLUMNS] * r[KERNEL_ROWS] * r[KERNEL_COLUMNS]
    beats = channels * beats_of(window, m, r[ELEMENT_BYTES])
    return end_operation(s, m, core, row, beats, 0)


@device
def nmp_veop(s: State, m: Costs, core: int, row: int) -> int:
    if not begin_operation(s, m, core, row):
        return STOP
    if not check_registers(s, core, ELEMENT_BYTES, ELEMENT_BYTES, 1, 2):
        return STOP
    if not check_registers(s, core, OUT_CHANNELS, OUT_COLUMNS, 1, LARGEST_EXTENT):
        return STOP
    if not check_registers(s, core, SHIFT_A, SHIFT_B, 0, LARGEST_SHIFT):
        return STOP
    r = s.mac[core]
    count = r[OUT_CHANNELS] * r[OUT_ROWS] * r[OUT_COLUMNS]
    op = s.decoded[row, SUB]
    if not in_ok(s, m, core, MB0, count) or not out_ok(s, m, core, count):
        return STOP
    two = op == ADD or op == MULTIPLY
    if two and not in_ok(s, m, core, MB1, count):
        return STOP
    wide = r[ELEMENT_BYTES] == 2
    at_a = r[IN_ADDRESS] // 2 if wide else r[IN_ADDRESS]
    at_b = r[W_ADDRESS] // 2 if wide else r[W_ADDRESS]
    out = r[OUT_ADDRESS]
    bound = np.int64(1) << (m.accumulator_bits - 1)
    for k in range(count):
        a = element(s, core, MB0, wide, at_a + k)
        if op == COPY:
            value = a << r[SHIFT_A]
        elif op == ADD:
            value = (a << r[SHIFT_A]) + (element(s, core, MB1, wide, at_b + k) << r[SHIFT_B])
        elif op == MULTIPLY:
            value = a * element(s, core, MB1, wide, at_b + k)
        else:
            kept = s.mb2[core, out + k]
            if abs(kept) >> (62 - r[SHIFT_A]):
                return trap(s, core, _OVERFLOW, kept, m.accumulator_bits, k, 0)
            value = (kept << r[SHIFT_A]) + (a << r[SHIFT_B])
        if value >= bound or value < -bound:
            return trap(s, core, _OVERFLOW, value, m.accumulator_bits, k, 0)
        s.mb2[core, out + k] = value
    return end_operation(s, m, core, row, beats_of(count, m, r[ELEMENT_BYTES]), 0)


@device
def nmp_activation(s: State, m: Costs, core: int, row: int) -> int:
    if not begin_operation(s, m, core, row):
        return STOP
    if not check_registers(s, core, ELEMENT_BYTES, ELEMENT_BYTES, 1, 2):
        return STOP
    if not check_registers(s, core, OUT_CHANNELS, OUT_COLUMNS, 1, LARGEST_EXTENT):
        return STOP
    if not check_registers(s, core, SHIFT, SHIFT, -LARGEST_SHIFT, 62):
        return STOP
    r = s.mac[core]
    count = r[OUT_CHANNELS] * r[OUT_ROWS] * r[OUT_COLUMNS]
    if not out_ok(s, m, core, count):
        return STOP
    shift = r[SHIFT]
    top = (np.int64(1) << (8 * r[ELEMENT_BYTES] - 1)) - 1
    low, high = max(r[LOW], -top - 1), min(r[HIGH], top)
    half = np.int64(0)
    if shift > 0:
        half = np.int64(1) << (shift - 1)
    out = r[OUT_ADDRESS]
    memory = s.mb2[core]
    for k in range(out, out + count):
        if shift >= 0:
            value = (memory[k] + half) >> shift
        else:
            kept = min(max(memory[k], -top - 1), top)
            value = kept << -shift
        memory[k] = min(max(value, low), high)
    return end_operation(s, m, core, row, beats_of(count, m, r[ELEMENT_BYTES]), 0)
