"""Time of a TLE of a block in numba: `BlockWalk.cost` from its places."""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.block_cost import HIDDEN_CHIP_SHARE, SHARED_STEP_CYCLES
from tvm_npu.codegen.nmp.plan.exact_blocks.loads import (
    bias_counts,
    own_channels,
    point_counts,
    weight_counts,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import engine
from tvm_npu.codegen.nmp.plan.exact_blocks.overlapped import overlapped
from tvm_npu.codegen.nmp.plan.exact_blocks.places import (
    BEHIND,
    BESIDE,
    CHANNEL,
    CHIP,
    END,
    FINISH,
    HAS_STEP,
    HIDDEN,
    NUMBER,
    P_IN,
    P_IN_AREA,
    P_IN_BOXES,
    P_IN_LINEAR,
    P_IN_WHOLE,
    P_OUT,
    P_OUT_COLUMNS,
    P_OUT_ROWS,
    STORE_BOXES,
    STORE_BYTES,
    STORE_LINEAR,
    STORE_MOVES,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.taken import taken_cycles, taken_steps
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)


@device
def tle_cycles(
    block, machine, spread, rivals, choice, tile_n, macs_first, position, longer, places, number,
    tiles,
):  # fmt: skip
    """Cycles of the first TLE of a slice, which is number ``position`` of those that share W tiles;
    ``longer`` filter parts have most filters of the pointwise convolution. ``places`` are filled
    (`places.fill_choice`), ``tiles`` is for numbers on the way."""
    shorter = spread.filter_parts - longer if spread.point_filters > 1 else 0
    turns, active = spread.filters // choice.tile_m, int(places[0, P_OUT])
    counts = (
        bias_counts(block, machine, spread, active, False),
        bias_counts(block, machine, spread, active, True),
        *point_counts(block, machine, spread, choice.tile_m, active, longer, shorter),
    )
    steps = ceil_div(block.channels, tile_n)
    taken = 0
    if choice.on_chip:
        taken = taken_steps(block, spread, tile_n)
    if choice.buffers == 1:
        return _in_a_row(
            block, machine, spread, rivals, choice, tile_n, steps, turns, position, counts, taken,
            places, number,
        )  # fmt: skip
    return overlapped(
        block, machine, spread, rivals, choice, tile_n, steps, turns, macs_first, position, counts,
        taken, places, number, tiles,
    )  # fmt: skip


@device
def _in_a_row(
    block, machine, spread, rivals, choice, tile_n, steps, turns, position, counts, taken, places,
    number,
):  # fmt: skip
    """With one buffer: all transfers, stream by stream, and all that the MAC unit does."""
    size, tile_m = block.element_bytes, choice.tile_m
    full, rest = block.channels // tile_n, block.channels % tile_n
    own = own_channels(spread, tile_n, tile_n)
    last = own_channels(spread, tile_n, rest) if rest else 0
    channels = full * own + last
    loads = full + (last > 0)
    plane = block.in_rows * block.in_columns * size
    merged = full * ceil_div(own * plane, machine.burst_bytes)
    if last:
        merged += ceil_div(last * plane, machine.burst_bytes)
    in_n, boxes, linear, area, whole, tiles = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    macs, chip = 0.0, 0.0
    moves, out_boxes, out_linear, out_bytes = 0.0, 0.0, 0.0, 0.0
    for at in range(number):
        p = places[at]
        times = p[NUMBER]
        in_n += times * p[P_IN]
        boxes += times * p[P_IN_BOXES]
        linear += times * p[P_IN_LINEAR]
        area += times * p[P_IN_AREA]
        whole += times * p[P_IN_WHOLE]
        tiles += times
        head = block.channels * p[CHANNEL] + p[HAS_STEP] * steps * (p[BESIDE] + machine.step)
        macs += times * (turns * (head + p[FINISH] + p[BEHIND] - p[HIDDEN]) + p[END])
        if choice.on_chip:
            rows, columns = int(p[P_OUT_ROWS]), int(p[P_OUT_COLUMNS])
            macs += times * taken_cycles(block, machine, spread, choice, taken, rows, columns)
        moves += times * p[STORE_MOVES]
        out_boxes += times * p[STORE_BOXES]
        out_linear += times * p[STORE_LINEAR]
        out_bytes += times * p[STORE_BYTES]
        chip += times * turns * p[CHIP]
    walks = 1 if choice.keeps_in else turns
    inputs = engine(
        machine, rivals, False, walks * loads * in_n, walks * channels * boxes,
        walks * (channels * linear + whole * merged), walks * channels * size * area,
    )  # fmt: skip
    if spread.filter_slices > 1:
        inputs += walks * loads * in_n * machine.hop
    once = turns == 1
    if once:
        w_n, w_bursts, w_bytes = weight_counts(
            block, machine, spread, tile_m, block.channels, position
        )
        w_n, w_bursts, w_bytes = float(w_n), float(w_bursts), float(w_bytes)
    else:
        w_n, w_bursts, w_bytes = 0.0, 0.0, 0.0
        for is_rest in range(1 + (rest > 0)):
            extent, times = (rest, 1) if is_rest else (tile_n, full)
            n, bursts, volume = weight_counts(block, machine, spread, tile_m, extent, position)
            times *= tiles * turns
            w_n += times * n
            w_bursts += times * bursts
            w_bytes += times * volume
    forwards = w_n if spread.row_slices * spread.column_slices > 1 else 0.0
    biases, _, point_biases, point_weights = counts
    times = 1.0 if once else tiles * turns
    w_n += biases[0] + point_biases[0] + times * point_weights[0]
    w_bursts += biases[1] + point_biases[1] + times * point_weights[1]
    w_bytes += biases[2] + point_biases[2] + times * point_weights[2]
    weights = engine(machine, rivals, False, w_n, 0, w_bursts, w_bytes) + forwards * machine.hop
    stores = engine(machine, rivals, False, moves, out_boxes, out_linear, out_bytes)
    stores *= 1 + (block.residual and not choice.on_chip)
    if spread.filter_slices > 1:
        macs += SHARED_STEP_CYCLES * turns * tiles * steps
    chip *= 1.0 - HIDDEN_CHIP_SHARE * (1.0 - 1.0 / places[0, P_OUT])
    return inputs + weights + stores + chip + macs
