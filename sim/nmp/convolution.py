"""nmp_conv2d and nmp_percept.

Products of int16 are exact in float64 as long as fewer than 2**23 of them are summed, so a tile's
convolution runs as a float64 matrix product over an im2col buffer. Cores of a TLE that hold the
same multicast tile share that buffer (`State.mb0_tag` says when the content is the same).
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.nmp.content import tag_of
from tvm_npu.sim.nmp.core import STOP, trap
from tvm_npu.sim.nmp.mac import (
    LARGEST_EXTENT,
    MB0,
    beats_of,
    begin_operation,
    check_registers,
    end_operation,
    filters_ok,
    in_ok,
    out_ok,
    tile_ok,
)
from tvm_npu.sim.nmp.mac_registers import (
    BIAS_ADDRESS,
    DILATION_COLUMNS,
    DILATION_ROWS,
    ELEMENT_BYTES,
    GROUPS,
    IN_ADDRESS,
    IN_CHANNELS,
    IN_COLUMNS,
    IN_ROWS,
    KERNEL_COLUMNS,
    KERNEL_ROWS,
    OUT_ADDRESS,
    OUT_CHANNELS,
    OUT_COLUMNS,
    OUT_ROWS,
    STRIDE_COLUMNS,
    STRIDE_ROWS,
    W_ADDRESS,
    W_PITCH,
)
from tvm_npu.sim.nmp.semaphores import SUB
from tvm_npu.sim.nmp.state import COLUMN_BUFFERS, SCRATCH_ELEMENTS, Array, Costs, State
from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.nmp.xnmp import Initialise

_OVERFLOW = int(TrapCode.ACCUMULATOR_OVERFLOW)
_BAD = int(TrapCode.BAD_CONFIGURATION)
_ILLEGAL = int(TrapCode.ILLEGAL_INSTRUCTION)

KEEP, WITH_BIAS = int(Initialise.KEEP), int(Initialise.BIAS)
LARGEST_TILE = 1 << 32


@device
def load_weights(s: State, core: int, filters: int, depth: int) -> None:
    """MB1's filters as float64 [filters, depth] in the scratch."""
    pitch = s.mac[core, W_PITCH]
    wide = s.mac[core, ELEMENT_BYTES] == 2
    begin = s.mac[core, W_ADDRESS] // 2 if wide else s.mac[core, W_ADDRESS]
    for f in range(filters):
        base = begin + f * pitch
        target = f * depth
        if wide:
            for k in range(depth):
                s.weights[target + k] = s.mb1_half[core, base + k]
        else:
            for k in range(depth):
                s.weights[target + k] = s.mb1[core, base + k]


@device
def fill_columns(
    s: State, core: int, target: Array, first_channel: int, begin: int, end: int
) -> None:
    """im2col of output positions begin..end of one group: float64 [depth, end - begin]."""
    r = s.mac[core]
    channels, in_rows, in_columns = r[IN_CHANNELS], r[IN_ROWS], r[IN_COLUMNS]
    kernel_rows, kernel_columns = r[KERNEL_ROWS], r[KERNEL_COLUMNS]
    stride_rows, stride_columns = r[STRIDE_ROWS], r[STRIDE_COLUMNS]
    dilation_rows, dilation_columns = r[DILATION_ROWS], r[DILATION_COLUMNS]
    out_columns = r[OUT_COLUMNS]
    wide = r[ELEMENT_BYTES] == 2
    address = r[IN_ADDRESS] // 2 if wide else r[IN_ADDRESS]
    half, byte = s.mb0_half[core], s.mb0[core]
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
                    base += j * dilation_columns
                    if wide:
                        if stride_columns == 1:
                            for q in range(q0, q1):
                                target[at + q - q0] = half[base + q]
                        else:
                            for q in range(q0, q1):
                                target[at + q - q0] = half[base + q * stride_columns]
                    elif stride_columns == 1:
                        for q in range(q0, q1):
                            target[at + q - q0] = byte[base + q]
                    else:
                        for q in range(q0, q1):
                            target[at + q - q0] = byte[base + q * stride_columns]
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
    packed_in = (r[IN_CHANNELS] << 40) + (r[IN_ROWS] << 20) + r[IN_COLUMNS]
    packed_kernel = (r[KERNEL_ROWS] << 20) + r[KERNEL_COLUMNS]
    packed_stride = (r[STRIDE_ROWS] << 20) + r[STRIDE_COLUMNS]
    packed_dilation = (r[DILATION_ROWS] << 20) + r[DILATION_COLUMNS]
    for slot in range(COLUMN_BUFFERS):
        key = s.column_key[tle, slot]
        if key[0] == tag:
            same = key[1] == r[IN_ADDRESS] and key[2] == r[ELEMENT_BYTES]
            same = same and key[3] == r[OUT_ROWS] and key[4] == r[OUT_COLUMNS]
            same = same and key[5] == packed_in and key[6] == packed_kernel
            if same and key[7] == packed_stride and key[8] == packed_dilation:
                return slot, True
    slot = core % m.tlts % COLUMN_BUFFERS
    key = s.column_key[tle, slot]
    key[0], key[1], key[2] = tag, r[IN_ADDRESS], r[ELEMENT_BYTES]
    key[3], key[4] = r[OUT_ROWS], r[OUT_COLUMNS]
    key[5], key[6], key[7], key[8] = packed_in, packed_kernel, packed_stride, packed_dilation
    return slot, False


