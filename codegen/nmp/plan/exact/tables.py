"""How filters and channels fall into tiles, in numba: the tables of the search of `exact`.

  items    (filter slices, TLT parts, TLEs that share W), tile_m: turns, transfers, bursts
  channels (filter slices that share IN), tile_n: steps, loads, channels, bursts

Laid out as those of `axes`, and compiled for themselves like these.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tvm_npu.sim import compiled
from tvm_npu.sim.arithmetic import ceil_div as parts_for
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)

# Columns of the tables of items.
TURNS, MOVES, W_LOADS, W_BURSTS, W_FILTERS, OUT_MERGED, IN_MERGED = range(7)
ITEM_WIDTH = 7

# Columns of the tables of channels.
PARTS, LOADS, LOADED, MERGED, DENSE = range(5)
CHANNEL_WIDTH = 5


READ_BY_ITEMS = (
    "items", "item_filters", "channels", "rows", "columns", "in_rows", "in_columns", "kernel",
    "element_bytes", "burst_bytes",
)  # fmt: skip
READ_BY_CHANNELS = (
    "channels", "in_rows", "in_columns", "element_bytes", "burst_bytes", "macs_per_cycle"
)  # fmt: skip
"""Of a task."""


class Items(NamedTuple):
    """``begin`` is by spread, kind of filter slice (0: full, 1: the last, if shorter) and position
    among the TLEs that share W; ``count`` and ``slices`` (so many are of the kind) by spread and
    kind; ``longest`` run of a TLT and ``used`` by spread; ``bias`` is (transfers, bursts, bytes)
    for one spatial part of a TLE by spread and kind. ``lowest`` has the least of the rows up to
    each; ``kept`` are, from ``kept_begin[spread]`` to ``kept_begin[spread + 1]``, the tile_m that
    no smaller one equals or betters in all columns."""

    table: Any
    lowest: Any
    begin: Any
    count: Any
    slices: Any
    longest: Any
    used: Any
    bias: Any
    kept: Any
    kept_begin: Any


class Channels(NamedTuple):
    """``begin`` is by spread and position among the TLEs that share IN; ``lowest`` and ``kept`` are
    as in `Items`."""

    table: Any
    lowest: Any
    begin: Any
    kept: Any
    kept_begin: Any


@device
def _own_run(tile, extent, sharing, index):
    """Of ``extent`` filters or channels of a shared tile what run ``index`` of ceil(tile /
    sharing) has; ``tile`` is that of the plan, ``extent`` may be a ragged rest."""
    run = ceil_div(tile, sharing)
    return max(0, min(run, extent - index * run))


@device
def _add_items(task, tile_m, runs_here, first_run, sharing, position, tile, times, row):
    """``times`` turns in which ``runs_here`` filter parts from ``first_run`` on have ``tile``
    items, into a row of the table."""
    if tile == 0 or times == 0 or runs_here == 0:
        return
    size, burst = task.element_bytes, task.burst_bytes
    filters = tile * task.item_filters
    row[MOVES] += times * runs_here
    plane = task.rows * task.columns
    row[OUT_MERGED] += times * runs_here * ceil_div(filters * plane * size, burst)
    plane = task.in_rows * task.in_columns
    row[IN_MERGED] += times * runs_here * ceil_div(tile * task.channels * plane * size, burst)
    w_bytes = task.channels * task.kernel * size
    for index in range(min(sharing, runs_here)):
        # Parts first_run + index, first_run + index + sharing, ... load the same share.
        number = times * ceil_div(runs_here - index, sharing)
        own = filters
        if sharing > 1:
            own = _own_run(tile_m, filters, sharing, (position + first_run + index) % sharing)
        if own:
            row[W_LOADS] += number
            row[W_FILTERS] += number * own
            row[W_BURSTS] += number * ceil_div(own * w_bytes, burst)


@device
def _lowest(table, begin, most):
    """Row t from ``begin`` on of the result: the least of rows 1 to t, column by column."""
    for tile in range(2, most + 1):
        for column in range(table.shape[1]):
            table[begin + tile, column] = min(
                table[begin + tile, column], table[begin + tile - 1, column]
            )


@device
def _undominated(table, begins, most, kept):
    """The tiles from 1 to ``most`` that no smaller one equals or betters in any column of the
    tables that start at ``begins``, into ``kept``: how many."""
    count = 0
    for tile in range(1, most + 1):
        is_dominated = False
        for index in range(count - 1, -1, -1):
            if table[begins[0] + kept[index], 0] > table[begins[0] + tile, 0]:
                break  # neither this one nor the smaller ones, which make more turns
            is_dominated = True
            for begin in begins:
                for column in range(table.shape[1]):
                    if table[begin + kept[index], column] > table[begin + tile, column]:
                        is_dominated = False
                        break
                if not is_dominated:
                    break
            if is_dominated:
                break
        if not is_dominated:
            kept[count] = tile
            count += 1
    return count


def item_tables(task: Any, spreads: Any) -> Items:
    """`Items` for all ``spreads`` (filter slices, TLT parts, TLEs that share W)."""
    number = len(spreads)
    run = parts_for(parts_for(task.items, spreads[:, 0]), spreads[:, 1])
    sharing = int(spreads[:, 2].max(initial=1))
    rows = int((_blocks(task.items, spreads) * (1 + run)).sum())
    table, lowest = np.zeros((2, rows, ITEM_WIDTH))
    made = Items(
        table, lowest, np.zeros((number, 2, sharing), np.int64), np.zeros((number, 2), np.int64),
        np.zeros((number, 2), np.int64), np.zeros(number, np.int64), np.zeros(number, np.int64),
        np.zeros((number, 2, 3)), np.zeros(int(run.sum()), np.int64),
        np.zeros(number + 1, np.int64),
    )  # fmt: skip
    _fill_items(task, spreads, made, np.zeros(2 * sharing, np.int64))
    return made


def _blocks(items: int, spreads: Any) -> Any:
    """Of each spread the blocks of its table: one for every kind of filter slice and position, or
    for all positions where these are alike."""
    size = parts_for(items, spreads[:, 0])
    found = np.zeros(len(spreads), np.int64)
    for here in (size, items % size):
        alike = _are_alike(here % spreads[:, 1], spreads[:, 1], spreads[:, 2])
        found += (here > 0) * np.where(alike, 1, spreads[:, 2])
    return found


def _are_alike(extra: Any, parts: Any, sharing: Any) -> Any:
    """Whether all positions among ``sharing`` TLEs load as much: all shares of a tile are loaded by
    as many of the ``extra`` longer filter parts, and of the others."""
    return (extra % sharing == 0) & ((parts - extra) % sharing == 0)


_positions_alike = device(_are_alike)


@entry
def _fill_items(task, spreads, made, begins):
    """`item_tables`; ``begins`` are for numbers on the way."""
    table, lowest, begin, count, slices, longest, used, bias, kept, kept_begin = made
    number = spreads.shape[0]
    end, kept_end = 0, 0
    for spread in range(number):
        kept_begin[spread] = kept_end
        parts, sharing = spreads[spread, 1], spreads[spread, 2]
        size = ceil_div(task.items, spreads[spread, 0])
        used[spread] = ceil_div(task.items, size) == spreads[spread, 0]
        if not used[spread]:
            continue
        longest[spread] = ceil_div(size, parts)
        count[spread, 0], count[spread, 1] = size, task.items % size
        slices[spread, 0], slices[spread, 1] = task.items // size, count[spread, 1] > 0
        known = 0
        for kind in range(2):
            here = count[spread, kind]
            if here == 0:
                continue
            base, extra = here // parts, here % parts
            bytes_each = task.item_filters * BIAS_BYTES
            bias[spread, kind, 0] = min(here, parts)
            bias[spread, kind, 1] = extra * ceil_div((base + 1) * bytes_each, task.burst_bytes)
            bias[spread, kind, 1] += (parts - extra) * ceil_div(base * bytes_each, task.burst_bytes)
            bias[spread, kind, 2] = here * bytes_each
            is_alike = _positions_alike(extra, parts, sharing)
            for position in range(sharing):
                if position and is_alike:
                    begin[spread, kind, position] = begin[spread, kind, 0]
                    continue
                begin[spread, kind, position] = end
                begins[known] = end
                known += 1
                for tile in range(1, longest[spread] + 1):
                    row = table[end + tile]
                    row[TURNS] = ceil_div(base + (extra > 0), tile)
                    for longer in range(2):
                        run, first = (base + 1, 0) if longer else (base, extra)
                        runs_here = extra if longer else parts - extra
                        full = run // tile
                        _add_items(task, tile, runs_here, first, sharing, position, tile, full, row)
                        rest = run - full * tile
                        _add_items(task, tile, runs_here, first, sharing, position, rest, 1, row)
                end += longest[spread] + 1
        kept_end += _undominated(table, begins[:known], longest[spread], kept[kept_end:])
    kept_begin[number] = kept_end
    for row in range(end):
        for column in range(ITEM_WIDTH):
            lowest[row, column] = table[row, column]
    for spread in range(number):
        for kind in range(2):
            if used[spread] and count[spread, kind]:
                for position in range(spreads[spread, 2]):
                    if position == 0 or begin[spread, kind, position] != begin[spread, kind, 0]:
                        _lowest(lowest, begin[spread, kind, position], longest[spread])


def channel_tables(task: Any, spreads: Any) -> Channels:
    """`Channels` for all ``spreads`` (TLEs that share IN)."""
    number, most = len(spreads), int(spreads.max(initial=1))
    rows = int(spreads.sum()) * (task.channels + 1)
    table, lowest = np.zeros((2, rows, CHANNEL_WIDTH))
    made = Channels(
        table, lowest, np.zeros((number, most), np.int64),
        np.zeros(number * task.channels, np.int64), np.zeros(number + 1, np.int64),
    )  # fmt: skip
    _fill_channels(task, spreads, made)
    return made


@entry
def _fill_channels(task, spreads, made):
    """`channel_tables`."""
    table, lowest, begin, kept, kept_begin = made
    number = spreads.shape[0]
    plane_bytes = task.in_rows * task.in_columns * task.element_bytes
    end, kept_end = 0, 0
    for spread in range(number):
        kept_begin[spread] = kept_end
        for position in range(spreads[spread]):
            begin[spread, position] = end
            for tile in range(1, task.channels + 1):
                row = table[end + tile]
                full, rest = task.channels // tile, task.channels % tile
                for is_rest in range(2):
                    extent, times = (rest, 1) if is_rest else (tile, full)
                    if extent == 0 or times == 0:
                        continue
                    row[PARTS] += times
                    row[DENSE] += times * ceil_div(extent, task.macs_per_cycle)
                    own = _own_run(tile, extent, spreads[spread], position)
                    if own:
                        row[LOADS] += times
                        row[LOADED] += times * own
                        row[MERGED] += times * ceil_div(own * plane_bytes, task.burst_bytes)
            end += task.channels + 1
        begins = begin[spread, : spreads[spread]]
        kept_end += _undominated(table, begins, task.channels, kept[kept_end:])
    kept_begin[number] = kept_end
    for row in range(end):
        for column in range(CHANNEL_WIDTH):
            lowest[row, column] = table[row, column]
    for spread in range(number):
        for position in range(spreads[spread]):
            _lowest(lowest, begin[spread, position], task.channels)
