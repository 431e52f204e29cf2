"""The tables of the search of `exact`, in numba: everything about a layer that depends on one
extent of the tile and on how one axis is cut.

  rows     (row slices, TLT parts), tile_r: the tiles of every slice, counted
  columns  (column slices, TLT parts), tile_c: likewise
  items    (filter slices, TLT parts, TLEs that share W), tile_m: steps, transfers, bursts
  channels (filter slices that share IN), tile_n: steps, loads, channels, bursts

Counts are whole numbers in float64, exact below 2**53. A table holds the rows of all its cuts one
after another: row ``begin[cut, slice] + tile`` is that of a tile extent, row 0 of a cut is unused.
A class is the run of tile extents of one cut that make equally many steps; the tables of classes
hold the least of every column over the class, slice by slice.

Compiled for itself, as numba's cache looks at one file: `exact_kernel` gets the arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

BIAS_BYTES = 4

# Columns of the tables of rows and of columns. A line is what of a tile is contiguous in DRAM: all
# rows of a tile that is as wide as the map, else one row. Where maps are linear, wide tiles move
# as 1-D transfers, and those of whole planes as one run.
STEPS = 0  # of the longest part
IN_TILES = 1  # tiles with anything of the IFM
IN_EXTENT = 2  # sum of their IFM extents
IN_LINES = 3  # rows: bursts of wide tiles; columns: bursts of a row of the narrower ones
IN_SINGLE = 4  # rows: bursts of wide tiles that lack rows; columns: wide tiles that are boxes
IN_WHOLE = 5  # rows: tiles of all rows; columns: wide tiles that are linear
OUT_TILES, OUT_EXTENT, OUT_LINES, OUT_SINGLE, OUT_WHOLE = range(6, 11)  # likewise
AXIS_WIDTH = 11
FIRST = 11  # kinds of turns only: the OFM extent of the first part

# Columns of the tables of items.
TURNS, MOVES, W_LOADS, W_BURSTS, W_FILTERS, OUT_MERGED, IN_MERGED = range(7)
ITEM_WIDTH = 7

# Columns of the tables of channels.
PARTS, LOADS, LOADED, MERGED, DENSE = range(5)
CHANNEL_WIDTH = 5


class Task(NamedTuple):
    """A layer (one group of it in multicast mode, ``repeats`` times).

    ``items`` are filters (multicast) or groups of ``item_filters`` filters (grouped);
    ``channels`` are those of one group; spans are of the dilated window; ``linear_in`` and
    ``linear_out`` say whether full-width tiles are 1-D transfers."""

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
    linear_in: int
    linear_out: int
    element_bytes: int
    residual: int
    dense: int
    burst_bytes: int
    macs_per_cycle: int


class Axis(NamedTuple):
    """Rows or columns. ``begin`` and ``class_begin`` are by cut and slice; ``longest`` part of the
    longest slice, ``classes`` and ``used`` (no slice is empty) by cut; ``class_first`` and
    ``class_last`` extents of a class by row of ``least``.

    ``kinds`` are turns that are alike in all parts, in the order in which they first appear:
    ``kind_count[row]`` of them from ``kind_begin[row]`` on for a row of the table; their columns
    are those of the table, one turn's, but for STEPS, how many such turns, and FIRST."""

    table: Any
    begin: Any
    longest: Any
    used: Any
    least: Any
    class_begin: Any
    classes: Any
    class_first: Any
    class_last: Any
    kinds: Any
    kind_begin: Any
    kind_count: Any


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


@njit(cache=True, error_model="numpy")
def ceil_div(total, part):
    return (total + part - 1) // part


@njit(cache=True, error_model="numpy")
def _add_tile(task, is_rows, start, extent, row):
    """One tile of ``extent`` OFM positions from ``start`` on, into a row of the table; how many
    positions of the IFM it has."""
    size, burst = task.element_bytes, task.burst_bytes
    if is_rows:
        low = start * task.stride_rows - task.padding_rows
        high = low + (extent - 1) * task.stride_rows + task.span_rows
        whole, out_whole = task.in_rows, task.rows
    else:
        low = start * task.stride_columns - task.padding_columns
        high = low + (extent - 1) * task.stride_columns + task.span_columns
        whole, out_whole = task.in_columns, task.columns
    real = max(0, min(high, whole) - max(low, 0))
    is_linear = task.linear_in and real == whole
    out_is_linear = task.linear_out and extent == out_whole
    if real:
        row[IN_TILES] += 1
        row[IN_EXTENT] += real
        row[IN_WHOLE] += is_linear
        if is_rows:
            bursts = ceil_div(real * task.in_columns * size, burst)
            row[IN_LINES] += bursts
            if not is_linear:
                row[IN_SINGLE] += bursts
        elif real == whole:
            row[IN_SINGLE] += not is_linear
        else:
            row[IN_LINES] += ceil_div(real * size, burst)
    row[OUT_TILES] += 1
    row[OUT_EXTENT] += extent
    row[OUT_WHOLE] += out_is_linear
    if is_rows:
        bursts = ceil_div(extent * task.columns * size, burst)
        row[OUT_LINES] += bursts
        if not out_is_linear:
            row[OUT_SINGLE] += bursts
    elif extent == out_whole:
        row[OUT_SINGLE] += not out_is_linear
    else:
        row[OUT_LINES] += ceil_div(extent * size, burst)
    return real


