"""tconv: values by im2col and a matrix product in floating point that is exact.

Products of int8 are exact in float32 as long as at most 2**10 of them are summed (2**10 * 2**14 =
2**24), those of int16 in float64 up to 2**22; longer sums go in parts that are added as integers.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arrays import copy_run
from tvm_npu.sim.compiled.matmul import matmul
from tvm_npu.sim.compiled.spans import product, reach, volume
from tvm_npu.sim.tiles.accumulators import add_sums, copy_rows, is_plain
from tvm_npu.sim.tiles.isa import Accumulate
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.operands import (
    ENGINE_READS,
    FIRST,
    GO,
    LARGEST_PRODUCT,
    NOWHERE,
    RESULT,
    ROW_WORK,
    SECOND,
    STOP,
    fits,
    in_bounds,
    load_first,
    load_run,
    locate,
    mark_written,
    memory_of,
    reachable,
    spend,
    trap,
    use,
    was_written,
    window_in_bounds,
)
from tvm_npu.sim.tiles.state import SCRATCH_ELEMENTS, Costs, State
from tvm_npu.sim.tiles.timing import book_conv, most_taps_at_once
from tvm_npu.sim.tiles.traps import TileTrapCode as Code

SUB = 6
GROUP_WORK = 64
"""Of each further group of a convolution: to begin with one takes as long as so many products."""
FEW_FILTERS = 4
"""Groups of one channel with at most so many filters are multiplied without im2col."""


@device
def inside(count: int, tap: int, stride: int, pad: int, size: int) -> tuple[int, int]:
    """Which of ``count`` windows have their element at distance ``tap`` in 0..size: a range."""
    first = max(0, -((tap - pad) // stride)) if tap < pad else 0
    last = (size - 1 + pad - tap) // stride + 1 if size + pad > tap else 0
    return min(first, count), max(min(last, count), min(first, count))


@device
def fill_columns(s: State, channels: int, first_channel: int, begin: int, end: int) -> None:
    """im2col of output positions begin..end of one group: [channels * taps][end - begin]."""
    r, tile, target = s.registers, s.tile, s.columns
    in_rows, in_columns = r[Reg.IN_ROWS], r[Reg.IN_COLUMNS]
    stride_rows, stride_columns = r[Reg.STRIDE_ROWS], r[Reg.STRIDE_COLUMNS]
    out_columns = r[Reg.OUT_COLUMNS]
    first_row, last_row = begin // out_columns, (end - 1) // out_columns
    at = 0
    for c in range(channels):
        plane = (first_channel + c) * in_rows * in_columns
        for i in range(r[Reg.KERNEL_ROWS]):
            for j in range(r[Reg.KERNEL_COLUMNS]):
                tap = j * r[Reg.DILATION_COLUMNS]
                low, high = inside(out_columns, tap, stride_columns, r[Reg.PAD_LEFT], in_columns)
                for row in range(first_row, last_row + 1):
                    q0 = begin - row * out_columns if row == first_row else 0
                    q1 = end - row * out_columns if row == last_row else out_columns
                    y = row * stride_rows + i * r[Reg.DILATION_ROWS] - r[Reg.PAD_TOP]
                    a, b = max(low, q0), min(high, q1)
                    if y < 0 or y >= in_rows or a >= b:
                        a, b = q1, q1
                    for q in range(a - q0):
                        target[at + q] = 0
                    for q in range(b - q0, q1 - q0):
                        target[at + q] = 0
                    base = plane + y * in_columns + a * stride_columns + tap - r[Reg.PAD_LEFT]
                    copy_run(target, at + a - q0, tile, base, b - a, stride_columns)
                    at += q1 - q0


@device
def multiply_plane(s: State, channel: int, filters: int) -> None:
    """Products [filters][positions] of a group of one channel; its weights lie in `weights`."""
    r, tile = s.registers, s.tile
    in_rows, in_columns = r[Reg.IN_ROWS], r[Reg.IN_COLUMNS]
    out_rows, out_columns = r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]
    stride = r[Reg.STRIDE_COLUMNS]
    positions = out_rows * out_columns
    taps = r[Reg.KERNEL_ROWS] * r[Reg.KERNEL_COLUMNS]
    s.products[: filters * positions] = 0
    for i in range(r[Reg.KERNEL_ROWS]):
        top, bottom = inside(
            out_rows, i * r[Reg.DILATION_ROWS], r[Reg.STRIDE_ROWS], r[Reg.PAD_TOP], in_rows
        )
        for j in range(r[Reg.KERNEL_COLUMNS]):
            tap = j * r[Reg.DILATION_COLUMNS]
            low, high = inside(out_columns, tap, stride, r[Reg.PAD_LEFT], in_columns)
            for row in range(top, bottom):
                y = row * r[Reg.STRIDE_ROWS] + i * r[Reg.DILATION_ROWS] - r[Reg.PAD_TOP]
                base = (channel * in_rows + y) * in_columns + low * stride + tap - r[Reg.PAD_LEFT]
                for f in range(filters):
                    weight = s.weights[f * taps + i * r[Reg.KERNEL_COLUMNS] + j]
                    at = f * positions + row * out_columns
                    line = s.products[at + low : at + high]
                    if stride == 1:
                        source = tile[base : base + high - low]
                        for q in range(high - low):
                            line[q] += weight * source[q]
                    else:
                        for q in range(high - low):
                            line[q] += weight * tile[base + q * stride]


@device
def columns_are_there(s: State, m: Costs, address: int, size: int) -> bool:
    """Whether `columns` holds the whole im2col of the tile at ``address``; claims it if not. Never
    of one outside of the chip, where rows may lie apart and others write."""
    key, r = s.columns_key, s.registers
    same = key[0] == address and key[1] == address + size * m.element_bytes
    same = same and address >= m.chip_begin
    for register in range(Reg.IN_CHANNELS, Reg.GROUPS):
        if register != Reg.OUT_CHANNELS and key[2 + register - Reg.IN_CHANNELS] != r[register]:
            same = False
            key[2 + register - Reg.IN_CHANNELS] = r[register]
    key[0], key[1] = address, address + size * m.element_bytes
    return same


@device
def load_weights(
    s: State, m: Costs, address: int, pitch: int, first: int, filters: int, begin: int, end: int
) -> bool:
    """Elements begin..end of the filters from ``first`` on: [filters][end - begin]."""
    memory, width = memory_of(s, SECOND), m.element_bytes
    count = end - begin
    if pitch == count * width:
        from_ = address + first * pitch
        return load_run(s, m, memory, from_, filters * count, s.weights, 0)
    for f in range(filters):
        from_ = address + (first + f) * pitch + begin * width
        if not load_run(s, m, memory, from_, count, s.weights, f * count):
            return False
    return True


@device
def locate_filters(s: State, m: Costs, filters: int, depth: int) -> int:
    """Address of the filters, ``depth`` elements each; NOWHERE when they trap."""
    memory = reachable(s, m, SECOND)
    if memory == NOWHERE:
        return NOWHERE
    packed, pitch = product(depth, m.element_bytes), s.registers[Reg.W_FILTER_BYTES]
    if pitch != 0 and pitch < packed:
        trap(s, Code.BAD_REGISTER, pitch, packed, LARGEST_PRODUCT, 0, Reg.W_FILTER_BYTES)
        return NOWHERE
    pitch = packed if pitch == 0 else pitch
    size = reach(packed, filters, pitch)
    if not fits(s, memory, s.registers[Reg.W_OFFSET], size, Reg.W_OFFSET):
        return NOWHERE
    if not spend(s, size + (ROW_WORK * filters if pitch != packed else 0)):
        return NOWHERE
    begin = s.places[memory, 0] + s.registers[Reg.W_OFFSET]
    for f in range(filters):
        if pitch != packed or f == 0:
            end = begin + (packed if pitch != packed else size)
            if not was_written(s, m, memory, begin + f * pitch, end + f * pitch):
                return NOWHERE
    use(s, ENGINE_READS, begin, begin + size)
    return begin


@device
def tconv(s: State, m: Costs, row: int) -> int:
    r = s.registers
    if not window_in_bounds(s, Reg.DILATION_COLUMNS):
        return STOP
    if not in_bounds(s, Reg.GROUPS, Reg.GROUPS, 1, r[Reg.OUT_CHANNELS]):
        return STOP
    groups, filters = r[Reg.GROUPS], r[Reg.OUT_CHANNELS]
    if filters % groups:
        return trap(s, Code.BAD_REGISTER, filters, groups, groups, 0, Reg.OUT_CHANNELS)
    per_group, channels = filters // groups, r[Reg.IN_CHANNELS]
    most_taps = most_taps_at_once(m.taps_at_once, m.over_channels, channels)
    if not in_bounds(s, Reg.TAPS_AT_ONCE, Reg.TAPS_AT_ONCE, 0, most_taps):
        return STOP
    all_channels = product(groups, channels)
    depth = volume(channels, r[Reg.KERNEL_ROWS], r[Reg.KERNEL_COLUMNS])
    keep = s.decoded[row, SUB] == Accumulate.KEEP
    out_rows, out_columns = r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]
    in_at = locate(
        s, m, FIRST, all_channels, r[Reg.IN_ROWS], r[Reg.IN_COLUMNS], m.element_bytes, True, False
    )
    if in_at == NOWHERE:
        return STOP
    w_at = locate_filters(s, m, filters, depth)
    if w_at == NOWHERE:
        return STOP
    width = m.accumulator_bytes
    out_at = locate(s, m, RESULT, filters, out_rows, out_columns, width, keep, True)
    if out_at == NOWHERE:
        return STOP
    products = volume(depth, filters, product(out_rows, out_columns))
    if not spend(s, products + GROUP_WORK * (groups - 1)):
        return STOP
    positions = out_rows * out_columns
    # All filters are read before a sum is written.
    pitch = max(r[Reg.W_FILTER_BYTES], depth * m.element_bytes)
    apart = out_at + filters * positions * width <= w_at or w_at + filters * pitch <= out_at
    plain = is_plain(s, m, out_at, out_rows, out_columns, width) and apart
    sums_at = out_at if plain else m.sums_begin
    if not load_first(s, m, in_at, all_channels, r[Reg.IN_ROWS], r[Reg.IN_COLUMNS]):
        return STOP
    if keep and not plain:
        copy_rows(s, m, out_at, sums_at, filters, out_rows, out_columns, width, False)
    if not convolve(s, m, keep, in_at, w_at, sums_at, per_group, depth):
        return STOP
    if plain:
        mark_written(s, m, out_at, out_at + filters * positions * width, 1)
    else:
        copy_rows(s, m, out_at, sums_at, filters, out_rows, out_columns, width, True)
    s.layer_macs[s.layer_of[row]] += depth * filters * positions
    book_conv(s, m, row)
    return GO


@device
def convolve(
    s: State, m: Costs, keep: bool, in_at: int, w_at: int, sums_at: int, per_group: int, depth: int
) -> bool:
    """The sums of all groups into packed accumulators at ``sums_at``; False when one traps."""
    r = s.registers
    groups, channels = r[Reg.GROUPS], r[Reg.IN_CHANNELS]
    positions = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    pitch = r[Reg.W_FILTER_BYTES]
    if pitch == 0:
        pitch = depth * m.element_bytes
    exact = m.exact_products
    tile_size = groups * channels * r[Reg.IN_ROWS] * r[Reg.IN_COLUMNS]
    is_tile = r[Reg.KERNEL_ROWS] == 1 and r[Reg.KERNEL_COLUMNS] == 1
    is_tile = is_tile and r[Reg.STRIDE_ROWS] == 1 and r[Reg.STRIDE_COLUMNS] == 1
    is_tile = is_tile and r[Reg.PAD_TOP] == 0 and r[Reg.PAD_LEFT] == 0
    is_tile = (
        is_tile and r[Reg.IN_ROWS] == r[Reg.OUT_ROWS] and r[Reg.IN_COLUMNS] == r[Reg.OUT_COLUMNS]
    )
    block = positions
    if not is_tile:
        block = min(positions, max(1, SCRATCH_ELEMENTS // max(depth, per_group)))
    for group in range(groups):
        first = group * per_group
        if channels == 1 and per_group <= FEW_FILTERS and depth <= exact:
            if not load_weights(s, m, w_at, pitch, first, per_group, 0, depth):
                return False
            multiply_plane(s, group, per_group)
            if not add_sums(
                s, m, keep, sums_at, s.products, first, per_group, positions, 0, positions
            ):
                return False
            continue
        if depth <= exact and not load_weights(s, m, w_at, pitch, first, per_group, 0, depth):
            return False
        for begin in range(0, positions, block):
            count = min(block, positions - begin)
            if is_tile:
                size = channels * positions
                columns = s.tile[group * size : (group + 1) * size]
            else:
                whole = groups == 1 and block == positions
                if not (whole and columns_are_there(s, m, in_at, tile_size)):
                    if not whole:
                        s.columns_key[0], s.columns_key[1] = NOWHERE, NOWHERE
                    fill_columns(s, channels, group * channels, begin, begin + count)
                columns = s.columns[: depth * count]
            products = s.products[: per_group * count]
            if depth <= exact:
                matmul(s.weights, columns, products, per_group, depth, count)
                if not add_sums(
                    s, m, keep, sums_at, products, first, per_group, positions, begin, count
                ):
                    return False
                continue
            sums = s.sums[: per_group * count]
            sums[:] = 0
            for low in range(0, depth, exact):
                high = min(low + exact, depth)
                if not load_weights(s, m, w_at, pitch, first, per_group, low, high):
                    return False
                part = columns[low * count : high * count]
                matmul(s.weights, part, products, per_group, high - low, count)
                for k in range(per_group * count):
                    sums[k] += np.int64(products[k])
            if not add_sums(s, m, keep, sums_at, sums, first, per_group, positions, begin, count):
                return False
    return True
