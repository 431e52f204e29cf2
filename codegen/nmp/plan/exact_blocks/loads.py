"""What a TLE of a block loads, in numba: channels of IN tiles, and W tiles, biases and what the
pointwise convolution has of either as (transfers, bursts, bytes)."""

from __future__ import annotations

from functools import partial

from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

device = partial(compiled.device, references=False)


@device
def own_channels(spread, tile_n, extent):
    """Of a step of ``extent`` channels, those that the first TLE of a slice loads."""
    return min(ceil_div(tile_n, spread.filter_slices), extent)


@device
def weight_counts(block, machine, spread, tile_m, channels, position):
    """The W tiles of a step: `TleWalk.load_weights`."""
    filter_bytes = channels * block.taps * block.element_bytes
    sharing = spread.row_slices * spread.column_slices
    if sharing == 1:
        one = tile_m * filter_bytes
        parts = spread.filter_parts
        return parts, parts * ceil_div(one, machine.burst_bytes), parts * one
    run = ceil_div(tile_m, sharing)
    loads, bursts, filters = 0, 0, 0
    for part in range(spread.filter_parts):
        own = max(0, min(run, tile_m - (position + part) % sharing * run))
        if own:
            loads += 1
            bursts += ceil_div(own * filter_bytes, machine.burst_bytes)
            filters += own
    return loads, bursts, filters * filter_bytes


@device
def flat_counts(machine, elements, size, times):
    """1-D transfers."""
    if elements == 0:
        return 0, 0, 0
    return times, times * ceil_div(elements * size, machine.burst_bytes), times * elements * size


@device
def bias_counts(block, machine, spread, active, alone):
    """`TleWalk.biases`, or those of the head ``alone``."""
    planes = 1 + block.twin
    times = active * spread.filter_parts
    n, bursts, volume = flat_counts(machine, spread.filters * planes, BIAS_BYTES, times)
    if alone or not block.has_kernels:
        return n, bursts, volume
    taps = block.kernel_rows * block.kernel_columns
    kernels, kernel_bursts, kernel_bytes = flat_counts(
        machine, spread.filters * taps, block.element_bytes, times
    )
    return 2 * n + kernels, 2 * bursts + kernel_bursts, 2 * volume + kernel_bytes


@device
def point_counts(block, machine, spread, tile_m, active, longer, shorter):
    """(biases of the pointwise convolution, its weights for a tile of the head's filters)."""
    most = spread.point_filters
    n, bursts, volume = flat_counts(machine, most, BIAS_BYTES, longer * active)
    if shorter:
        more = flat_counts(machine, most - 1, BIAS_BYTES, shorter * active)
        n, bursts, volume = n + more[0], bursts + more[1], volume + more[2]
    crew = spread.filter_slices * spread.filter_parts
    channels = tile_m * (1 + block.twin) * crew
    weights = flat_counts(
        machine, most * channels, block.element_bytes, (longer + shorter) * active
    )
    return (n, bursts, volume), weights
