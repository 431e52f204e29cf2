"""nmp_conv2d and nmp_percept.

Products of int16 are exact in float64 as long as fewer than 2**23 of them are summed, so a tile's
convolution runs as a float64 matrix product over an im2col buffer. Cores of a TLE that hold the
same multicast tile share that buffer (`State.mb0_tag` says when the content is the same).
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled.arrays import copy_run
from tvm_npu.sim.compiled.matmul import matmul
from tvm_npu.sim.compiled.spans import product, volume
from tvm_npu.sim.nmp.columns import COLUMN_BUFFERS
from tvm_npu.sim.nmp.content import tag_of
from tvm_npu.sim.nmp.core import STOP, spend, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.mac import (
    LARGEST_EXTENT,
    MB0,
    beats_of,
    begin_operation,
    check_registers,
    end_operation,
    filter_bias,
    filters_ok,
    in_ok,
    out_ok,
    tile_ok,
    zero_point_ok,
)
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.xnmp import Initialise
from tvm_npu.sim.nmp.xnmp import MacRegister as Reg


@device
def load_weights(s: State, core: int, filters: int, depth: int, zero: int) -> None:
    """MB1's filters less ``zero`` as float64 [filters, depth] in the scratch."""
    pitch = s.mac[core, Reg.W_PITCH]
    wide = s.mac[core, Reg.ELEMENT_BYTES] == 2
    begin = s.mac[core, Reg.W_ADDRESS] // 2 if wide else s.mac[core, Reg.W_ADDRESS]
    for f in range(filters):
        base = begin + f * pitch
        if wide:
            copy_run(s.weights, f * depth, s.mb1_half[core], base, depth, 1)
        else:
            copy_run(s.weights, f * depth, s.mb1[core], base, depth, 1)
    if zero != 0:
        weights = s.weights
        for k in range(filters * depth):
            weights[k] -= zero


@device
def fill_columns(
    s: State, core: int, target: Array, first_channel: int, begin: int, end: int
) -> None:
    """im2col of output positions begin..end of one group: float64 [depth, end - begin]."""
    r = s.mac[core]
    channels, in_rows, in_columns = r[Reg.IN_CHANNELS], r[Reg.IN_ROWS], r[Reg.IN_COLUMNS]
    kernel_rows, kernel_columns = r[Reg.KERNEL_ROWS], r[Reg.KERNEL_COLUMNS]
    stride_rows, stride_columns = r[Reg.STRIDE_ROWS], r[Reg.STRIDE_COLUMNS]
    dilation_rows, dilation_columns = r[Reg.DILATION_ROWS], r[Reg.DILATION_COLUMNS]
    out_columns = r[Reg.OUT_COLUMNS]
    wide = r[Reg.ELEMENT_BYTES] == 2
    address = r[Reg.IN_ADDRESS] // 2 if wide else r[Reg.IN_ADDRESS]
    half, byte = s.mb0_half[core], s.mb0[core]
    if stride_rows == 1 and stride_columns == 1 and in_columns == out_columns:
        # Rows of windows follow each other.
        out_columns *= r[Reg.OUT_ROWS]
    first_row, last_row = begin // out_columns, (end - 1) // out_columns
    at = 0
    for c in range(channels):
        channel = address + (first_channel + c) * in_rows * in_columns
        for i in range(kernel_rows):
            for j in range(kernel_columns):
                for row in range(first_row, last_row + 1):
                    q0 = begin - row * out_columns if row == first_row else 0
                    q1 = end - row * out_columns if row == last_row else out_columns
                    base = channel + (row * stride_rows + i * dilation_rows) * in_columns
                    base += j * dilation_columns + q0 * stride_columns
                    if wide:
                        copy_run(target, at, half, base, q1 - q0, stride_columns)
                    else:
                        copy_run(target, at, byte, base, q1 - q0, stride_columns)
                    at += q1 - q0


@device
def share_columns(s: State, m: Costs, core: int, tle: int) -> tuple[int, bool]:
    """(buffer of the TLE for this core's im2col, whether it holds that already); claims it if
    not. A core fills the buffer that its number gives, so parts of a tile that several cores share
    stay beside each other; what nobody shares goes to the first."""
    r, used = s.mac[core], s.mac_ranges[core]
    tag = tag_of(s, core, used[2 * MB0], used[2 * MB0 + 1])
    if tag == 0:
        s.column_key[tle, 0, 0] = 0
        return 0, False
    packed_in = (r[Reg.IN_CHANNELS] << 40) + (r[Reg.IN_ROWS] << 20) + r[Reg.IN_COLUMNS]
    packed_kernel = (r[Reg.KERNEL_ROWS] << 20) + r[Reg.KERNEL_COLUMNS]
    packed_stride = (r[Reg.STRIDE_ROWS] << 20) + r[Reg.STRIDE_COLUMNS]
    packed_dilation = (r[Reg.DILATION_ROWS] << 20) + r[Reg.DILATION_COLUMNS]
    for slot in range(COLUMN_BUFFERS):
        key = s.column_key[tle, slot]
        if key[0] == tag:
            same = key[1] == r[Reg.IN_ADDRESS] and key[2] == r[Reg.ELEMENT_BYTES]
            same = same and key[3] == r[Reg.OUT_ROWS] and key[4] == r[Reg.OUT_COLUMNS]
            same = same and key[5] == packed_in and key[6] == packed_kernel
            if same and key[7] == packed_stride and key[8] == packed_dilation:
                return slot, True
    slot = core % m.tlts % COLUMN_BUFFERS
    key = s.column_key[tle, slot]
    key[0], key[1], key[2] = tag, r[Reg.IN_ADDRESS], r[Reg.ELEMENT_BYTES]
    key[3], key[4] = r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]
    key[5], key[6], key[7], key[8] = packed_in, packed_kernel, packed_stride, packed_dilation
    return slot, False


