"""The search of `exact` in numba: the cost of `cost.predict`, its bounds, and branch and bound.

One call searches all tiles of one cut over the TLEs in one mode. A tile's time splits into parts
that depend on one extent (`exact_tables`) or on tile_r and tile_c together (a place: how many
tiles, their bursts and bytes, rounded MAC windows).

A cell is one (tile_r, tile_c). Its bound takes every part at its least over all tile_m and tile_n
that fit, each on its own. Traffic is counted in integers; only `_mac_sum` must add in the order of
`cost.predict` to equal it to the last bit.

Of `exact_tables` this uses the shapes of the tables only, because numba's cache looks at this file
alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tvm_npu.codegen.plan.exact_tables import (
    BIAS_BYTES,
    FLAT_IN,
    FLAT_OUT,
    MOVES,
    PART_DENSE,
    PART_FLAT,
    PART_W_BURSTS,
    PARTS,
    STEPS,
    W_BURSTS,
)

OS, WS = 1, 2
SLACK = 1e-9
"""Relative allowance for rounding: sums in another order differ by far less."""

# Columns of the table of places.
_PLACES, _IN_PLACES, _IN_BURSTS, _IN_AREA, _OUT_BURSTS, _OUT_AREA, _WINDOWS = range(7)


@njit(cache=True, error_model="numpy")
def ceil_div(total, part):
    return (total + part - 1) // part


@njit(cache=True, error_model="numpy")
def _piece_bursts(rows, columns, width, element_bytes, burst_bytes):
    """Bursts of one channel of a tile."""
    if columns == width:
        return ceil_div(rows * columns * element_bytes, burst_bytes)
    return rows * ceil_div(columns * element_bytes, burst_bytes)


@njit(cache=True, error_model="numpy")
def _table_place(task, speeds, rows, row_kinds, columns, column_kinds, table):
    """All tiles of one row slice, for one channel and one filter."""
    table[:] = 0
    size, burst = task.element_bytes, speeds.burst_bytes
    for r in range(row_kinds):
        for c in range(column_kinds):
            times = rows[r, 2] * columns[c, 2]
            area = rows[r, 1] * columns[c, 1]
            table[_PLACES] += times
            if area:
                table[_IN_PLACES] += times
                table[_IN_AREA] += times * area
                table[_IN_BURSTS] += times * _piece_bursts(
                    rows[r, 1], columns[c, 1], task.in_columns, size, burst
                )
            out = rows[r, 0] * columns[c, 0]
            table[_OUT_AREA] += times * out
            table[_OUT_BURSTS] += times * _piece_bursts(
                rows[r, 0], columns[c, 0], task.columns, size, burst
            )
            table[_WINDOWS] += times * ceil_div(out * task.kernel, speeds.macs_per_cycle)


@njit(cache=True, error_model="numpy")
def _units_sum(task, speeds, items, item, part, place):
    """MAC time of a TLE from the totals: `_mac_sum` but for rounding."""
    longest = ceil_div(items, task.tlts)
    filters = longest * task.item_filters
    if task.dense:
        units = filters * part[PART_DENSE] * place[_PLACES]
    else:
        units = filters * task.channels * place[_WINDOWS]
    steps = item[STEPS] * part[PARTS] * place[_PLACES]
    return units / speeds.mac_efficiency + steps * speeds.mac_step


@njit(cache=True, error_model="numpy")
def _mac_sum(task, speeds, items, tile_m, tile_n, rows, row_kinds, columns, column_kinds):
    """MAC time of a TLE, added up in the order of `cost.predict`."""
    longest, ragged = ceil_div(items, task.tlts), items % task.tlts > 0
    steps = ceil_div(longest, tile_m)
    last = longest - (steps - 1) * tile_m
    first_steps = steps - 1
    if not ragged and last == tile_m:
        first_steps, last = steps, 0
    full_parts, last_part = task.channels // tile_n, task.channels % tile_n
    total = 0.0
    for is_last in range(2):
        times = 1 if is_last else first_steps
        filters = (last if is_last else tile_m) * task.item_filters
        if times == 0 or filters == 0:
            continue
        for r in range(row_kinds):
            for c in range(column_kinds):
                here = times * rows[r, 2] * columns[c, 2]
                window = ceil_div(rows[r, 0] * columns[c, 0] * task.kernel, speeds.macs_per_cycle)
                for is_rest in range(2):
                    extent = last_part if is_rest else tile_n
                    number = (1 if extent else 0) if is_rest else full_parts
                    if number == 0:
                        continue
                    if task.dense:
                        units = filters * ceil_div(extent, speeds.macs_per_cycle)
                    else:
                        units = extent * filters * window
                    step = units / speeds.mac_efficiency + speeds.mac_step
                    total += (here * number) * step
    return total


@njit(cache=True, error_model="numpy")
def _tle_traffic(task, speeds, schedule, items, item, part, place, flat_in, flat_out):
    """(load transfers, box bursts, linear bursts, bytes, the same of stores) of a TLE but for
    biases.
    ``item`` and ``part`` are rows of the tables, or of their least values."""
    size = task.element_bytes
    item_channels = task.channels * items
    w_bytes = item_channels * task.item_filters * task.kernel * size
    if task.grouped:
        transfers = item[MOVES] * place[_IN_PLACES]
        bursts, linear = item_channels * place[_IN_BURSTS], 0
        if flat_in:
            bursts, linear = 0, item[FLAT_IN] * place[_IN_PLACES]
        volume = item_channels * size * place[_IN_AREA]
    else:
        transfers = item[STEPS] * part[PARTS] * place[_IN_PLACES]
        bursts, linear = item[STEPS] * task.channels * place[_IN_BURSTS], 0
        if flat_in:
            bursts, linear = 0, item[STEPS] * part[PART_FLAT] * place[_IN_PLACES]
        volume = item[STEPS] * task.channels * size * place[_IN_AREA]
    if schedule == WS:
        transfers += item[MOVES]
        linear += item[W_BURSTS]
        volume += w_bytes
    else:  # always with fewer than all channels: see `search`
        transfers += item[MOVES] * part[PARTS] * place[_PLACES]
        linear += items * part[PART_W_BURSTS] * place[_PLACES]
        volume += w_bytes * place[_PLACES]
    filters = items * task.item_filters
    out_transfers = item[MOVES] * place[_PLACES]
    out_bursts, out_linear = filters * place[_OUT_BURSTS], 0
    if flat_out:
        out_bursts, out_linear = 0, item[FLAT_OUT]
    out_volume = filters * size * place[_OUT_AREA]
    if task.residual:
        transfers += out_transfers
        bursts += out_bursts
        linear += out_linear
        volume += out_volume
    return (
        transfers, bursts, linear, volume, out_transfers, out_bursts, out_linear, out_volume,
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _engine(speeds, transfers, bursts, linear, volume):
    own = transfers * speeds.transfer + bursts * speeds.burst + linear * speeds.linear_burst
    return own + volume / speeds.bytes_per_cycle


@njit(cache=True, error_model="numpy")
def _time(
    task, speeds, tables, schedule, item_table, tile_m, part, tile_n, places, tile_r, tile_c,
    flat_in, flat_out, best,
):  # fmt: skip
    """(cycles of the layer, whether they are those of `cost.predict` to the bit). They are not
    when the sum from totals already shows that the tile is no better than ``best``, or for a
    bound (``tile_n`` 0)."""
    columns = tables.columns[tables.column_first[tile_c] :]
    is_exact = False
    while True:
        slowest = 0.0
        bursts, volume = 0, 0
        for i in range(2):
            items, item, bias = tables.items[i], item_table[i, tile_m], tables.bias[i]
            if items == 0:
                continue
            for d in range(places.shape[0]):
                tles = tables.item_tles[i] * tables.row_tles[tile_r, d] * task.repeats
                if tles == 0:
                    break
                load, loads, load_linear, load_bytes, store, stores, store_linear, store_bytes = (
                    _tle_traffic(
                        task, speeds, schedule, items, item, part, places[d], flat_in, flat_out
                    )
                )
                load += bias[0]
                load_linear += bias[1]
                load_bytes += bias[2]
                if is_exact:
                    macs = _mac_sum(
                        task, speeds, items, tile_m, tile_n,
                        tables.rows[tables.row_first[tile_r, d] :], tables.row_kinds[tile_r, d],
                        columns, tables.column_kinds[tile_c],
                    )  # fmt: skip
                else:
                    macs = _units_sum(task, speeds, items, item, part, places[d])
                own = _engine(speeds, load, loads, load_linear, load_bytes)
                own = own + _engine(speeds, store, stores, store_linear, store_bytes)
                slowest = max(slowest, own + macs)
                bursts += tles * (loads + load_linear + stores + store_linear)
                volume += tles * (load_bytes + store_bytes)
        shared = bursts * speeds.dram_burst + volume / speeds.dram_bytes_per_cycle
        time = max(slowest * task.repeats, shared)
        if is_exact or tile_n == 0 or time * (1.0 - SLACK) >= best:
            return time, is_exact
        is_exact = True


@njit(cache=True, error_model="numpy")
def search(task, room, speeds, tables, best):
    """The fastest plan of one cut and mode that takes less than ``best`` cycles.

    Returns (its cycles or ``best``, least bound of the cells that were cut, (schedule, tile_m in
    items, tile_n, tile_r, tile_c), all 0 without one, (plans in the space, cells, cells cut by
    their bound, tiles timed)).

    What is left out, because something in the space is at least as fast:
      multicast OS with a tile that WS can hold: WS loads W once, in no more pieces (so OS never
        has all channels in a tile), and IS, which costs what OS does with all filters of a TLT;
      grouped OS, likewise;
      tile_m and tile_n that a smaller one equals or betters in all tabled parts;
      OS with fewer filters a tile, WS with fewer channels than fit.
    """
    size = task.element_bytes
    flat_out = task.rows * task.columns == 1
    flat_in = flat_out and task.in_rows * task.in_columns * task.span_rows * task.span_columns == 1
    chosen = np.zeros(5, np.int64)
    counts = np.zeros(4, np.int64)  # plans, cells, cut, evaluated
    least_bound = np.inf
    slice_rows = ceil_div(task.rows, task.row_slices)
    longest = ceil_div(ceil_div(task.items, task.item_slices), task.tlts)
    if longest * task.item_filters * BIAS_BYTES > room.bias:
        return best, least_bound, chosen, counts
    most_m = min(longest, room.tile_m // task.item_filters)
    most_n = min(task.channels, room.tile_n)
    tap_bytes = task.kernel * size
    ws_m = min(most_m, room.mb1 // (task.item_filters * task.channels * tap_bytes))
    os_items = room.mb1 // tap_bytes  # filters x channels of a W tile
    if task.grouped and (most_n < task.channels or ws_m == 0):
        return best, least_bound, chosen, counts
    plans_until = np.zeros(task.channels + 1, np.int64)
    for n in range(1, task.channels + 1):
        plans_until[n] = plans_until[n - 1] + os_items // n
    places = np.zeros((tables.row_tles.shape[1], 7), np.int64)

    for tile_r in range(1, min(slice_rows, room.tile_r) + 1):
        in_rows = (tile_r - 1) * task.stride_rows + task.span_rows
        in_channels = task.channels if task.grouped else 1
        if in_channels * in_rows * task.span_columns * size > room.mb0:
            break
        if task.item_filters * tile_r * size > room.mb2:
            break
        for tile_c in range(1, min(task.columns, room.tile_c) + 1):
            in_columns = (tile_c - 1) * task.stride_columns + task.span_columns
            in_area = in_rows * in_columns * size
            if in_channels * in_area > room.mb0:
                break
            cap_m = min(most_m, room.mb2 // (task.item_filters * tile_r * tile_c * size))
            if cap_m == 0:
                break
            if task.grouped:
                cap_n = task.channels
                cap_m = min(cap_m, room.mb0 // (task.channels * in_area))
            else:
                cap_n = min(most_n, room.mb0 // in_area)
            for d in range(places.shape[0]):
                if tables.row_tles[tile_r, d]:
                    _table_place(
                        task, speeds, tables.rows[tables.row_first[tile_r, d] :],
                        tables.row_kinds[tile_r, d],
                        tables.columns[tables.column_first[tile_c] :],
                        tables.column_kinds[tile_c], places[d],
                    )  # fmt: skip
            for schedule in (WS, OS):
                if schedule == WS:
                    top_m, top_n = min(cap_m, ws_m), cap_n
                    if top_m == 0:
                        continue
                    counts[0] += top_m if task.grouped else top_m * top_n
                else:
                    if task.grouped:  # OS loads W more often than WS and gains nothing
                        counts[0] += min(cap_m, ws_m)
                        continue
                    # All of os_items // n and cap_m, whichever is less, for n = 1 .. cap_n.
                    turn = min(cap_n, os_items // cap_m)
                    counts[0] += cap_m * turn + plans_until[cap_n] - plans_until[turn]
                    if cap_m == longest:  # IS
                        counts[0] += min(cap_n, os_items // longest)
                    top_m = min(cap_m, os_items)
                    top_n = min(cap_n, task.channels - 1)
                    if top_m <= ws_m or top_n == 0:
                        continue  # WS fits with the same tile
                    top_n = min(top_n, os_items // (ws_m + 1))
                    if top_n == 0:
                        continue
                counts[1] += 1
                bound, _ = _time(
                    task, speeds, tables, schedule, tables.least_item, top_m,
                    tables.least_part[top_n], 0, places, tile_r, tile_c, flat_in, flat_out, np.inf,
                )  # fmt: skip
                bound *= 1.0 - SLACK
                if bound >= best:
                    counts[2] += 1
                    least_bound = min(least_bound, bound)
                    continue
                tiles = tables.ws_tiles if schedule == WS else tables.os_tiles
                for index_n in range(tables.parts.size - 1, -1, -1):
                    n = tables.parts[index_n]
                    if task.grouped:
                        n = task.channels
                    if n > top_n:
                        continue
                    last_m = top_m
                    if schedule == OS:
                        last_m = min(top_m, os_items // n)
                        if last_m <= ws_m:
                            continue
                    for index_m in range(tiles.size - 1, -1, -1):
                        m = tiles[index_m]
                        if m > last_m:
                            continue
                        if schedule == OS and m <= ws_m:
                            break
                        counts[3] += 1
                        time, is_exact = _time(
                            task, speeds, tables, schedule, tables.item, m, tables.part[n], n,
                            places, tile_r, tile_c, flat_in, flat_out, best,
                        )  # fmt: skip
                        if is_exact and time < best:
                            best = time
                            chosen[0], chosen[1], chosen[2] = schedule, m, n
                            chosen[3], chosen[4] = tile_r, tile_c
                        if schedule == OS and not flat_out:
                            break  # fewer filters a tile: more steps, more transfers
                    if task.grouped or (schedule == WS and not (task.dense or flat_in)):
                        break  # fewer channels a tile: more steps
    return best, least_bound, chosen, counts
