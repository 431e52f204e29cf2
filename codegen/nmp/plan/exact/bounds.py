"""What tiles fit and how fast they can be at best, in numba: the first half of the search of
`exact`.

A class of a spread is all (tile_r, tile_c) that make equally many turns over the rows and over the
columns; a region of rows and one of columns (`axes`) hold some of them. They are bounded from the
least of each count over their tiles: no less than all transfers and all MACs of a TLE one after the
other or, with two buffers, either of them, or, where TLTs share nothing, all transfers, or all MACs
and a TLT's part of the transfers.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.nmp.plan.exact.axes import OUT_EXTENT
from tvm_npu.codegen.nmp.plan.exact.cost import (
    KEEPS_IN,
    OS,
    P_LARGEST,
    P_TURNS,
    P_WINDOWS,
    WS,
    Spread,
    engine,
    fill_place,
    finish_time,
    in_turn,
    least_windows,
    mac_time,
    tle_times,
)
from tvm_npu.codegen.nmp.plan.exact.tables import TURNS
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)

SLACK = 1e-9
"""Relative allowance for rounding: sums in another order differ by far less."""


class Room(NamedTuple):
    """Scratchpads in bytes and tile limits."""

    mb0: int
    mb1: int
    mb2: int
    bias: int
    tile_m: int
    tile_n: int
    tile_r: int
    tile_c: int


@device
def spread_of(family):
    return Spread(
        family[0], family[1], family[2], family[3], family[4], family[5], family[6], family[7],
        family[8], family[9], family[10], family[11], family[12], family[13], family[14],
        float(family[4] * family[5] * family[6]),
    )  # fmt: skip


@device
def most_items(task, room, spread, most_m, tile_n, longest, turns):
    """Items of a tile of ``tile_n`` channels that MB1 holds, at most ``most_m``."""
    depth = task.channels if spread.flow == WS else tile_n
    each = task.item_filters * depth * task.kernel * task.element_bytes
    once = room.mb1 // each
    if spread.buffers == 1:
        return min(most_m, once)
    if once >= longest and depth == task.channels and (spread.flow == WS or turns == 1):
        return most_m
    return min(most_m, once // 2)


@device
def most_better_kept(spread, ws_m, turns):
    """Items up to which a tile under OS is left out, as WS can hold it and is no slower: it is not
    sure of that where W comes once anyway and TLTs need not wait for all others to load it."""
    all_wait = spread.spatial > 1 or spread.ring_in or spread.ring_weights
    return ws_m if turns > 1 or all_wait else 0


@device
def most_at(task, room, spread, tile_r, tile_c, longest, turns, ws_m):
    """(most items, most channels) of tiles at a place, each with the least of the other; 0 of
    either where nothing fits or nothing is to be searched."""
    size = task.element_bytes
    in_rows = (tile_r - 1) * task.stride_rows + task.span_rows
    in_columns = (tile_c - 1) * task.stride_columns + task.span_columns
    in_area = in_rows * in_columns * size
    out_area = tile_r * tile_c * task.item_filters * size
    copies = 2 if spread.buffers == 2 and turns > 1 else 1
    most_m = min(longest, room.tile_m // task.item_filters)
    most_m = min(most_m, room.mb2 // (out_area * copies))
    most_n = min(task.channels, room.tile_n)
    if task.residual:
        beside = 0
        if spread.flow == KEEPS_IN:
            beside = copies * task.channels * in_area
        elif spread.buffers == 2:
            beside = copies * in_area
        most_m = min(most_m, max(0, room.mb0 - beside) // out_area)
    if task.grouped:
        most_m = min(most_m, room.mb0 // (task.channels * in_area))
    else:
        most_n = min(most_n, room.mb0 // (in_area * copies))
    if spread.flow == OS:
        if spread.buffers == 1:
            most_n = min(most_n, task.channels - 1)
        most_m = most_items(task, room, spread, most_m, 1, longest, turns)
        if most_m <= most_better_kept(spread, ws_m, turns):
            most_m = 0
    else:
        most_m = most_items(task, room, spread, most_m, task.channels, longest, turns)
    if (spread.flow == KEEPS_IN or task.grouped) and most_n < task.channels:
        most_n = 0
    return most_m, most_n


@device
def fits(task, room, spread, tile_m, tile_n, tile_r, tile_c, m_turns, turns):
    """Whether a tile fits, with all copies and neighbours that it needs."""
    size = task.element_bytes
    in_rows = (tile_r - 1) * task.stride_rows + task.span_rows
    in_columns = (tile_c - 1) * task.stride_columns + task.span_columns
    n_turns = ceil_div(task.channels, tile_n)
    in_bytes = tile_n * in_rows * in_columns * size
    if task.grouped:
        in_bytes *= tile_m
    filters = tile_m * task.item_filters
    depth = task.channels if spread.flow == WS else tile_n
    w_bytes = filters * depth * task.kernel * size
    out_bytes = filters * tile_r * tile_c * size
    in_copies, w_copies, out_copies = 1, 1, 1
    if spread.buffers == 2:
        if turns * n_turns * (1 if spread.flow == KEEPS_IN else m_turns) > 1:
            in_copies = 2
        if m_turns * (1 if spread.flow == WS else turns * n_turns) > 1:
            w_copies = 2
        if turns * m_turns > 1:
            out_copies = 2
    in_all = in_copies * in_bytes
    if in_all > room.mb0 or w_copies * w_bytes > room.mb1 or out_copies * out_bytes > room.mb2:
        return False
    if task.residual:
        if spread.buffers == 2 or spread.flow == KEEPS_IN:
            return in_all + out_bytes <= room.mb0
        return out_bytes <= room.mb0
    return True


@device
def least_time(
    task, speeds, spread, place, item, part, count, longest, bias, is_exact
):  # fmt: skip
    """A lower bound from one TLE, of rows of tables or of least values. ``bias`` is `cost.BIASES`;
    ``is_exact``: channel steps and turns of ``place`` are not the least ones."""
    biases = bias[3]
    inputs, weights, stores, _ = tle_times(
        task, speeds, spread, place, item, part, count, item[TURNS], place[P_TURNS], -1.0
    )
    moved = inputs + weights + biases + stores
    macs = mac_time(task, speeds, place, item, part, longest)
    macs += finish_time(task, speeds, place, item, longest)
    if task.grouped:
        time = max(moved, macs + moved / min(count, spread.runs))
    elif spread.buffers == 2:
        time = max(moved, macs + biases)
    else:
        time = in_turn(
            task, spread, place, part, count, bias, inputs, weights, biases, stores, macs, is_exact
        )  # fmt: skip
    return time * task.repeats * (1.0 - SLACK)


@device
def fill_bias(speeds, spread, own_rows, own_columns, table, bias):
    """`cost.BIASES` of all TLTs of a TLE of ``own_rows`` x ``own_columns`` that have work."""
    parts = min(spread.row_parts, int(own_rows)) * min(spread.column_parts, int(own_columns))
    for index in range(3):
        bias[index] = parts * table[index]
    bias[3] = engine(speeds, spread, bias[0], 0, bias[1], bias[2])


@device
def critical_of(spread):
    """Row and column slice of a TLE in the middle of the map: nothing of its IFM is clipped."""
    return int(spread.row_slices > 2), int(spread.column_slices > 2)


@device
def most_kept(task, room, spread, items):
    """Items of a tile that WS can hold with all channels. 0 with two buffers, where nothing
    depends on it."""
    if spread.buffers == 2:
        return 0
    longest = items.longest[spread.items]
    return most_items(task, room, spread, longest, task.channels, longest, 1)


@device
def least_of(
    task, room, speeds, spread, rows, columns, items, channels, row_region, column_region, ws_m,
    place, bias,
):  # fmt: skip
    """A lower bound on all tiles of two regions; infinite where none fits."""
    i, j = critical_of(spread)
    row = rows.region_begin[spread.rows, i] + row_region
    column = columns.region_begin[spread.columns, j] + column_region
    tile_r, tile_c = rows.smallest[row], columns.smallest[column]
    if tile_r > room.tile_r or tile_c > room.tile_c:
        return np.inf
    longest = items.longest[spread.items]
    turns = ceil_div(rows.longest[spread.rows], rows.largest[row])
    turns *= ceil_div(columns.longest[spread.columns], columns.largest[column])
    most_m, most_n = most_at(task, room, spread, tile_r, tile_c, longest, turns, ws_m)
    if most_m == 0 or most_n == 0:
        return np.inf
    all_rows, all_columns = rows.least[row, OUT_EXTENT], columns.least[column, OUT_EXTENT]
    own_rows = ceil_div(int(all_rows), spread.row_parts)
    own_columns = ceil_div(int(all_columns), spread.column_parts)
    fill_place(rows.least, row, columns.least, column, place)
    place[P_LARGEST] = own_rows * own_columns
    place[P_WINDOWS] = least_windows(
        own_rows * own_columns, place[P_TURNS], task.kernel, task.macs_per_cycle
    )
    fill_bias(speeds, spread, all_rows, all_columns, items.bias[spread.items, 0], bias)
    position = i * spread.column_slices + j if spread.ring_weights else 0
    item = items.lowest[items.begin[spread.items, 0, position] + most_m]
    part = channels.lowest[channels.begin[spread.channels, 0] + most_n]
    return least_time(
        task, speeds, spread, place, item, part, items.count[spread.items, 0], longest, bias, False
    )


@entry
def bound_families(
    task, room, speeds, rows, columns, items, channels, families, place, bias, bounds
):
    """A lower bound on everything of each family into ``bounds``; infinite where nothing fits.
    ``place`` and ``bias`` are for numbers on the way."""
    for number in range(families.shape[0]):
        spread = spread_of(families[number])
        bounds[number] = np.inf
        is_used = rows.used[spread.rows] and columns.used[spread.columns]
        if not (is_used and items.used[spread.items]):
            continue
        if items.longest[spread.items] * task.item_filters * BIAS_BYTES > room.bias:
            continue
        ws_m = most_kept(task, room, spread, items)
        bounds[number] = least_of(
            task, room, speeds, spread, rows, columns, items, channels, rows.whole[spread.rows],
            columns.whole[spread.columns], ws_m, place, bias,
        )  # fmt: skip