@device
def add_run(
    memory: Array, products: Array, count: int, start: int, keeps: bool
) -> tuple[int, int]:
    """Adds ``count`` products to ``start``, or where it ``keeps`` them to the accumulators in
    ``memory``; (the largest, the smallest) of the sums and 0."""
    largest, smallest = np.int64(0), np.int64(0)
    for p in range(count):
        value = np.int64(products[p]) + (memory[p] if keeps else start)
        memory[p] = value
        largest = max(largest, value)
        smallest = min(smallest, value)
    return largest, smallest


@device
def accumulate(
    s: State, m: Costs, core: int, initialise: int, first: int, filters: int,
    positions: int, begin: int, count: int,
) -> bool:  # fmt: skip
    """Adds products [filters, count] to MB2[first..][begin..begin+count], checking the width."""
    out = s.mac[core, Reg.OUT_ADDRESS]
    bias_base = s.mac[core, Reg.BIAS_ADDRESS]
    bound = np.int64(1) << (m.accumulator_bits - 1)
    memory = s.mb2[core]
    for f in range(filters):
        start = np.int64(0)
        if initialise == Initialise.BIAS:
            start = np.int64(s.bias_word[core, bias_base + first + f])
        elif initialise == Initialise.FILTER:
            start = filter_bias(s, core, bias_base + first + f)
        at = out + (first + f) * positions + begin
        largest, smallest = add_run(
            memory[at : at + count], s.products[f * count : (f + 1) * count], count, start,
            initialise == Initialise.KEEP,
        )  # fmt: skip
        if largest >= bound or smallest < -bound:
            worst = largest if largest >= bound else smallest
            trap(s, core, Code.ACCUMULATOR_OVERFLOW, worst, m.accumulator_bits, first + f, 0)
            return False
    return True


@device
def add_multiples(line: Array, source: Array, begin: int, step: int, weight: float) -> None:
    """Adds ``weight`` times source[begin], source[begin + step], ... to a line."""
    if step == 1:
        elements = source[begin : begin + len(line)]
        for q in range(len(line)):
            line[q] += weight * elements[q]
    else:
        for q in range(len(line)):
            line[q] += weight * source[begin + q * step]


@device
def depthwise_row(s: State, core: int, channel: int, first: int, filters: int) -> None:
    """Products of one group with a single input channel, without im2col."""
    r = s.mac[core]
    in_columns, out_columns = r[Reg.IN_COLUMNS], r[Reg.OUT_COLUMNS]
    taps = r[Reg.KERNEL_ROWS] * r[Reg.KERNEL_COLUMNS]
    positions = r[Reg.OUT_ROWS] * out_columns
    wide = r[Reg.ELEMENT_BYTES] == 2
    base = r[Reg.IN_ADDRESS] // 2 if wide else r[Reg.IN_ADDRESS]
    base += channel * r[Reg.IN_ROWS] * in_columns
    half, byte = s.mb0_half[core], s.mb0[core]
    for f in range(filters):
        target = s.products[f * positions : (f + 1) * positions]
        target[:] = 0.0
        for i in range(r[Reg.KERNEL_ROWS]):
            for j in range(r[Reg.KERNEL_COLUMNS]):
                weight = s.weights[(first + f) * taps + i * r[Reg.KERNEL_COLUMNS] + j]
                for row in range(r[Reg.OUT_ROWS]):
                    at = base + (row * r[Reg.STRIDE_ROWS] + i * r[Reg.DILATION_ROWS]) * in_columns
                    at += j * r[Reg.DILATION_COLUMNS]
                    line = target[row * out_columns : (row + 1) * out_columns]
                    if wide:
                        add_multiples(line, half, at, r[Reg.STRIDE_COLUMNS], weight)
                    else:
                        add_multiples(line, byte, at, r[Reg.STRIDE_COLUMNS], weight)


@device
def nmp_conv2d(s: State, m: Costs, core: int, row: int) -> int:
    return convolution(s, m, core, row, np.int64(0))


@device
def nmp_conv2dz(s: State, m: Costs, core: int, row: int) -> int:
    if not zero_point_ok(s, m, core, row):
        return STOP
    return convolution(s, m, core, row, s.mac[core, Reg.SHIFT_B])


