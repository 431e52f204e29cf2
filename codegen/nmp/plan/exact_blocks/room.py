"""What fits into the memories of a TLT, in numba: `block_check.block_needs`."""

from __future__ import annotations

from functools import partial

from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

device = partial(compiled.device, references=False)


@device
def fits(block, machine, spread, tile_r, tile_c, choice, tile_n):
    """Whether a block does, with IN tiles of ``tile_n`` channels."""
    size, made = block.element_bytes, choice.tile_m * (1 + block.twin)
    turns, steps = spread.filters // choice.tile_m, ceil_div(block.channels, tile_n)
    places = ceil_div(spread.rows, tile_r) * ceil_div(spread.columns, tile_c)
    box_rows, box_columns = tile_r, tile_c
    if block.has_window:
        box_rows = (tile_r - 1) * block.step_rows + block.kernel_rows
        box_columns = (tile_c - 1) * block.step_columns + block.kernel_columns
    rows, columns = min(box_rows, block.rows), min(box_columns, block.columns)
    in_rows = (rows - 1) * block.stride_rows + block.span_rows
    in_columns = (columns - 1) * block.stride_columns + block.span_columns
    in_bytes = tile_n * in_rows * in_columns * size
    guard = block.twin * (block.padding_rows * in_columns + block.padding_columns)
    if choice.keeps_rows:
        guard += (rows - 1) * block.stride_rows * in_columns
    guard *= size
    keeps_weights = turns == 1
    loads = places * steps * (1 if choice.keeps_in else turns)
    all_in = in_bytes
    if choice.buffers == 2 and loads > 1:
        all_in += in_bytes + guard
    w_bytes = (block.channels if keeps_weights else tile_n) * choice.tile_m * block.taps * size
    if choice.buffers == 2 and not keeps_weights:
        w_bytes *= 2
    area, most = tile_r * tile_c * size, spread.point_filters
    crew = spread.filter_slices * spread.filter_parts
    residual = most * area if block.residual else 0
    behind = choice.slots * crew * choice.passed * area
    mb2, kernels, layers = (made + most) * area, 0, 1 + block.twin
    if block.has_window:
        behind = max(behind, made * box_rows * box_columns * size)
        mb2 += made * rows * columns * size
        if block.has_kernels:
            kernels = spread.filters * block.kernel_rows * block.kernel_columns * size
            layers += 1
    beside = all_in if choice.buffers == 2 or choice.keeps_in else 0
    if beside and guard > behind:
        return False
    if choice.on_chip:
        mb0 = max(all_in + guard, beside + behind) + residual
        mb2 += residual
    elif choice.buffers == 2:
        mb0 = max(all_in + guard, beside + behind + residual)
    else:
        mb0 = max(all_in + guard, beside + max(behind, residual))
    if choice.keeps_rows:
        mb0 = max(mb0, beside + (made + 1) * box_rows * box_columns * size)
    mb1 = w_bytes + kernels + most * crew * made * size
    biases = (layers * spread.filters + most) * BIAS_BYTES
    return (
        mb0 <= machine.mb0 and mb1 <= machine.mb1 and mb2 <= machine.mb2
        and biases <= machine.bias
    )  # fmt: skip


@device
def most_channels(block, machine, spread, tile_r, tile_c, choice):
    """The most channels of a tile, less than all, for which there is room; 0 for none. (All of them
    in one tile may fit where more do not: they come once.)"""
    low, high = 0, min(block.channels - 1, machine.most_n)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(block, machine, spread, tile_r, tile_c, choice, middle):
            low = middle
        else:
            high = middle - 1
    return low