@device
def accumulate(
    s: State, m: Costs, core: int, initialise: int, first: int, filters: int,
    positions: int, begin: int, count: int,
) -> bool:  # fmt: skip
    """Adds products [filters, count] to MB2[first..][begin..begin+count], checking the width."""
    out = s.mac[core, OUT_ADDRESS]
    bias_base = s.mac[core, BIAS_ADDRESS]
    bound = np.int64(1) << (m.accumulator_bits - 1)
    memory = s.mb2[core]
    for f in range(filters):
        start = np.int64(0)
        if initialise == WITH_BIAS:
            start = np.int64(s.bias_word[core, bias_base + first + f])
        at = out + (first + f) * positions + begin
        from_ = f * count
        largest = np.int64(0)
        smallest = np.int64(0)
        if initialise == KEEP:
            for p in range(count):
                value = memory[at + p] + np.int64(s.products[from_ + p])
                memory[at + p] = value
                largest = max(largest, value)
                smallest = min(smallest, value)
        else:
            for p in range(count):
                value = start + np.int64(s.products[from_ + p])
                memory[at + p] = value
                largest = max(largest, value)
                smallest = min(smallest, value)
        if largest >= bound or smallest < -bound:
            worst = largest if largest >= bound else smallest
            trap(s, core, _OVERFLOW, worst, m.accumulator_bits, first + f, 0)
            return False
    return True


@device
def depthwise_row(s: State, core: int, channel: int, first: int, filters: int) -> None:
    """Products of one group with a single input channel, without im2col."""
    r = s.mac[core]
    in_columns, out_columns = r[IN_COLUMNS], r[OUT_COLUMNS]
    taps = r[KERNEL_ROWS] * r[KERNEL_COLUMNS]
    positions = r[OUT_ROWS] * out_columns
    wide = r[ELEMENT_BYTES] == 2
    base = r[IN_ADDRESS] // 2 if wide else r[IN_ADDRESS]
    base += channel * r[IN_ROWS] * in_columns
    for f in range(filters):
        target = s.products[f * positions : (f + 1) * positions]
        target[:] = 0.0
        for i in range(r[KERNEL_ROWS]):
            for j in range(r[KERNEL_COLUMNS]):
                weight = s.weights[(first + f) * taps + i * r[KERNEL_COLUMNS] + j]
                for row in range(r[OUT_ROWS]):
                    at = base + (row * r[STRIDE_ROWS] + i * r[DILATION_ROWS]) * in_columns
                    at += j * r[DILATION_COLUMNS]
                    line = target[row * out_columns : (row + 1) * out_columns]
                    if wide:
                        source = s.mb0_half[core]
                        for q in range(out_columns):
                            line[q] += weight * source[at + q * r[STRIDE_COLUMNS]]
                    else:
                        narrow = s.mb0[core]
                        for q in range(out_columns):
                            line[q] += weight * narrow[at + q * r[STRIDE_COLUMNS]]


