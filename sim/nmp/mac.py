"""The MAC unit: nmp_conv2d, nmp_percept, nmp_pool, nmp_veop, nmp_activation.

Values are computed when an operation issues; its time passes until `State.mac_done`. Products of
int16 are exact in float64 as long as fewer than 2**23 of them are summed, so a tile's convolution
runs as a float64 matrix product over an im2col buffer. Cores of a TLE that hold the same multicast
tile share that buffer (`State.mb0_tag` says when the content is the same).
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.isa.xnmp import Initialise, MacRegister, PoolKind, VectorOp
from tvm_npu.sim.nmp.compiled import device
from tvm_npu.sim.nmp.core import GO, IMM, RD, STOP, rs1, trap
from tvm_npu.sim.nmp.hazards import free_ranges, use_range
from tvm_npu.sim.nmp.semaphores import SEM, SUB, finish_mac
from tvm_npu.sim.nmp.state import SCRATCH_ELEMENTS, Costs, State
from tvm_npu.sim.nmp.traps import TrapCode

_TOO_LARGE = int(TrapCode.TILE_TOO_LARGE)
_OVERFLOW = int(TrapCode.ACCUMULATOR_OVERFLOW)
_BAD = int(TrapCode.BAD_CONFIGURATION)
_SEMAPHORE = int(TrapCode.SEMAPHORE)
_ILLEGAL = int(TrapCode.ILLEGAL_INSTRUCTION)

IN_ADDRESS = int(MacRegister.IN_ADDRESS)
IN_CHANNELS = int(MacRegister.IN_CHANNELS)
IN_ROWS = int(MacRegister.IN_ROWS)
IN_COLUMNS = int(MacRegister.IN_COLUMNS)
W_ADDRESS = int(MacRegister.W_ADDRESS)
W_PITCH = int(MacRegister.W_PITCH)
OUT_ADDRESS = int(MacRegister.OUT_ADDRESS)
OUT_CHANNELS = int(MacRegister.OUT_CHANNELS)
OUT_ROWS = int(MacRegister.OUT_ROWS)
OUT_COLUMNS = int(MacRegister.OUT_COLUMNS)
KERNEL_ROWS = int(MacRegister.KERNEL_ROWS)
KERNEL_COLUMNS = int(MacRegister.KERNEL_COLUMNS)
STRIDE_ROWS = int(MacRegister.STRIDE_ROWS)
STRIDE_COLUMNS = int(MacRegister.STRIDE_COLUMNS)
DILATION_ROWS = int(MacRegister.DILATION_ROWS)
DILATION_COLUMNS = int(MacRegister.DILATION_COLUMNS)
GROUPS = int(MacRegister.GROUPS)
BIAS_ADDRESS = int(MacRegister.BIAS_ADDRESS)
SHIFT = int(MacRegister.SHIFT)
LOW = int(MacRegister.LOW)
HIGH = int(MacRegister.HIGH)
SHIFT_A = int(MacRegister.SHIFT_A)
SHIFT_B = int(MacRegister.SHIFT_B)
ORIGIN_ROW = int(MacRegister.ORIGIN_ROW)
ORIGIN_COLUMN = int(MacRegister.ORIGIN_COLUMN)
COUNT_ROW_BEGIN = int(MacRegister.COUNT_ROW_BEGIN)
COUNT_ROW_END = int(MacRegister.COUNT_ROW_END)
COUNT_COLUMN_BEGIN = int(MacRegister.COUNT_COLUMN_BEGIN)
COUNT_COLUMN_END = int(MacRegister.COUNT_COLUMN_END)
ELEMENT_BYTES = int(MacRegister.ELEMENT_BYTES)

KEEP, WITH_BIAS = int(Initialise.KEEP), int(Initialise.BIAS)
AVERAGE = int(PoolKind.AVERAGE)
COPY, ADD, MULTIPLY = int(VectorOp.COPY), int(VectorOp.ADD), int(VectorOp.MULTIPLY)

MB0, MB1, MB2, BIAS = 0, 1, 2, 3
LARGEST_EXTENT = 1 << 20
LARGEST_TILE = 1 << 32
LARGEST_SHIFT = 47


@device
def nmp_mcfg(s: State, m: Costs, core: int, row: int) -> int:
    s.mac[core, s.decoded[row, RD]] = rs1(s, core, row)
    return GO


@device
def nmp_mcfgi(s: State, m: Costs, core: int, row: int) -> int:
    s.mac[core, s.decoded[row, RD]] = s.decoded[row, IMM]
    return GO


@device
def check_registers(s: State, core: int, first: int, last: int, low: int, high: int) -> bool:
    for register in range(first, last + 1):
        value = s.mac[core, register]
        if value < low or value > high:
            trap(s, core, _BAD, value, 0, register, 0)
            return False
    return True


@device
def fits(s: State, m: Costs, core: int, memory: int, begin: int, end: int, size: int) -> bool:
    """Bytes begin..end lie in ``memory``, of ``size`` bytes, and no transfer is using them."""
    if begin < 0 or end > size:
        trap(s, core, _TOO_LARGE, begin, end, size, memory)
        return False
    return use_range(s, m, core, memory, begin, end)


@device
def begin_operation(s: State, m: Costs, core: int, row: int) -> bool:
    """The unit works in order: a new operation waits for the one before."""
    if s.decoded[row, SEM] >= m.semaphores:
        trap(s, core, _SEMAPHORE, 0, 1, s.decoded[row, SEM], 0)
        return False
    if s.mac_sem[core] >= 0:
        s.time[core] = max(s.time[core], s.mac_done[core])
        finish_mac(s, core)
    free_ranges(s, core)
    return True


@device
def end_operation(s: State, m: Costs, core: int, row: int, beats: float, macs: int) -> int:
    """Books ``beats`` uses of the datapath; completion signals the instruction's semaphore."""
    cycles = beats / m.efficiency + m.mac_setup
    s.mac_done[core] = s.time[core] + cycles
    s.mac_sem[core] = s.decoded[row, SEM]
    layer = s.layer_of[row]
    s.layer_macs[layer, core] += macs
    s.layer_mac_cycles[layer, core] += cycles
    return GO


