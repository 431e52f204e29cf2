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
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)

LOAD, LAST_LOAD, MAC, LAST_MAC, STORE = range(5)
FIRST_TILE = 5
"""Behind a tile's times lie those of the first tile of all."""
TILE_WIDTH = 2 * FIRST_TILE
MOST_KINDS, KIND_WIDTH = 3, 5


@device
def _first_load(tile, count, residual):
    """`overlap.TileTimes.first_load`."""
    return tile[LOAD] + (residual if count == 1 else 0.0)


@device
def _cycles(tile, tlts, count, next_load, is_first, residual):
    """`overlap.TileTimes.cycles` of a tile of ``count`` channel steps; its LAST_MAC has the end of
    the tile in it."""
    store = 0.0 if is_first else tile[STORE]
    if count == 1:
        return max(tile[LAST_MAC], next_load + store)
    total = max(tile[LAST_MAC], next_load)
    if count == 2:
        return total + max(tile[MAC], tile[LAST_LOAD] + residual + store)
    number = min(tlts, count - 2)  # `spread.steps_with_some`
    some = (store + residual) / number
    if number == count - 2:
        total += max(tile[MAC], tile[LAST_LOAD] + some)
        number -= 1
    else:
        total += max(tile[MAC], tile[LAST_LOAD])
    total += number * max(tile[MAC], tile[LOAD] + some)
    return total + (count - 2 - number) * max(tile[MAC], tile[LOAD])


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
def overlapped(
    task, speeds, spread, row_kinds, column_kinds, spot, items, turns, tile_m, tile_n, in_position,
    w_position, bias_cycles, kinds, weights, place, tile,
):  # fmt: skip
    """Cycles of a TLE of ``items`` items, which takes part in ``turns`` over them. ``spot`` says
    which kinds of turns over rows and columns it has (`scratch.SPOT`); the last four are
    for numbers on the way."""
    size, tlts = task.element_bytes, spread.spatial * spread.runs
    number_q = item_kinds(items, spread.runs, tile_m, turns, kinds)
    full_n, rest_n = task.channels // tile_n, task.channels % tile_n
    count = full_n + (rest_n > 0)
    last_n = rest_n if rest_n else tile_n
    first_u, number_u, row_turns = spot[0], spot[1], spot[3]
    first_v, number_v, column_turns = spot[4], spot[5], spot[7]
    empty_u, empty_v = row_turns - spot[2], column_turns - spot[6]
    all_u, all_v = number_u + (empty_u > 0), number_v + (empty_v > 0)
    for q in range(number_q):
        if spread.flow == WS:
            weights[q, 0] = _weight_cycles(
                task, speeds, spread, kinds[q], tile_m, w_position, task.channels
            )
        else:
            weights[q, 0] = _weight_cycles(
                task, speeds, spread, kinds[q], tile_m, w_position, tile_n
            )
            weights[q, 1] = weights[q, 0]
            if last_n != tile_n:
                weights[q, 1] = _weight_cycles(
                    task, speeds, spread, kinds[q], tile_m, w_position, last_n
                )
    step = speeds.mac_ahead_ws if spread.flow == WS else speeds.mac_ahead
    out_bytes = task.rows * task.columns * size
    first_load, first_store, first_residual = 0.0, 0.0, 0.0
    total = 0.0

    last_q, last_u, last_v = number_q - 1, all_u - 1, all_v - 1
    all_tiles = turns * row_turns * column_turns
    serves_one = all_tiles == (turns if spread.flow == WS else row_turns * column_turns)
    is_behind_first, second_once = serves_one and spread.flow in (WS, KEEPS_IN), 0.0
    for u in range(all_u):
        times_u = int(row_kinds[first_u + u, STEPS]) if u < number_u else empty_u
        for v in range(all_v):
            times_v = int(column_kinds[first_v + v, STEPS]) if v < number_v else empty_v
            is_empty = u >= number_u or v >= number_v
            in_load, in_last, area, once_in = 0.0, 0.0, 0, 0.0
            if not is_empty:
                fill_place(row_kinds, first_u + u, column_kinds, first_v + v, place)
                area = int(row_kinds[first_u + u, FIRST] * column_kinds[first_v + v, FIRST])
                in_load = _in_cycles(task, speeds, spread, place, tile_n, tile_n, in_position)
                in_last = in_load
                if last_n != tile_n:
                    in_last = _in_cycles(task, speeds, spread, place, tile_n, last_n, in_position)
                if spread.flow == KEEPS_IN:
                    once_in, in_load, in_last = in_load, 0.0, 0.0
            for q in range(number_q):
                tile[LOAD], tile[LAST_LOAD] = in_load, in_last
                if spread.flow != WS:
                    tile[LOAD] += weights[q, 0]
                    tile[LAST_LOAD] += weights[q, 1]
                tile[STORE], tile[MAC], tile[LAST_MAC] = 0.0, 0.0, 0.0
                long, longer, short, shorter = kinds[q, 0], kinds[q, 1], kinds[q, 2], kinds[q, 3]
                if not is_empty and long:
                    filters = long * longer + short * shorter
                    moves = longer + (shorter if short else 0)
                    linear = filters * place[P_OUT_LINEAR]
                    if place[P_OUT_WHOLE]:
                        merged = longer * ceil_div(long * out_bytes, task.burst_bytes)
                        merged += shorter * ceil_div(short * out_bytes, task.burst_bytes)
                        linear += place[P_OUT_WHOLE] * merged
                    tile[STORE] = engine(
                        speeds, spread, moves * place[P_OUT], filters * place[P_OUT_BURSTS],
                        linear, filters * size * place[P_OUT_AREA],
                    )  # fmt: skip
                    if task.dense:
                        units = long * ceil_div(tile_n, task.macs_per_cycle)
                        last = long * ceil_div(last_n, task.macs_per_cycle)
                    else:
                        window = ceil_div(area * task.kernel, task.macs_per_cycle)
                        units, last = tile_n * long * window, last_n * long * window
                    tile[MAC] = units * speeds.mac + step
                    beats = ceil_div(long * area, task.macs_per_cycle)
                    finish = (1 + task.residual) * (beats * speeds.mac + speeds.mac_end)
                    tile[LAST_MAC] = last * speeds.mac + step + finish
                residual = tile[STORE] if task.residual else 0.0
                number = int(kinds[q, 4]) * times_u * times_v
                is_first = q == 0 and u == 0 and v == 0
                is_last = q == last_q and u == last_u and v == last_v
                own_load = _first_load(tile, count, residual)
                plain = _cycles(tile, tlts, count, own_load, False, residual)
                total += number * plain
                if is_first:
                    first_load, first_store, first_residual = own_load, tile[STORE], residual
                    for column in range(FIRST_TILE):
                        tile[FIRST_TILE + column] = tile[column]
                    total -= plain
                once, loads = 0.0, 0
                if spread.flow == WS and u == last_u and v == last_v:
                    once, loads = weights[q, 0], int(kinds[q, 4])
                    is_opening = q == 0
                elif spread.flow == KEEPS_IN and q == last_q:
                    once, loads = once_in, times_u * times_v
                    is_opening = u == 0 and v == 0
                if loads:
                    if is_opening:
                        total += once
                        loads -= 1
                    if is_behind_first and loads:
                        second_once = once
                        loads -= 1
                        is_behind_first = False
                    first = _cycles(tile, tlts, count, own_load + once, False, residual)
                    total += loads * (first - plain)
                if is_last:
                    begin, last_load = tile[FIRST_TILE:], 0.0
                    if all_tiles > 1:
                        total += _cycles(tile, tlts, count, 0.0, False, residual) - plain
                        last_load = own_load
                    total += first_load
                    last_load += second_once
                    total += _cycles(begin, tlts, count, last_load, True, first_residual)
    return total + first_store + bias_cycles