@device
def convolution(s: State, m: Costs, core: int, row: int, zero: int) -> int:
    """``zero`` is the zero point of the filters."""
    if not begin_operation(s, m, core, row) or not tile_ok(s, m, core):
        return STOP
    if not check_registers(s, core, Reg.GROUPS, Reg.GROUPS, 1, LARGEST_EXTENT):
        return STOP
    r = s.mac[core]
    groups, filters = r[Reg.GROUPS], r[Reg.OUT_CHANNELS]
    if filters % groups:
        return trap(s, core, Code.BAD_CONFIGURATION, groups, filters, Reg.GROUPS, 0)
    taps = product(r[Reg.KERNEL_ROWS], r[Reg.KERNEL_COLUMNS])
    depth = product(r[Reg.IN_CHANNELS], taps)
    group_elements = volume(r[Reg.IN_CHANNELS], r[Reg.IN_ROWS], r[Reg.IN_COLUMNS])
    initialise = s.decoded[row, SUB]
    if initialise > Initialise.FILTER:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    if not in_ok(s, m, core, MB0, product(groups, group_elements)):
        return STOP
    if not filters_ok(s, m, core, row, filters, depth, initialise):
        return STOP
    positions = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    if not spend(s, core, volume(depth, filters, positions)):
        return STOP
    load_weights(s, core, filters, depth, zero)
    per_group = filters // groups
    tle = core // m.tlts
    for group in range(groups):
        first = group * per_group
        if r[Reg.IN_CHANNELS] == 1 and per_group <= 2:
            depthwise_row(s, core, group, first, per_group)
            if not accumulate(s, m, core, initialise, first, per_group, positions, 0, positions):
                return STOP
            continue
        block = min(positions, max(1, s.columns.shape[2] // depth))
        slot, reuse = 0, False
        if groups == 1 and block == positions:
            slot, reuse = share_columns(s, m, core, tle)
        else:
            s.column_key[tle, 0, 0] = 0
        columns = s.columns[tle, slot]
        weights = s.weights[first * depth : (first + per_group) * depth]
        for begin in range(0, positions, block):
            count = min(block, positions - begin)
            if not reuse:
                fill_columns(s, core, columns, group * r[Reg.IN_CHANNELS], begin, begin + count)
            matmul(weights, columns, s.products, per_group, depth, count)
            if not accumulate(s, m, core, initialise, first, per_group, positions, begin, count):
                return STOP
    beats = r[Reg.IN_CHANNELS] * filters * beats_of(positions * taps, m, r[Reg.ELEMENT_BYTES])
    return end_operation(s, m, core, row, beats, depth * filters * positions)


@device
def nmp_percept(s: State, m: Costs, core: int, row: int) -> int:
    return perceptron(s, m, core, row, np.int64(0))


@device
def nmp_perceptz(s: State, m: Costs, core: int, row: int) -> int:
    if not zero_point_ok(s, m, core, row):
        return STOP
    return perceptron(s, m, core, row, s.mac[core, Reg.SHIFT_B])


@device
def perceptron(s: State, m: Costs, core: int, row: int, zero: int) -> int:
    """``zero`` is the zero point of the filters."""
    if not begin_operation(s, m, core, row):
        return STOP
    if not check_registers(s, core, Reg.ELEMENT_BYTES, Reg.ELEMENT_BYTES, 1, 2):
        return STOP
    r = s.mac[core]
    filters, depth = r[Reg.OUT_CHANNELS], r[Reg.IN_CHANNELS]
    if filters < 1 or filters > LARGEST_EXTENT or depth < 1 or depth > LARGEST_EXTENT:
        register = Reg.IN_CHANNELS if 1 <= filters <= LARGEST_EXTENT else Reg.OUT_CHANNELS
        return trap(s, core, Code.BAD_CONFIGURATION, r[register], 0, register, 0)
    if not in_ok(s, m, core, MB0, depth) or not out_ok(s, m, core, filters):
        return STOP
    initialise = s.decoded[row, SUB]
    if initialise > Initialise.FILTER:
        return trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
    if not filters_ok(s, m, core, row, filters, depth, initialise):
        return STOP
    wide = r[Reg.ELEMENT_BYTES] == 2
    at_x = r[Reg.IN_ADDRESS] // 2 if wide else r[Reg.IN_ADDRESS]
    at_w = r[Reg.W_ADDRESS] // 2 if wide else r[Reg.W_ADDRESS]
    for f in range(filters):
        total = np.int64(0)
        base = at_w + f * r[Reg.W_PITCH]
        if wide:
            for k in range(depth):
                total += np.int64(s.mb0_half[core, at_x + k]) * s.mb1_half[core, base + k]
        else:
            for k in range(depth):
                total += np.int64(s.mb0[core, at_x + k]) * (s.mb1[core, base + k] - zero)
        s.products[f] = np.float64(total)
    if not accumulate(s, m, core, initialise, 0, filters, 1, 0, 1):
        return STOP
    beats = filters * beats_of(depth, m, r[Reg.ELEMENT_BYTES])
    return end_operation(s, m, core, row, beats, depth * filters)