@device
def beats_of(elements: int, m: Costs, element_bytes: int) -> int:
    lanes = m.lanes_int16 * 2 // element_bytes
    return (elements + lanes - 1) // lanes


@device
def tile_ok(s: State, m: Costs, core: int) -> bool:
    """IN and OUT tiles of a window operation have sane extents and lie inside MB0 and MB2."""
    r = s.mac[core]
    if not check_registers(s, core, IN_CHANNELS, IN_COLUMNS, 1, LARGEST_EXTENT):
        return False
    if not check_registers(s, core, OUT_CHANNELS, DILATION_COLUMNS, 1, LARGEST_EXTENT):
        return False
    if not check_registers(s, core, ELEMENT_BYTES, ELEMENT_BYTES, 1, 2):
        return False
    rows = (r[OUT_ROWS] - 1) * r[STRIDE_ROWS] + (r[KERNEL_ROWS] - 1) * r[DILATION_ROWS] + 1
    if rows > r[IN_ROWS]:
        trap(s, core, _BAD, r[IN_ROWS], rows, IN_ROWS, 0)
        return False
    columns = (r[OUT_COLUMNS] - 1) * r[STRIDE_COLUMNS] + 1
    columns += (r[KERNEL_COLUMNS] - 1) * r[DILATION_COLUMNS]
    if columns > r[IN_COLUMNS]:
        trap(s, core, _BAD, r[IN_COLUMNS], columns, IN_COLUMNS, 0)
        return False
    return out_ok(s, m, core, r[OUT_CHANNELS] * r[OUT_ROWS] * r[OUT_COLUMNS])


@device
def out_ok(s: State, m: Costs, core: int, elements: int) -> bool:
    size = s.mac[core, ELEMENT_BYTES]
    begin = s.mac[core, OUT_ADDRESS] * size
    return fits(s, m, core, MB2, begin, begin + elements * size, m.mb2_bytes)


