"""Time of a TLE with two buffers in numba: `overlap.overlapped_cycles` from the tables."""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.exact.axes import FIRST, STEPS
from tvm_npu.codegen.nmp.plan.exact.cost import (
    KEEPS_IN,
    P_IN,
    P_IN_AREA,
    P_IN_BURSTS,
    P_IN_LINEAR,
    P_IN_WHOLE,
    P_OUT,
    P_OUT_AREA,
    P_OUT_BURSTS,
    P_OUT_LINEAR,
    P_OUT_WHOLE,
    WS,
    engine,
    fill_place,
    own_run,
    turn_weights,
)
from tvm_npu.codegen.nmp.plan.tile_overlap import (
    T_LAST_LOAD,
    T_LAST_MAC,
    T_LOAD,
    T_MAC,
    T_RESIDUAL,
    T_STORE,
    TILE_WIDTH,
    tile_cycles,
)
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)

FIRST_TILE = TILE_WIDTH
"""Behind a tile's times lie those of the first tile of all."""
TILES_WIDTH = 2 * FIRST_TILE
MOST_KINDS, KIND_WIDTH = 3, 5


@device
def _first_load(tile, count):
    """`overlap.TileTimes.first_load`."""
    return tile[T_LOAD] + (tile[T_RESIDUAL] if count == 1 else 0.0)


@device
def _in_cycles(task, speeds, spread, place, tile_n, extent, position):
    """Loads of the IN tiles of one step."""
    own = extent
    if spread.ring_in:
        own = own_run(tile_n, extent, spread.item_slices, position)
    if own == 0:
        return 0.0
    size = task.element_bytes
    plane_bytes = task.in_rows * task.in_columns * size
    linear = own * place[P_IN_LINEAR]
    linear += place[P_IN_WHOLE] * ceil_div(own * plane_bytes, task.burst_bytes)
    moves, volume = place[P_IN], own * size * place[P_IN_AREA]
    cycles = engine(speeds, spread, moves, own * place[P_IN_BURSTS], linear, volume)
    return cycles + spread.ring_in * moves * speeds.hop


@device
def _weight_cycles(task, speeds, spread, kind, tile_m, position, channels):
    """Loads of the W tiles of one step of a kind of turn over the filters."""
    sharing = spread.row_slices * spread.column_slices if spread.ring_weights else 1
    loads, bursts, filters = turn_weights(
        task, tile_m, kind[0], kind[1], kind[2], kind[3], sharing, position, channels
    )
    volume = filters * channels * task.kernel * task.element_bytes
    cycles = engine(speeds, spread, loads, 0, bursts, volume)
    return cycles + spread.ring_weights * loads * speeds.hop


@device
def item_kinds(items, runs, tile_m, turns, kinds):
    """The kinds of turns over ``items`` filters of a TLE, which makes ``turns`` of them: rows
    (size, so many parts, size of the parts after them, so many, turns); how many kinds."""
    base, extra = items // runs, items % runs
    longest = base + (extra > 0)
    own = ceil_div(longest, tile_m)
    longer = extra if extra else runs
    long = longest - (own - 1) * tile_m
    short = max(0, base - (own - 1) * tile_m)
    full = own - 1
    is_alike = long == tile_m and (longer == runs or short == tile_m)
    found = 0
    if full or is_alike:
        kinds[0, 0], kinds[0, 1], kinds[0, 2], kinds[0, 3] = tile_m, runs, 0, 0
        kinds[0, 4] = full + is_alike
        found = 1
    if not is_alike:
        kinds[found, 0], kinds[found, 1], kinds[found, 2] = long, longer, short
        kinds[found, 3], kinds[found, 4] = runs - longer, 1
        found += 1
    if turns > own:
        kinds[found, :] = 0
        kinds[found, 4] = turns - own
        found += 1
    return found


@device
def _fill_weights(task, speeds, spread, kinds, number_q, tile_m, tile_n, last_n, position, weights):
    """Loads of W tiles of each kind of turn: under WS of all channels, otherwise of one step of
    ``tile_n`` channels, and of the last one."""
    for q in range(number_q):
        if spread.flow == WS:
            weights[q, 0] = _weight_cycles(
                task, speeds, spread, kinds[q], tile_m, position, task.channels
            )
            continue
        weights[q, 0] = _weight_cycles(task, speeds, spread, kinds[q], tile_m, position, tile_n)
        weights[q, 1] = weights[q, 0]
        if last_n != tile_n:
            weights[q, 1] = _weight_cycles(task, speeds, spread, kinds[q], tile_m, position, last_n)


@device
def _store_cycles(task, speeds, spread, kind, place):
    """The store of a tile of a kind of turn."""
    long, longer, short, shorter = kind[0], kind[1], kind[2], kind[3]
    filters = long * longer + short * shorter
    moves = longer + (shorter if short else 0)
    linear = filters * place[P_OUT_LINEAR]
    if place[P_OUT_WHOLE]:
        out_bytes = task.rows * task.columns * task.element_bytes
        merged = longer * ceil_div(long * out_bytes, task.burst_bytes)
        merged += shorter * ceil_div(short * out_bytes, task.burst_bytes)
        linear += place[P_OUT_WHOLE] * merged
    return engine(
        speeds, spread, moves * place[P_OUT], filters * place[P_OUT_BURSTS],
        linear, filters * task.element_bytes * place[P_OUT_AREA],
    )  # fmt: skip


