"""The search of `exact` in numba: the cost of `cost.predict`, its bounds, and branch and bound.

One call searches all tiles of one cut over the TLEs in one mode. A tile's time splits into parts
that depend on one or two of its extents each, so they are tabled:

  places   tile_r x tile_c: how many tiles, their bursts and bytes, rounded MAC windows
  items    tile_m: steps of a TLE, transfers of its TLTs, bursts of W (and of flat IN, OUT)
  channels tile_n: steps, bursts of a W tile that lacks channels (and of flat IN), dense MACs

A cell is one (tile_r, tile_c). Its bound takes every tabled part at its least over all tile_m and
tile_n that fit, each on its own. Traffic is counted in integers; only `_mac_sum` must add in the
order of `cost.predict` to equal it to the last bit.

All lives in one module because numba's cache looks at this file alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

OS, WS = 1, 2
SLACK = 1e-9
"""Relative allowance for rounding: sums in another order differ by far less."""

BIAS_BYTES = 4

# Columns of the table of places.
_PLACES, _IN_PLACES, _IN_BURSTS, _IN_AREA, _OUT_BURSTS, _OUT_AREA, _WINDOWS = range(7)
# Columns of the tables of items and of channels.
_STEPS, _MOVES, _W_BURSTS, _FLAT_IN, _FLAT_OUT = range(5)
_PARTS, _PART_W_BURSTS, _PART_FLAT, _PART_DENSE = range(4)


class Task(NamedTuple):
    """A layer (one group of it in multicast mode, ``repeats`` times) and its cut over the TLEs.

    ``items`` are filters (multicast) or groups of ``item_filters`` filters (grouped);
    ``channels`` are those of one group; spans are of the dilated window."""

    grouped: int
    repeats: int
    items: int
    item_filters: int
    channels: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    kernel: int
    stride_rows: int
    stride_columns: int
    span_rows: int
    span_columns: int
    padding_rows: int
    padding_columns: int
    element_bytes: int
    residual: int
    dense: int
    row_slices: int
    item_slices: int
    tlts: int


class Room(NamedTuple):
    """Scratchpads in bytes (``mb2`` includes the residual's bound) and tile limits."""

    mb0: int
    mb1: int
    mb2: int
    bias: int
    tile_m: int
    tile_n: int
    tile_r: int
    tile_c: int


class Speeds(NamedTuple):
    """The rates of the machine, as `cost` uses them."""

    transfer: float
    burst: float
    bytes_per_cycle: float
    dram_burst: float
    dram_bytes_per_cycle: float
    mac_efficiency: float
    mac_step: float
    burst_bytes: int
    macs_per_cycle: int


@njit(cache=True, error_model="numpy")
def ceil_div(total, part):
    return (total + part - 1) // part


@njit(cache=True, error_model="numpy")
def _axis_kinds(begin, count, tile, stride, span, padding, in_extent, kinds):
    """`cost.axis_tiles` into rows (extent, IFM extent, how many) of ``kinds``: how many rows."""
    found = 0
    for start in range(begin, begin + count, tile):
        extent = min(tile, begin + count - start)
        low = start * stride - padding
        high = low + (extent - 1) * stride + span
        real = max(0, min(high, in_extent) - max(low, 0))
        known = 0
        while known < found and not (kinds[known, 0] == extent and kinds[known, 1] == real):
            known += 1
        if known == found:
            kinds[found, 0], kinds[found, 1], kinds[found, 2] = extent, real, 0
            found += 1
        kinds[known, 2] += 1
    return found


@njit(cache=True, error_model="numpy")
def _same_kinds(a, b, count):
    for kind in range(count):
        for column in range(3):
            if a[kind, column] != b[kind, column]:
                return False
    return True


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
def _tiled_bursts(count, tile, item_bytes, burst_bytes):
    """Bursts of ``count`` items in 1-D transfers of ``tile`` items each."""
    full = count // tile
    bursts = full * ceil_div(tile * item_bytes, burst_bytes)
    return bursts + ceil_div((count - full * tile) * item_bytes, burst_bytes)


@njit(cache=True, error_model="numpy")
def _table_items(task, speeds, items, most, table):
    """For a TLE with ``items`` items: row tile_m of ``table``, up to ``most``."""
    base, extra = items // task.tlts, items % task.tlts
    size, burst = task.element_bytes, speeds.burst_bytes
    w_bytes = task.item_filters * task.channels * task.kernel * size
    in_bytes, out_bytes = task.channels * size, task.item_filters * size
    for tile in range(1, most + 1):
        table[tile, :] = 0
        table[tile, _STEPS] = ceil_div(base + (extra > 0), tile)
        for longer in range(2):
            run, tlts = base + longer, extra if longer else task.tlts - extra
            if run == 0 or tlts == 0:
                continue
            table[tile, _MOVES] += tlts * ceil_div(run, tile)
            table[tile, _W_BURSTS] += tlts * _tiled_bursts(run, tile, w_bytes, burst)
            table[tile, _FLAT_IN] += tlts * _tiled_bursts(run, tile, in_bytes, burst)
            table[tile, _FLAT_OUT] += tlts * _tiled_bursts(run, tile, out_bytes, burst)


@njit(cache=True, error_model="numpy")
def _table_channels(task, speeds, table):
    size, burst = task.element_bytes, speeds.burst_bytes
    for tile in range(1, task.channels + 1):
        table[tile, _PARTS] = ceil_div(task.channels, tile)
        table[tile, _PART_W_BURSTS] = _tiled_bursts(task.channels, tile, task.kernel * size, burst)
        table[tile, _PART_FLAT] = _tiled_bursts(task.channels, tile, size, burst)
        table[tile, _PART_DENSE] = _tiled_bursts(task.channels, tile, 1, speeds.macs_per_cycle)


@njit(cache=True, error_model="numpy")
def _least(table):
    """Row t of the result: the least of rows 1 to t, column by column."""
    least = table.copy()
    for tile in range(2, table.shape[0]):
        for column in range(table.shape[1]):
            least[tile, column] = min(table[tile, column], least[tile - 1, column])
    return least


@njit(cache=True, error_model="numpy")
def _undominated(table, skipped):
    """The rows from 1 on that no smaller row equals or betters in all columns but ``skipped``."""
    kept = np.empty(table.shape[0], np.int64)
    count = 0
    for tile in range(1, table.shape[0]):
        is_dominated = False
        for index in range(count - 1, -1, -1):
            is_better = True
            for column in range(table.shape[1]):
                if column != skipped and table[kept[index], column] > table[tile, column]:
                    is_better = False
                    break
            if is_better:
                is_dominated = True
                break
        if not is_dominated:
            kept[count] = tile
            count += 1
    return kept[:count]


@njit(cache=True, error_model="numpy")
def _units_sum(task, speeds, items, item, part, place):
    """MAC time of a TLE from the totals: `_mac_sum` but for rounding."""
    longest = ceil_div(items, task.tlts)
    filters = longest * task.item_filters
    if task.dense:
        units = filters * part[_PART_DENSE] * place[_PLACES]
    else:
        units = filters * task.channels * place[_WINDOWS]
    steps = item[_STEPS] * part[_PARTS] * place[_PLACES]
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
    """(load transfers, bursts, bytes, store transfers, bursts, bytes) of a TLE but for biases.
    ``item`` and ``part`` are rows of the tables, or of their least values."""
    size = task.element_bytes
    item_channels = task.channels * items
    w_bytes = item_channels * task.item_filters * task.kernel * size
    if task.grouped:
        transfers = item[_MOVES] * place[_IN_PLACES]
        bursts = item_channels * place[_IN_BURSTS]
        if flat_in:
            bursts = item[_FLAT_IN] * place[_IN_PLACES]
        volume = item_channels * size * place[_IN_AREA]
    else:
        transfers = item[_STEPS] * part[_PARTS] * place[_IN_PLACES]
        bursts = item[_STEPS] * task.channels * place[_IN_BURSTS]
        if flat_in:
            bursts = item[_STEPS] * part[_PART_FLAT] * place[_IN_PLACES]
        volume = item[_STEPS] * task.channels * size * place[_IN_AREA]
    if schedule == WS:
        transfers += item[_MOVES]
        bursts += item[_W_BURSTS]
        volume += w_bytes
    else:  # always with fewer than all channels: see `search`
        transfers += item[_MOVES] * part[_PARTS] * place[_PLACES]
        bursts += items * part[_PART_W_BURSTS] * place[_PLACES]
        volume += w_bytes * place[_PLACES]
    filters = items * task.item_filters
    out_transfers = item[_MOVES] * place[_PLACES]
    out_bursts = item[_FLAT_OUT] if flat_out else filters * place[_OUT_BURSTS]
    out_volume = filters * size * place[_OUT_AREA]
    if task.residual:
        transfers += out_transfers
        bursts += out_bursts
        volume += out_volume
    return transfers, bursts, volume, out_transfers, out_bursts, out_volume


@njit(cache=True, error_model="numpy")
def _engine(speeds, transfers, bursts, volume):
    own = transfers * speeds.transfer + bursts * speeds.burst
    return own + volume / speeds.bytes_per_cycle


@njit(cache=True, error_model="numpy")
def _bias_traffic(task, speeds, items):
    base, extra = items // task.tlts, items % task.tlts
    size = task.item_filters * BIAS_BYTES
    bursts = extra * ceil_div((base + 1) * size, speeds.burst_bytes)
    bursts += (task.tlts - extra) * ceil_div(base * size, speeds.burst_bytes)
    return min(items, task.tlts), bursts, items * size


@njit(cache=True, error_model="numpy")
def _time(
    task, speeds, schedule, item_kinds, items, item_tles, item_table, tile_m, part, tile_n, slices,
    places, rows, row_kinds, row_tles, columns, column_kinds, bias, flat_in, flat_out, best,
):  # fmt: skip
    """(cycles of the layer, whether they are those of `cost.predict` to the bit). They are not
    when the sum from totals already shows that the tile is no better than ``best``, or for a
    bound (``tile_n`` 0)."""
    is_exact = False
    while True:
        slowest = 0.0
        bursts, volume = 0, 0
        for i in range(item_kinds):
            item = item_table[i, tile_m]
            for d in range(slices):
                load, load_bursts, load_bytes, store, store_bursts, store_bytes = _tle_traffic(
                    task, speeds, schedule, items[i], item, part, places[d], flat_in, flat_out
                )
                load += bias[i, 0]
                load_bursts += bias[i, 1]
                load_bytes += bias[i, 2]
                if is_exact:
                    macs = _mac_sum(
                        task, speeds, items[i], tile_m, tile_n, rows[d], row_kinds[d], columns,
                        column_kinds,
                    )  # fmt: skip
                else:
                    macs = _units_sum(task, speeds, items[i], item, part, places[d])
                own = _engine(speeds, load, load_bursts, load_bytes)
                own = own + _engine(speeds, store, store_bursts, store_bytes)
                slowest = max(slowest, own + macs)
                tles = item_tles[i] * row_tles[d] * task.repeats
                bursts += tles * (load_bursts + store_bursts)
                volume += tles * (load_bytes + store_bytes)
        shared = bursts * speeds.dram_burst + volume / speeds.dram_bytes_per_cycle
        time = max(slowest * task.repeats, shared)
        if is_exact or tile_n == 0 or time * (1.0 - SLACK) >= best:
            return time, is_exact
        is_exact = True


@njit(cache=True, error_model="numpy")
def search(task, room, speeds, best):
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
    # Rows and items of the TLEs; the last slice of each may be shorter.
    slice_rows = ceil_div(task.rows, task.row_slices)
    slice_items = ceil_div(task.items, task.item_slices)
    items = np.zeros(2, np.int64)
    item_tles = np.zeros(2, np.int64)
    items[0], items[1] = slice_items, task.items % slice_items
    item_tles[0], item_tles[1] = task.items // slice_items, items[1] > 0
    item_kinds = 2 if items[1] else 1

    chosen = np.zeros(5, np.int64)
    counts = np.zeros(4, np.int64)  # plans, cells, cut, evaluated
    least_bound = np.inf
    longest = ceil_div(slice_items, task.tlts)
    if longest * task.item_filters * BIAS_BYTES > room.bias:
        return best, least_bound, chosen, counts
    most_m = min(longest, room.tile_m // task.item_filters)
    most_n = min(task.channels, room.tile_n)
    tap_bytes = task.kernel * size
    ws_m = min(most_m, room.mb1 // (task.item_filters * task.channels * tap_bytes))
    os_items = room.mb1 // tap_bytes  # filters x channels of a W tile
    if task.grouped and (most_n < task.channels or ws_m == 0):
        return best, least_bound, chosen, counts

    item_table = np.zeros((2, longest + 1, 5), np.int64)
    least_item = np.zeros((2, longest + 1, 5), np.int64)
    for i in range(item_kinds):
        _table_items(task, speeds, items[i], longest, item_table[i])
        least_item[i] = _least(item_table[i])
    both = np.concatenate((item_table[0], item_table[1]), axis=1)
    ws_tiles = _undominated(both, -1)
    # Without _W_BURSTS: columns 2 and 7 of `both` count nothing for OS.
    both[:, _W_BURSTS] = 0
    both[:, 5 + _W_BURSTS] = 0
    os_tiles = _undominated(both, -1)
    part_table = np.ones((task.channels + 1, 4), np.int64)
    _table_channels(task, speeds, part_table)
    least_part = _least(part_table)
    parts = _undominated(part_table, -1)
    plans_until = np.zeros(task.channels + 1, np.int64)
    for n in range(1, task.channels + 1):
        plans_until[n] = plans_until[n - 1] + os_items // n

    # The column tiles of every tile_c, one behind another.
    most_c = min(task.columns, room.tile_c)
    offsets = np.zeros(most_c + 2, np.int64)
    for tile_c in range(1, most_c + 1):
        offsets[tile_c + 1] = offsets[tile_c] + ceil_div(task.columns, tile_c)
    all_columns = np.zeros((offsets[most_c + 1], 3), np.int64)
    column_kinds = np.zeros(most_c + 1, np.int64)
    for tile_c in range(1, most_c + 1):
        column_kinds[tile_c] = _axis_kinds(
            0, task.columns, tile_c, task.stride_columns, task.span_columns,
            task.padding_columns, task.in_columns, all_columns[offsets[tile_c] :],
        )  # fmt: skip

    used_slices = ceil_div(task.rows, slice_rows)
    rows = np.zeros((used_slices, slice_rows, 3), np.int64)
    row_kinds = np.zeros(used_slices, np.int64)
    row_tles = np.zeros(used_slices, np.int64)
    places = np.zeros((used_slices, 7), np.int64)
    bias = np.zeros((2, 3), np.int64)
    for i in range(item_kinds):
        bias[i, 0], bias[i, 1], bias[i, 2] = _bias_traffic(task, speeds, items[i])

    for tile_r in range(1, min(slice_rows, room.tile_r) + 1):
        in_rows = (tile_r - 1) * task.stride_rows + task.span_rows
        in_channels = task.channels if task.grouped else 1
        if in_channels * in_rows * task.span_columns * size > room.mb0:
            break
        if task.item_filters * tile_r * size > room.mb2:
            break
        slices = 0
        for index in range(used_slices):
            begin = index * slice_rows
            count = _axis_kinds(
                begin, min(slice_rows, task.rows - begin), tile_r, task.stride_rows,
                task.span_rows, task.padding_rows, task.in_rows, rows[slices],
            )  # fmt: skip
            known = 0
            while known < slices and not (
                row_kinds[known] == count and _same_kinds(rows[known], rows[slices], count)
            ):
                known += 1
            if known == slices:
                row_kinds[slices], row_tles[slices] = count, 0
                slices += 1
            row_tles[known] += 1
        for tile_c in range(1, most_c + 1):
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
            columns = all_columns[offsets[tile_c] :]
            for d in range(slices):
                _table_place(
                    task, speeds, rows[d], row_kinds[d], columns, column_kinds[tile_c], places[d]
                )
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
                    task, speeds, schedule, item_kinds, items, item_tles, least_item, top_m,
                    least_part[top_n], 0, slices, places, rows, row_kinds, row_tles, columns,
                    column_kinds[tile_c], bias, flat_in, flat_out, np.inf,
                )  # fmt: skip
                bound *= 1.0 - SLACK
                if bound >= best:
                    counts[2] += 1
                    least_bound = min(least_bound, bound)
                    continue
                tiles = ws_tiles if schedule == WS else os_tiles
                for index_n in range(parts.size - 1, -1, -1):
                    n = parts[index_n]
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
                            task, speeds, schedule, item_kinds, items, item_tles, item_table, m,
                            part_table[n], n, slices, places, rows, row_kinds, row_tles, columns,
                            column_kinds[tile_c], bias, flat_in, flat_out, best,
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