@njit(cache=True, error_model="numpy")
def _add_turns(task, is_rows, first, count, parts, tile, row, kinds, seen):
    """All turns of ``parts`` parts of ``count`` positions from ``first`` on: their sum into a row
    of the table and, unless ``kinds`` is empty, their kinds; how many. ``seen`` is for the
    extents of the parts of every kind, and those of one more."""
    base, extra = count // parts, count % parts
    turns = ceil_div(base + (extra > 0), tile)
    found = 0
    one = np.zeros(AXIS_WIDTH + 1)
    for turn in range(turns):
        one[:] = 0
        at = first
        for part in range(parts):
            run = base + (part < extra)
            extent = min(tile, run - turn * tile)
            real = 0
            if extent > 0:
                real = _add_tile(task, is_rows, at + turn * tile, extent, one)
            if part == 0:
                one[FIRST] = extent
            if kinds.shape[0]:
                seen[found, 2 * part], seen[found, 2 * part + 1] = extent, real
            at += run
        for column in range(1, AXIS_WIDTH):
            row[column] += one[column]
        if kinds.shape[0]:
            known = 0
            while known < found:
                is_same = True
                for index in range(2 * parts):
                    if max(0, seen[known, index]) != max(0, seen[found, index]):
                        is_same = False
                        break
                if is_same:
                    break
                known += 1
            if known == found:
                kinds[found] = one
                found += 1
            kinds[known, STEPS] += 1
    row[STEPS] = turns
    return found


@njit(cache=True, error_model="numpy")
def axis_tables(task, is_rows, cuts, wants_kinds):
    """`Axis` of the rows or columns for all ``cuts`` (slices over TLEs, parts over TLTs)."""
    total = task.rows if is_rows else task.columns
    most_slices, most_parts = 1, 1
    table_rows, kind_rows = 0, 0
    for cut in range(cuts.shape[0]):
        most_slices, most_parts = max(most_slices, cuts[cut, 0]), max(most_parts, cuts[cut, 1])
        part = ceil_div(ceil_div(total, cuts[cut, 0]), cuts[cut, 1])
        table_rows += cuts[cut, 0] * (1 + part)
        for tile in range(1, part + 1):
            kind_rows += cuts[cut, 0] * ceil_div(part, tile) * wants_kinds
    table = np.zeros((table_rows, AXIS_WIDTH))
    least = np.zeros((table_rows, AXIS_WIDTH))
    kinds = np.zeros((kind_rows, AXIS_WIDTH + 1))
    kind_begin = np.zeros(table_rows, np.int64)
    kind_count = np.zeros(table_rows, np.int64)
    seen = np.zeros((total + 1, 2 * most_parts), np.int64)
    begin = np.zeros((cuts.shape[0], most_slices), np.int64)
    class_begin = np.zeros((cuts.shape[0], most_slices), np.int64)
    longest = np.zeros(cuts.shape[0], np.int64)
    used = np.zeros(cuts.shape[0], np.int64)
    classes = np.zeros(cuts.shape[0], np.int64)
    class_first = np.zeros(table_rows, np.int64)
    class_last = np.zeros(table_rows, np.int64)
    end, kind_end = 0, 0
    for cut in range(cuts.shape[0]):
        slices, parts = cuts[cut, 0], cuts[cut, 1]
        size = ceil_div(total, slices)
        used[cut] = ceil_div(total, size) == slices
        if not used[cut]:
            continue
        longest[cut] = ceil_div(size, parts)
        for index in range(slices):
            begin[cut, index] = end
            first = index * size
            count = min(size, total - first)
            for tile in range(1, longest[cut] + 1):
                row = end + tile
                kind_begin[row] = kind_end
                kind_count[row] = _add_turns(
                    task, is_rows, first, count, parts, tile, table[row], kinds[kind_end:], seen
                )
                kind_end += kind_count[row]
            end += longest[cut] + 1
    end = 0
    for cut in range(cuts.shape[0]):
        if not used[cut]:
            continue
        for index in range(cuts[cut, 0]):
            class_begin[cut, index] = end
            tile, number = longest[cut], 0
            while tile:  # from large tiles, which make few steps, down
                steps = ceil_div(longest[cut], tile)
                first = ceil_div(longest[cut], steps)
                least[end] = table[begin[cut, index] + first]
                for other in range(first + 1, tile + 1):
                    for column in range(AXIS_WIDTH):
                        least[end, column] = min(
                            least[end, column], table[begin[cut, index] + other, column]
                        )
                class_first[end], class_last[end] = first, tile
                end += 1
                number += 1
                tile = first - 1
            classes[cut] = number
    return Axis(
        table, begin, longest, used, least, class_begin, classes, class_first, class_last, kinds,
        kind_begin, kind_count,
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _own_run(tile, extent, sharing, index):
    """Of ``extent`` filters or channels of a shared tile what run ``index`` of ceil(tile /
    sharing) has; ``tile`` is that of the plan, ``extent`` may be a ragged rest."""
    run = ceil_div(tile, sharing)
    return max(0, min(run, extent - index * run))


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
def _lowest(table, begin, most):
    """Row t from ``begin`` on of the result: the least of rows 1 to t, column by column."""
    for tile in range(2, most + 1):
        for column in range(table.shape[1]):
            table[begin + tile, column] = min(
                table[begin + tile, column], table[begin + tile - 1, column]
            )


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
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