@device
def in_ok(s: State, m: Costs, core: int, memory: int, elements: int) -> bool:
    """Operand of ``elements`` elements at IN_ADDRESS (MB0) or W_ADDRESS (MB1)."""
    size = s.mac[core, ELEMENT_BYTES]
    begin = s.mac[core, IN_ADDRESS if memory == MB0 else W_ADDRESS]
    if begin % size:
        trap(s, core, _BAD, begin, 0, IN_ADDRESS if memory == MB0 else W_ADDRESS, 0)
        return False
    end = begin + elements * size
    return fits(s, m, core, memory, begin, end, m.mb0_bytes if memory == MB0 else m.mb1_bytes)


@device
def filters_ok(s: State, m: Costs, core: int, filters: int, depth: int, initialise: int) -> bool:
    """Filters of ``depth`` elements in MB1, not one in another, and their biases if used."""
    pitch = s.mac[core, W_PITCH]
    if pitch < 0 or (filters > 1 and pitch < depth):
        trap(s, core, _BAD, pitch, 0, W_PITCH, 0)
        return False
    if not in_ok(s, m, core, MB1, (filters - 1) * pitch + depth):
        return False
    begin = s.mac[core, BIAS_ADDRESS] * 4
    return initialise != WITH_BIAS or fits(
        s, m, core, BIAS, begin, begin + filters * 4, m.bias_bytes
    )


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
def fill_columns(s: State, core: int, tle: int, first_channel: int, begin: int, end: int) -> None:
    """im2col of output positions begin..end of one group: float64 [depth, end - begin]."""
    r = s.mac[core]
    channels, in_rows, in_columns = r[IN_CHANNELS], r[IN_ROWS], r[IN_COLUMNS]
    kernel_rows, kernel_columns = r[KERNEL_ROWS], r[KERNEL_COLUMNS]
    stride_rows, stride_columns = r[STRIDE_ROWS], r[STRIDE_COLUMNS]
    dilation_rows, dilation_columns = r[DILATION_ROWS], r[DILATION_COLUMNS]
    out_columns = r[OUT_COLUMNS]
    wide = r[ELEMENT_BYTES] == 2
    address = r[IN_ADDRESS] // 2 if wide else r[IN_ADDRESS]
    target = s.columns[tle]
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
def share_columns(s: State, core: int, tle: int) -> bool:
    """Whether the TLE's im2col buffer already holds this core's tile; claims it if not."""
    r, key = s.mac[core], s.column_key[tle]
    used, known = s.mac_ranges[core], s.mb0_span[core]
    if used[2 * MB0] < known[0] or used[2 * MB0 + 1] > known[1]:
        key[0] = 0
        return False
    same = key[0] == s.mb0_tag[core] and key[1] == r[IN_ADDRESS] and key[2] == r[ELEMENT_BYTES]
    same = same and key[3] == r[OUT_ROWS] and key[4] == r[OUT_COLUMNS]
    packed_in = (r[IN_CHANNELS] << 40) + (r[IN_ROWS] << 20) + r[IN_COLUMNS]
    packed_kernel = (r[KERNEL_ROWS] << 20) + r[KERNEL_COLUMNS]
    packed_stride = (r[STRIDE_ROWS] << 20) + r[STRIDE_COLUMNS]
    packed_dilation = (r[DILATION_ROWS] << 20) + r[DILATION_COLUMNS]
    same = same and key[5] == packed_in and key[6] == packed_kernel
    same = same and key[7] == packed_stride and key[8] == packed_dilation
    if not same:
        key[0], key[1], key[2] = s.mb0_tag[core], r[IN_ADDRESS], r[ELEMENT_BYTES]
        key[3], key[4] = r[OUT_ROWS], r[OUT_COLUMNS]
        key[5], key[6], key[7], key[8] = packed_in, packed_kernel, packed_stride, packed_dilation
    return same


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
        reuse = groups == 1 and block == positions and share_columns(s, core, tle)
        if groups > 1 or block < positions:
            s.column_key[tle, 0] = 0
        weights = s.weights[first * depth : (first + per_group) * depth]
        for begin in range(0, positions, block):
            count = min(block, positions - begin)
            if not reuse:
                fill_columns(s, core, tle, group * r[IN_CHANNELS], begin, begin + count)
            np.dot(
                weights.reshape((per_group, depth)),
                s.columns[tle, : depth * count].reshape((depth, count)),
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
