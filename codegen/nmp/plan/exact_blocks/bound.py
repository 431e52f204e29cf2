"""Lower bounds of the time of a TLE of a block, in numba: all transfers and all that MAC units do
with one buffer, the longer of both with two, and what follows the head's products in either."""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.block_cost import (
    HIDDEN_CHIP_SHARE,
    HIDDEN_PASS_CYCLES,
    SHARED_STEP_CYCLES,
    TURN_CYCLES,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.loads import weight_counts
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import engine
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
    P_OUT_COLUMNS,
    P_OUT_ROWS,
    STORE,
    STORE_BOXES,
    STORE_BYTES,
    STORE_LINEAR,
    STORE_MOVES,
    rounds_cycles,
)
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)

S_TILES, S_IN, S_BOXES, S_LINEAR, S_WHOLE, S_AREA = range(6)
S_CHANNEL, S_BESIDE, S_STEPS, S_FINISH, S_BEHIND, S_END, S_CHIP = range(6, 13)
S_STORE, S_OUT, S_OUT_BOXES, S_OUT_LINEAR, S_OUT_BYTES = range(13, 18)
SUM_WIDTH = 18


@device
def least_rounds(block, machine, spread, area, made, buffers):
    """No rounds of any number and slots take less."""
    one = rounds_cycles(block, machine, spread, area, made, buffers, 1, made)
    if machine.ports == 1 or made < 2 or area == 0:
        return one
    moved = made * area * block.element_bytes * machine.ring_byte * machine.tlts
    crew = spread.filter_slices * spread.filter_parts
    products = crew * made * spread.point_filters * ceil_div(area, machine.rate) * machine.beat
    if spread.filter_slices > 1:
        moved *= machine.tles
    passing = moved + 2 * machine.step
    products += 2 * (machine.operation + TURN_CYCLES)
    return min(one, max(passing, products))


@device
def fill_sums(block, machine, spread, choice, places, number, is_least, sums):
    """Over the places, for a tile of the head's filters; ``is_least``: with the least rounds, not
    the choice's."""
    made = choice.tile_m * (1 + block.twin)
    for column in range(SUM_WIDTH):
        sums[column] = 0.0
    for at in range(number):
        p = places[at]
        times = p[NUMBER]
        behind = p[BEHIND] - p[HIDDEN]
        if is_least:
            area = int(p[P_OUT_ROWS] * p[P_OUT_COLUMNS])
            behind -= rounds_cycles(
                block, machine, spread, area, made, choice.buffers, choice.slots, choice.passed
            )
            behind += least_rounds(block, machine, spread, area, made, choice.buffers)
            behind += p[HIDDEN] - HIDDEN_PASS_CYCLES  # which is the most for other rounds
        sums[S_TILES] += times
        sums[S_IN] += times * p[P_IN]
        sums[S_BOXES] += times * p[P_IN_BOXES]
        sums[S_LINEAR] += times * p[P_IN_LINEAR]
        sums[S_WHOLE] += times * p[P_IN_WHOLE]
        sums[S_AREA] += times * p[P_IN_AREA]
        sums[S_CHANNEL] += times * p[CHANNEL]
        sums[S_BESIDE] += times * p[HAS_STEP] * p[BESIDE]
        sums[S_STEPS] += times * p[HAS_STEP]
        sums[S_FINISH] += times * p[FINISH]
        sums[S_BEHIND] += times * behind
        sums[S_END] += times * p[END]
        sums[S_STORE] += times * p[STORE]
        sums[S_OUT] += times * p[STORE_MOVES]
        sums[S_OUT_BOXES] += times * p[STORE_BOXES]
        sums[S_OUT_LINEAR] += times * p[STORE_LINEAR]
        sums[S_OUT_BYTES] += times * p[STORE_BYTES]
        sums[S_CHIP] += times * p[CHIP]


@device
def bound(block, machine, spread, rivals, choice, steps, may_take, active, sums):
    """Cycles; ``may_take``: the residual may come from IN tiles; ``active`` places of TLTs."""
    turns, in_step = spread.filters // choice.tile_m, choice.buffers == 2
    walks = 1 if choice.keeps_in else turns
    own = ceil_div(block.channels, spread.filter_slices)
    plane = block.in_rows * block.in_columns * block.element_bytes
    linear = own * sums[S_LINEAR]
    linear += sums[S_WHOLE] * ceil_div(own * plane, machine.burst_bytes)
    moves = walks * (sums[S_IN] if spread.filter_slices > 1 else steps * sums[S_IN])
    volume = walks * own * block.element_bytes * sums[S_AREA]
    moved = engine(
        machine, rivals, in_step, moves, walks * own * sums[S_BOXES], walks * linear, volume
    )
    n, bursts, volume = weight_counts(block, machine, spread, choice.tile_m, block.channels, 0)
    loads = 1.0 if turns == 1 else turns * sums[S_TILES]
    moved += engine(machine, rivals, False, loads * n, 0, loads * bursts, loads * volume)
    store = sums[S_STORE]
    if not in_step:
        store = engine(
            machine, rivals, False, sums[S_OUT], sums[S_OUT_BOXES], sums[S_OUT_LINEAR],
            sums[S_OUT_BYTES],
        )  # fmt: skip
    moved += store * (2 if block.residual and not may_take else 1)
    step = machine.step
    if in_step:
        step = min(machine.first, machine.ahead_ws if turns == 1 else machine.ahead)
    macs = block.channels * sums[S_CHANNEL] + sums[S_FINISH]
    macs = turns * (macs + steps * (sums[S_BESIDE] + step * sums[S_STEPS]))
    behind = turns * (sums[S_BEHIND] + sums[S_CHIP]) + sums[S_END]
    if not in_step:
        behind -= HIDDEN_CHIP_SHARE * (1.0 - 1.0 / active) * turns * sums[S_CHIP]
        if spread.filter_slices > 1:
            behind += SHARED_STEP_CYCLES * turns * sums[S_TILES] * steps
    return behind + (max(macs, moved) if in_step else macs + moved)