@device
def _fill_macs(task, speeds, spread, filters, area, tile_n, last_n, tile):
    """MAC times of the steps of the TLT that has most: ``filters`` at ``area`` positions."""
    if task.dense:
        units = filters * ceil_div(tile_n, task.macs_per_cycle)
        last = filters * ceil_div(last_n, task.macs_per_cycle)
    else:
        window = ceil_div(area * task.kernel, task.macs_per_cycle)
        units, last = tile_n * filters * window, last_n * filters * window
    step = speeds.mac_ahead_ws if spread.flow == WS else speeds.mac_ahead
    tile[T_MAC] = units * speeds.mac + step
    beats = ceil_div(filters * area, task.macs_per_cycle)
    finish = (1 + task.residual) * (beats * speeds.mac + speeds.mac_end)
    tile[T_LAST_MAC] = last * speeds.mac + step + finish


@device
def _ends(tile, tlts, count, is_alone, second_once):
    """(cycles before the first tile and of it, under which nothing is stored; what the last one,
    which is ``tile``, takes more than one of its kind in the middle). ``second_once`` comes under
    the first tile."""
    begin, next_load, more = tile[FIRST_TILE:], 0.0, 0.0
    if not is_alone:
        store, residual = tile[T_STORE], tile[T_RESIDUAL]
        next_load = _first_load(tile, count)
        more = tile_cycles(tile, tlts, count, 0.0, store, residual)
        more -= tile_cycles(tile, tlts, count, next_load, store, residual)
    first = tile_cycles(begin, tlts, count, next_load + second_once, 0.0, begin[T_RESIDUAL])
    return _first_load(begin, count) + first + begin[T_STORE], more


@device
def overlapped(
    task, speeds, spread, row_kinds, column_kinds, spot, items, turns, tile_m, tile_n, in_position,
    w_position, bias_cycles, kinds, weights, place, tile,
):  # fmt: skip
    """Cycles of a TLE of ``items`` items, which takes part in ``turns`` over them. ``spot`` says
    which kinds of turns over rows and columns it has (`scratch.SPOT`); the last four are
    for numbers on the way."""
    tlts = spread.spatial * spread.runs
    number_q = item_kinds(items, spread.runs, tile_m, turns, kinds)
    full_n, rest_n = task.channels // tile_n, task.channels % tile_n
    count = full_n + (rest_n > 0)
    last_n = rest_n if rest_n else tile_n
    first_u, number_u, row_turns = spot[0], spot[1], spot[3]
    first_v, number_v, column_turns = spot[4], spot[5], spot[7]
    empty_u, empty_v = row_turns - spot[2], column_turns - spot[6]
    all_u, all_v = number_u + (empty_u > 0), number_v + (empty_v > 0)
    _fill_weights(
        task, speeds, spread, kinds, number_q, tile_m, tile_n, last_n, w_position, weights
    )
    last_q, last_u, last_v = number_q - 1, all_u - 1, all_v - 1
    all_tiles = turns * row_turns * column_turns
    serves_one = all_tiles == (turns if spread.flow == WS else row_turns * column_turns)
    is_behind_first, second_once = serves_one and spread.flow in (WS, KEEPS_IN), 0.0
    total = bias_cycles
    for u in range(all_u):
        times_u = int(row_kinds[first_u + u, STEPS]) if u < number_u else empty_u
        for v in range(all_v):
            times_v = int(column_kinds[first_v + v, STEPS]) if v < number_v else empty_v
            in_load, in_last, area, once_in = 0.0, 0.0, 0, 0.0
            if u < number_u and v < number_v:
                fill_place(row_kinds, first_u + u, column_kinds, first_v + v, place)
                area = int(row_kinds[first_u + u, FIRST] * column_kinds[first_v + v, FIRST])
                in_load = _in_cycles(task, speeds, spread, place, tile_n, tile_n, in_position)
                in_last = in_load
                if last_n != tile_n:
                    in_last = _in_cycles(task, speeds, spread, place, tile_n, last_n, in_position)
                if spread.flow == KEEPS_IN:
                    once_in, in_load, in_last = in_load, 0.0, 0.0
            for q in range(number_q):
                is_first = q == 0 and u == 0 and v == 0
                tile[T_LOAD], tile[T_LAST_LOAD] = in_load, in_last
                if spread.flow != WS:
                    tile[T_LOAD] += weights[q, 0]
                    tile[T_LAST_LOAD] += weights[q, 1]
                tile[T_MAC], tile[T_LAST_MAC], tile[T_STORE] = 0.0, 0.0, 0.0
                if area and kinds[q, 0]:
                    tile[T_STORE] = _store_cycles(task, speeds, spread, kinds[q], place)
                    _fill_macs(task, speeds, spread, kinds[q, 0], area, tile_n, last_n, tile)
                tile[T_RESIDUAL] = tile[T_STORE] if task.residual else 0.0
                own_load = _first_load(tile, count)
                store, residual = tile[T_STORE], tile[T_RESIDUAL]
                plain = tile_cycles(tile, tlts, count, own_load, store, residual)
                number = int(kinds[q, 4]) * times_u * times_v
                total += (number - is_first) * plain
                if is_first:
                    for column in range(FIRST_TILE):
                        tile[FIRST_TILE + column] = tile[column]
                once, loads, is_opening = 0.0, 0, False
                if spread.flow == WS and u == last_u and v == last_v:
                    once, loads, is_opening = weights[q, 0], int(kinds[q, 4]), q == 0
                elif spread.flow == KEEPS_IN and q == last_q:
                    once, loads, is_opening = once_in, times_u * times_v, u == 0 and v == 0
                if loads and is_opening:
                    total += once
                    loads -= 1
                if loads and is_behind_first:
                    second_once, is_behind_first = once, False
                    loads -= 1
                if loads:
                    more = tile_cycles(tile, tlts, count, own_load + once, store, residual)
                    total += loads * (more - plain)
    first, more = _ends(tile, tlts, count, all_tiles == 1, second_once)
    return total + more + first
