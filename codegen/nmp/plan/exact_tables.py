"""How filters and channels fall into tiles, in numba: the tables of the search of `exact`.

  items    (filter slices, TLT parts, TLEs that share W), tile_m: turns, transfers, bursts
  channels (filter slices that share IN), tile_n: steps, loads, channels, bursts

Laid out as those of `exact_axes`, and compiled for themselves like these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

# Columns of the tables of items.
TURNS, MOVES, W_LOADS, W_BURSTS, W_FILTERS, OUT_MERGED, IN_MERGED = range(7)
ITEM_WIDTH = 7

# Columns of the tables of channels.
PARTS, LOADS, LOADED, MERGED, DENSE = range(5)
CHANNEL_WIDTH = 5


class Items(NamedTuple):
    """``begin`` is by cut, kind of filter slice (0: full, 1: the last, if shorter) and position
    among the TLEs that share W; ``count`` and ``slices`` (so many are of the kind) by cut and
    kind; ``longest`` run of a TLT and ``used`` by cut; ``bias`` is (transfers, bursts, bytes) for
    one spatial part of a TLE by cut and kind. ``lowest`` has the least of the rows up to each;
    ``kept`` are, from ``kept_begin[cut]`` to ``kept_begin[cut + 1]``, the tile_m that no smaller
    one equals or betters in all columns."""

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
    """``begin`` is by cut and position among the TLEs that share IN; ``lowest`` and ``kept`` are
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


@entry
def item_tables(task, cuts):
    """`Items` for all ``cuts`` (filter slices, TLT parts, TLEs that share W)."""
    number = cuts.shape[0]
    most_sharing = 1
    table_rows, kept_rows = 0, 0
    for cut in range(number):
        longest = ceil_div(ceil_div(task.items, cuts[cut, 0]), cuts[cut, 1])
        most_sharing = max(most_sharing, cuts[cut, 2])
        table_rows += 2 * cuts[cut, 2] * (1 + longest)
        kept_rows += longest
    table = np.zeros((table_rows, ITEM_WIDTH))
    begin = np.zeros((number, 2, most_sharing), np.int64)
    count = np.zeros((number, 2), np.int64)
    slices = np.zeros((number, 2), np.int64)
    longest = np.zeros(number, np.int64)
    used = np.zeros(number, np.int64)
    bias = np.zeros((number, 2, 3))
    kept = np.zeros(kept_rows, np.int64)
    kept_begin = np.zeros(number + 1, np.int64)
    end, kept_end = 0, 0
    for cut in range(number):
        kept_begin[cut] = kept_end
        parts, sharing = cuts[cut, 1], cuts[cut, 2]
        size = ceil_div(task.items, cuts[cut, 0])
        used[cut] = ceil_div(task.items, size) == cuts[cut, 0]
        if not used[cut]:
            continue
        longest[cut] = ceil_div(size, parts)
        count[cut, 0], count[cut, 1] = size, task.items % size
        slices[cut, 0], slices[cut, 1] = task.items // size, count[cut, 1] > 0
        begins = np.zeros(2 * sharing, np.int64)
        known = 0
        for kind in range(2):
            here = count[cut, kind]
            if here == 0:
                continue
            base, extra = here // parts, here % parts
            bytes_each = task.item_filters * BIAS_BYTES
            bias[cut, kind, 0] = min(here, parts)
            bias[cut, kind, 1] = extra * ceil_div((base + 1) * bytes_each, task.burst_bytes)
            bias[cut, kind, 1] += (parts - extra) * ceil_div(base * bytes_each, task.burst_bytes)
            bias[cut, kind, 2] = here * bytes_each
            for position in range(sharing):
                begin[cut, kind, position] = end
                begins[known] = end
                known += 1
                for tile in range(1, longest[cut] + 1):
                    row = table[end + tile]
                    row[TURNS] = ceil_div(base + (extra > 0), tile)
                    for longer in range(2):
                        run, first = (base + 1, 0) if longer else (base, extra)
                        runs_here = extra if longer else parts - extra
                        full = run // tile
                        _add_items(task, tile, runs_here, first, sharing, position, tile, full, row)
                        rest = run - full * tile
                        _add_items(task, tile, runs_here, first, sharing, position, rest, 1, row)
                end += longest[cut] + 1
        kept_end += _undominated(table, begins[:known], longest[cut], kept[kept_end:])
    kept_begin[number] = kept_end
    lowest = table.copy()
    for cut in range(number):
        for kind in range(2):
            if used[cut] and count[cut, kind]:
                for position in range(cuts[cut, 2]):
                    _lowest(lowest, begin[cut, kind, position], longest[cut])
    return Items(table, lowest, begin, count, slices, longest, used, bias, kept, kept_begin)


@entry
def channel_tables(task, cuts):
    """`Channels` for all ``cuts`` (TLEs that share IN)."""
    number, most = cuts.shape[0], 1
    table_rows = 0
    for cut in range(number):
        most = max(most, cuts[cut])
        table_rows += cuts[cut] * (task.channels + 1)
    table = np.zeros((table_rows, CHANNEL_WIDTH))
    begin = np.zeros((number, most), np.int64)
    kept = np.zeros(number * task.channels, np.int64)
    kept_begin = np.zeros(number + 1, np.int64)
    plane_bytes = task.in_rows * task.in_columns * task.element_bytes
    end, kept_end = 0, 0
    for cut in range(number):
        kept_begin[cut] = kept_end
        for position in range(cuts[cut]):
            begin[cut, position] = end
            for tile in range(1, task.channels + 1):
                row = table[end + tile]
                full, rest = task.channels // tile, task.channels % tile
                for is_rest in range(2):
                    extent, times = (rest, 1) if is_rest else (tile, full)
                    if extent == 0 or times == 0:
                        continue
                    row[PARTS] += times
                    row[DENSE] += times * ceil_div(extent, task.macs_per_cycle)
                    own = _own_run(tile, extent, cuts[cut], position)
                    if own:
                        row[LOADS] += times
                        row[LOADED] += times * own
                        row[MERGED] += times * ceil_div(own * plane_bytes, task.burst_bytes)
            end += task.channels + 1
        kept_end += _undominated(table, begin[cut, : cuts[cut]], task.channels, kept[kept_end:])
    kept_begin[number] = kept_end
    lowest = table.copy()
    for cut in range(number):
        for position in range(cuts[cut]):
            _lowest(lowest, begin[cut, position], task.channels)
    return Channels(table, lowest, begin, kept, kept_begin)