@device
def nmp_conv2d(s: State, m: Costs, core: int, row: int) -> int:
    if not begin_operation(s, m, core, row) or not tile_ok(s, m, core):
        return STOP
    if not check_registers(s, core, GROUPS, GROUPS, 1, LARGEST_EXTENT):
        return STOP
    r = s.mac[core]
    groups, filters = r[GROUPS], r[OUT_CHANNELS]
    if filters % groups:
        return trap(s, core, _BAD, groups, filters, GROUPS, 0)
    taps = r[KERNEL_ROWS] * r[KERNEL_COLUMNS]
    depth = r[IN_CHANNELS] * taps
    group_elements = min(r[IN_CHANNELS] * r[IN_ROWS] * r[IN_COLUMNS], LARGEST_TILE)
    initialise = s.decoded[row, SUB]
    if initialise > WITH_BIAS:
        return trap(s, core, _ILLEGAL, np.int64(s.words[row]), 0, 0, 0)
    if not in_ok(s, m, core, MB0, groups * group_elements):
        return STOP
    if not filters_ok(s, m, core, filters, depth, initialise):
        return STOP
    positions = r[OUT_ROWS] * r[OUT_COLUMNS]
    load_weights(s, core, filters, depth)
    per_group = filters // groups
    tle = core // m.tlts
    for group in range(groups):
        first = group * per_group
        if r[IN_CHANNELS] == 1 and per_group <= 2:
            depthwise_row(s, core, group, first, per_group)
            if not accumulate(s, m, core, initialise, first, per_group, positions, 0, positions):
                return STOP
            continue
        block = min(positions, max(1, SCRATCH_ELEMENTS // depth))
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
                fill_columns(s, core, columns, group * r[IN_CHANNELS], begin, begin + count)
            np.dot(
                weights.reshape((per_group, depth)),
                columns[: depth * count].reshape((depth, count)),
                s.products[: per_group * count].reshape((per_group, count)),
            )
            if not accumulate(s, m, core, initialise, first, per_group, positions, begin, count):
                return STOP
    beats = r[IN_CHANNELS] * filters * beats_of(positions * taps, m, r[ELEMENT_BYTES])
    return end_operation(s, m, core, row, beats, depth * filters * positions)


@device
def nmp_percept(s: State, m: Costs, core: int, row: int) -> int:
    if not begin_operation(s, m, core, row):
        return STOP
    if not check_registers(s, core, ELEMENT_BYTES, ELEMENT_BYTES, 1, 2):
        return STOP
    r = s.mac[core]
    filters, depth = r[OUT_CHANNELS], r[IN_CHANNELS]
    if filters < 1 or filters > LARGEST_EXTENT or depth < 1 or depth > LARGEST_EXTENT:
        register = IN_CHANNELS if 1 <= filters <= LARGEST_EXTENT else OUT_CHANNELS
        return trap(s, core, _BAD, r[register], 0, register, 0)
    if not in_ok(s, m, core, MB0, depth) or not out_ok(s, m, core, filters):
        return STOP
    initialise = s.decoded[row, SUB]
    if initialise > WITH_BIAS:
        return trap(s, core, _ILLEGAL, np.int64(s.words[row]), 0, 0, 0)
    if not filters_ok(s, m, core, filters, depth, initialise):
        return STOP
    wide = r[ELEMENT_BYTES] == 2
    at_x = r[IN_ADDRESS] // 2 if wide else r[IN_ADDRESS]
    at_w = r[W_ADDRESS] // 2 if wide else r[W_ADDRESS]
    for f in range(filters):
        total = np.int64(0)
        base = at_w + f * r[W_PITCH]
        if wide:
            for k in range(depth):
                total += np.int64(s.mb0_half[core, at_x + k]) * s.mb1_half[core, base + k]
        else:
            for k in range(depth):
                total += np.int64(s.mb0[core, at_x + k]) * s.mb1[core, base + k]
        s.products[f] = np.float64(total)
    if not accumulate(s, m, core, initialise, 0, filters, 1, 0, 1):
        return STOP
    beats = filters * beats_of(depth, m, r[ELEMENT_BYTES])
    return end_operation(s, m, core, row, beats, depth * filters)
