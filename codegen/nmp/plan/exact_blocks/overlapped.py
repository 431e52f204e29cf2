"""Time of a TLE of a block with two buffers in numba: `BlockWalk._overlapped`."""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.block_cost import AHEAD_STEP_CYCLES, HIDDEN_AHEAD_CYCLES
from tvm_npu.codegen.nmp.plan.exact_blocks.loads import own_channels, weight_counts
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
)
from tvm_npu.codegen.nmp.plan.exact_blocks.taken import taken_cycles
from tvm_npu.codegen.nmp.plan.tile_overlap import (
    T_BEHIND,
    T_BESIDE,
    T_LAST_LOAD,
    T_LAST_MAC,
    T_LOAD,
    T_MAC,
    T_RESIDUAL,
    T_STORE,
    tile_cycles,
)
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)


@device
def _in_load(block, machine, spread, rivals, place, own):
    """The IN tiles of a step with ``own`` channels of the TLE."""
    moves, size = place[P_IN], block.element_bytes
    if own == 0 or moves == 0:
        return 0.0
    plane = block.in_rows * block.in_columns * size
    linear = own * place[P_IN_LINEAR]
    linear += place[P_IN_WHOLE] * ceil_div(own * plane, machine.burst_bytes)
    volume = own * size * place[P_IN_AREA]
    cycles = engine(machine, rivals, True, moves, own * place[P_IN_BOXES], linear, volume)
    return cycles + (moves * machine.hop if spread.filter_slices > 1 else 0.0)


@device
def _flat(machine, rivals, in_step, counts):
    return engine(machine, rivals, in_step, counts[0], 0, counts[1], counts[2])


@device
def _with_ends(total, first, last, tlts, steps, turns):
    """``total`` of tiles in the middle of the layer, with what the first and the last take more."""
    first_load, last_load, residual = first[T_LOAD], last[T_LOAD], first[T_RESIDUAL]
    total += tile_cycles(first, tlts, steps, last_load, 0.0, residual)
    total -= tile_cycles(first, tlts, steps, first_load, first[T_STORE], residual)
    store = last[T_STORE] if turns == 1 else 0.0
    residual = last[T_RESIDUAL] if turns == 1 else 0.0
    total += tile_cycles(last, tlts, steps, 0.0, store, residual)
    return total - tile_cycles(last, tlts, steps, last_load, store, residual)


@device
def _slack(tile, steps, is_ragged, finish):
    """`overlap.TileTimes.slack` of a tile whose end takes ``finish``."""
    slack = max(0.0, tile[T_LAST_MAC] - finish - tile[T_LAST_LOAD])
    if steps > 1:
        one = max(0.0, tile[T_MAC] - tile[T_LOAD])
        slack = (steps - is_ragged) * one + (slack if is_ragged else 0.0)
    return max(0.0, slack - tile[T_BESIDE])


@device
def overlapped(
    block, machine, spread, rivals, choice, tile_n, steps, turns, macs_first, position, counts,
    taken, places, number, tiles,
):  # fmt: skip
    """Cycles of a TLE whose tiles have so many channel ``steps``, ``turns`` of them a place."""
    tile_m, once = choice.tile_m, turns == 1
    rest = block.channels % tile_n
    last_n = rest if rest else tile_n
    own, last_own = own_channels(spread, tile_n, tile_n), own_channels(spread, tile_n, last_n)
    hops = machine.hop if spread.row_slices * spread.column_slices > 1 else 0.0
    step = machine.ahead_ws if once else machine.ahead
    late, ahead = 0.0, 0.0
    if block.has_window and not macs_first:
        ahead = AHEAD_STEP_CYCLES
    if macs_first:
        step = machine.first
        rings = spread.row_slices * spread.column_slices * spread.filter_slices > 1
        late = machine.late_ring if rings else machine.late
    w_load, w_last, w_once = 0.0, 0.0, 0.0
    if once:
        w = weight_counts(block, machine, spread, tile_m, block.channels, position)
        w_once = _flat(machine, rivals, not block.has_window, w) + hops * w[0]
    else:
        w = weight_counts(block, machine, spread, tile_m, tile_n, position)
        w_load = _flat(machine, rivals, True, w) + hops * w[0]
        w = weight_counts(block, machine, spread, tile_m, last_n, position)
        w_last = _flat(machine, rivals, True, w) + hops * w[0]
    biases, head_biases, point_biases, point_weights = counts
    share = 1.0 / turns
    point_load = 0.0 if once else _flat(machine, rivals, True, point_weights)
    loads_residual = block.residual and not choice.on_chip
    total, count, tlts = 0.0, 0.0, machine.tlts
    for at in range(number):
        p, tile = places[at], tiles[at]
        load, last_load = 0.0, 0.0
        if not choice.keeps_in:
            load = _in_load(block, machine, spread, rivals, p, own)
            last_load = load
            if last_own != own:
                last_load = _in_load(block, machine, spread, rivals, p, last_own)
        load += w_load
        last_load += w_last
        tile[T_LOAD] = load + late if load > 0 else 0.0
        tile[T_LAST_LOAD] = last_load + late if last_load > 0 else 0.0
        beside = p[HAS_STEP] * (p[BESIDE] + step) + ahead
        tile[T_MAC] = tile_n * p[CHANNEL] + beside
        tile[T_LAST_MAC] = last_n * p[CHANNEL] + beside + p[FINISH]
        end = p[END]
        if choice.on_chip:
            rows, columns = int(p[P_OUT_ROWS]), int(p[P_OUT_COLUMNS])
            end += taken_cycles(block, machine, spread, choice, taken, rows, columns)
        store = p[STORE]
        tile[T_BEHIND] = p[CHIP] + p[BEHIND] + end * share
        if macs_first:
            tile[T_BEHIND] -= p[HIDDEN]
        elif once:
            tile[T_BEHIND] -= min(HIDDEN_AHEAD_CYCLES, p[HIDDEN])
        tile[T_RESIDUAL] = store if loads_residual else 0.0
        if steps < 3:
            tile[T_BEHIND] += tile[T_RESIDUAL] * share
            tile[T_RESIDUAL] = 0.0
        tile[T_STORE], tile[T_BESIDE] = store, point_load
        first_load = tile[T_LOAD]
        plain = tile_cycles(tile, tlts, steps, first_load, store, tile[T_RESIDUAL])
        total += p[NUMBER] * plain
        if turns > 1:
            plain = tile_cycles(tile, tlts, steps, first_load, 0.0, 0.0)
            total += p[NUMBER] * (turns - 1) * plain
        count += p[NUMBER] * turns
        if choice.keeps_in:
            kept = _in_load(block, machine, spread, rivals, p, own)
            more = p[NUMBER]
            if at == 0:
                total += kept
                more -= 1
            if more:
                with_kept = tile_cycles(tile, tlts, steps, first_load + kept, 0.0, 0.0)
                total += more * (with_kept - plain)
    first, last = tiles[0], tiles[number - 1]
    if count == 1:
        total = tile_cycles(first, tlts, steps, 0.0, 0.0, first[T_RESIDUAL])
    else:
        total = _with_ends(total, first, last, tlts, steps, turns)
    total += first[T_LOAD] + first[T_STORE] + w_once
    slack = _slack(first, steps, rest > 0, places[0, FINISH])
    before = _flat(machine, rivals, False, biases) - _flat(machine, rivals, False, head_biases)
    late_loads = before + _flat(machine, rivals, False, point_biases)
    if once:
        late_loads += _flat(machine, rivals, False, point_weights)
    total += _flat(machine, rivals, not block.has_window, biases)
    return max(0.0, late_loads - slack) - before + total
