"""The tables of the search of `exact`, in numba: everything about a cut that depends on one
extent of the tile alone.

  items    tile_m: steps of a TLE, transfers of its TLTs, bursts of W (and of flat IN, OUT)
  channels tile_n: steps, bursts of a W tile that lacks channels (and of flat IN), dense MACs
  rows     tile_r: the distinct tiles of every row slice
  columns  tile_c: the distinct tiles of the columns

Compiled for itself, as numba's cache looks at one file: `exact_kernel` gets the arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

BIAS_BYTES = 4

# Columns of the tables of items and of channels.
STEPS, MOVES, W_BURSTS, FLAT_IN, FLAT_OUT = range(5)
PARTS, PART_W_BURSTS, PART_FLAT, PART_DENSE = range(4)


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
    linear_burst: float
    bytes_per_cycle: float
    dram_burst: float
    dram_bytes_per_cycle: float
    mac_efficiency: float
    mac_step: float
    burst_bytes: int
    macs_per_cycle: int


class Tables(NamedTuple):
    """Arrays of int64. A TLE has ``items[0]`` or, in the last filter slice, ``items[1]`` items;
    ``item_tles`` filter slices have so many. The tables of items have one row a tile_m for both
    (first axis), those of channels one a tile_n; row t of a ``least`` table holds the least of
    rows 1 to t. ``ws_tiles``, ``os_tiles`` (tile_m) and ``parts`` (tile_n) are the rows that no
    smaller row equals or betters. ``bias`` is (transfers, bursts, bytes) by kind of TLE.

    A kind of tile is (OFM extent, IFM extent, how many). Those of the columns lie in ``columns``
    from ``column_first[tile_c]`` on, ``column_kinds[tile_c]`` of them; those of the d-th distinct
    row slice in ``rows`` from ``row_first[tile_r, d]`` on, and ``row_tles`` row slices are so;
    0 ends the distinct ones."""

    items: Any
    item_tles: Any
    item: Any
    least_item: Any
    ws_tiles: Any
    os_tiles: Any
    part: Any
    least_part: Any
    parts: Any
    bias: Any
    rows: Any
    row_first: Any
    row_kinds: Any
    row_tles: Any
    columns: Any
    column_first: Any
    column_kinds: Any


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
        table[tile, STEPS] = ceil_div(base + (extra > 0), tile)
        for longer in range(2):
            run, tlts = base + longer, extra if longer else task.tlts - extra
            if run == 0 or tlts == 0:
                continue
            table[tile, MOVES] += tlts * ceil_div(run, tile)
            table[tile, W_BURSTS] += tlts * _tiled_bursts(run, tile, w_bytes, burst)
            table[tile, FLAT_IN] += tlts * _tiled_bursts(run, tile, in_bytes, burst)
            table[tile, FLAT_OUT] += tlts * _tiled_bursts(run, tile, out_bytes, burst)


@njit(cache=True, error_model="numpy")
def _table_channels(task, speeds, table):
    size, burst = task.element_bytes, speeds.burst_bytes
    for tile in range(1, task.channels + 1):
        table[tile, PARTS] = ceil_div(task.channels, tile)
        table[tile, PART_W_BURSTS] = _tiled_bursts(task.channels, tile, task.kernel * size, burst)
        table[tile, PART_FLAT] = _tiled_bursts(task.channels, tile, size, burst)
        table[tile, PART_DENSE] = _tiled_bursts(task.channels, tile, 1, speeds.macs_per_cycle)


@njit(cache=True, error_model="numpy")
def _least(table):
    """Row t of the result: the least of rows 1 to t, column by column."""
    least = table.copy()
    for tile in range(2, table.shape[0]):
        for column in range(table.shape[1]):
            least[tile, column] = min(table[tile, column], least[tile - 1, column])
    return least


@njit(cache=True, error_model="numpy")
def _undominated(table):
    """The rows from 1 on that no smaller row equals or betters in all columns."""
    kept = np.empty(table.shape[0], np.int64)
    count = 0
    for tile in range(1, table.shape[0]):
        is_dominated = False
        for index in range(count - 1, -1, -1):
            is_better = True
            for column in range(table.shape[1]):
                if table[kept[index], column] > table[tile, column]:
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
def _bias_traffic(task, speeds, items):
    base, extra = items // task.tlts, items % task.tlts
    size = task.item_filters * BIAS_BYTES
    bursts = extra * ceil_div((base + 1) * size, speeds.burst_bytes)
    bursts += (task.tlts - extra) * ceil_div(base * size, speeds.burst_bytes)
    return min(items, task.tlts), bursts, items * size


@njit(cache=True, error_model="numpy")
def _table_columns(task):
    first = np.zeros(task.columns + 2, np.int64)
    for tile in range(1, task.columns + 1):
        first[tile + 1] = first[tile] + ceil_div(task.columns, tile)
    columns = np.zeros((first[task.columns + 1], 3), np.int64)
    kinds = np.zeros(task.columns + 1, np.int64)
    for tile in range(1, task.columns + 1):
        kinds[tile] = _axis_kinds(
            0, task.columns, tile, task.stride_columns, task.span_columns,
            task.padding_columns, task.in_columns, columns[first[tile] :],
        )  # fmt: skip
    return columns, first, kinds


@njit(cache=True, error_model="numpy")
def _table_rows(task):
    slice_rows = ceil_div(task.rows, task.row_slices)
    slices = ceil_div(task.rows, slice_rows)
    size = 0
    for tile in range(1, slice_rows + 1):
        size += slices * ceil_div(slice_rows, tile)
    rows = np.zeros((size, 3), np.int64)
    first = np.zeros((slice_rows + 1, slices), np.int64)
    kinds = np.zeros((slice_rows + 1, slices), np.int64)
    tles = np.zeros((slice_rows + 1, slices), np.int64)
    end = 0
    for tile in range(1, slice_rows + 1):
        distinct = 0
        for index in range(slices):
            begin = index * slice_rows
            here = rows[end:]
            count = _axis_kinds(
                begin, min(slice_rows, task.rows - begin), tile, task.stride_rows,
                task.span_rows, task.padding_rows, task.in_rows, here,
            )  # fmt: skip
            known = 0
            while known < distinct and not (
                kinds[tile, known] == count and _same_kinds(rows[first[tile, known] :], here, count)
            ):
                known += 1
            if known == distinct:
                first[tile, known], kinds[tile, known] = end, count
                end += count
                distinct += 1
            tles[tile, known] += 1
    return rows, first, kinds, tles


@njit(cache=True, error_model="numpy")
def tables(task, speeds):
    """The tables of one cut and mode."""
    slice_items = ceil_div(task.items, task.item_slices)
    items = np.zeros(2, np.int64)
    item_tles = np.zeros(2, np.int64)
    items[0], items[1] = slice_items, task.items % slice_items
    item_tles[0], item_tles[1] = task.items // slice_items, items[1] > 0
    longest = ceil_div(slice_items, task.tlts)
    item = np.zeros((2, longest + 1, 5), np.int64)
    least_item = np.zeros((2, longest + 1, 5), np.int64)
    bias = np.zeros((2, 3), np.int64)
    for kind in range(2):
        if items[kind]:
            _table_items(task, speeds, items[kind], longest, item[kind])
            least_item[kind] = _least(item[kind])
            bias[kind, 0], bias[kind, 1], bias[kind, 2] = _bias_traffic(task, speeds, items[kind])
    both = np.concatenate((item[0], item[1]), axis=1)
    ws_tiles = _undominated(both)
    both[:, W_BURSTS] = 0  # OS never loads a W tile with all channels
    both[:, 5 + W_BURSTS] = 0
    os_tiles = _undominated(both)
    part = np.ones((task.channels + 1, 4), np.int64)
    _table_channels(task, speeds, part)
    rows, row_first, row_kinds, row_tles = _table_rows(task)
    columns, column_first, column_kinds = _table_columns(task)
    return Tables(
        items, item_tles, item, least_item, ws_tiles, os_tiles, part, _least(part),
        _undominated(part), bias, rows, row_first, row_kinds, row_tles, columns, column_first,
        column_kinds,
    )  # fmt: skip
