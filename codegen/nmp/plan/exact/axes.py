"""How the rows and the columns of a layer fall into tiles, in numba: the tables of the search of
`exact` for (slices over TLEs, parts over TLTs) and a tile extent.

Counts are whole numbers in float64, exact below 2**53. A table holds the rows of all its spreads
one after another: row ``begin[spread, slice] + tile`` is that of a tile extent, row 0 of a spread
is unused. A class is the run of tile extents of one spread that make equally many turns. A region
is a class, or two regions together; the tables of regions hold the least of every column over the
region, slice by slice. `search` gets the arrays.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tvm_npu.sim import compiled
from tvm_npu.sim.arithmetic import ceil_div as parts_for
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)

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

MOST_LEVELS = 8
"""With n classes there are at most 2 n + log2(n) regions. A part of p positions has n <= p
classes, and at most 2 sqrt(p) + 1: 2 p + 8 rows are enough."""


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


READ = (
    "rows", "columns", "in_rows", "in_columns", "stride_rows", "stride_columns", "span_rows",
    "span_columns", "padding_rows", "padding_columns", "linear_in", "linear_out", "element_bytes",
    "burst_bytes",
)  # fmt: skip
"""What `axis_tables` reads of a task."""


class Axis(NamedTuple):
    """Rows or columns. ``begin`` and ``region_begin`` are by spread and slice; ``longest`` part of
    the longest slice, ``classes``, ``whole`` (the region of all classes) and ``used`` (no slice is
    empty) by spread. A spread's regions are numbered, the classes first, from large tiles down:
    region r is row ``region_begin`` + r of ``least``, of the ``smallest`` and ``largest`` tile
    extent, and of the ``halves`` (regions; the second is -1 where there is one).

    ``kinds`` are turns that are alike in all parts, in the order in which they first appear:
    ``kind_count[row]`` of them from ``kind_begin[row]`` on for a row of the table; their columns
    are those of the table, one turn's, but for STEPS, how many such turns, and FIRST."""

    table: Any
    begin: Any
    longest: Any
    used: Any
    least: Any
    region_begin: Any
    classes: Any
    whole: Any
    smallest: Any
    largest: Any
    halves: Any
    kinds: Any
    kind_begin: Any
    kind_count: Any


@device
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


@device
def _copy_row(source, target):
    """Column by column: an assignment of arrays brings numba's check of their shapes and the
    making of its message along, a second of compilation."""
    for column in range(target.shape[0]):
        target[column] = source[column]


@device
def _add_turns(task, is_rows, first, count, parts, tile, row, kinds, seen, one):
    """All turns of ``parts`` parts of ``count`` positions from ``first`` on: their sum into a row
    of the table and, unless ``kinds`` is empty, their kinds; how many. ``seen`` is for the
    extents of the parts of every kind, and those of one more, ``one`` for a turn."""
    base, extra = count // parts, count % parts
    turns = ceil_div(base + (extra > 0), tile)
    found = 0
    for turn in range(turns):
        for column in range(AXIS_WIDTH + 1):
            one[column] = 0
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
                _copy_row(one, kinds[found])
                found += 1
            kinds[known, STEPS] += 1
    row[STEPS] = turns
    return found


@device
def _add_class(table, begin, first, last, least, end):
    """Row ``end`` of ``least``: of tile extents ``first`` to ``last`` of the table."""
    _copy_row(table[begin + first], least[end])
    for tile in range(first + 1, last + 1):
        for column in range(AXIS_WIDTH):
            least[end, column] = min(least[end, column], table[begin + tile, column])


@device
def _add_regions(least, begin, classes, smallest, largest, halves):
    """Behind the ``classes`` from row ``begin`` on, which are there, the regions of two, of four,
    and so on: how many regions there are then."""
    first, end = 0, classes
    while end - first > 1:
        level = end
        for half in range(first, level, 2):
            other = half + 1 if half + 1 < level else -1
            row = begin + end
            _copy_row(least[begin + half], least[row])
            largest[row], smallest[row] = largest[begin + half], smallest[begin + half]
            if other >= 0:
                smallest[row] = smallest[begin + other]
                for column in range(AXIS_WIDTH):
                    least[row, column] = min(least[row, column], least[begin + other, column])
            halves[row, 0], halves[row, 1] = half, other
            end += 1
        first = level
    return end


def axis_tables(task: Any, is_rows: int, spreads: Any, wants_kinds: int) -> Axis:
    """`Axis` of the rows or columns for all ``spreads`` (slices over TLEs, parts over TLTs)."""
    total, number = task.rows if is_rows else task.columns, len(spreads)
    part = parts_for(parts_for(total, spreads[:, 0]), spreads[:, 1])
    slices, parts = (int(spreads[:, index].max(initial=1)) for index in range(2))
    rows = int((spreads[:, 0] * (1 + part)).sum())
    regions = int((spreads[:, 0] * (2 * part + MOST_LEVELS)).sum())
    turns = [sum(parts_for(one, tile) for tile in range(1, one + 1)) for one in part.tolist()]
    kinds = int(spreads[:, 0] @ turns) * wants_kinds
    made = Axis(
        table=np.zeros((rows, AXIS_WIDTH)),
        begin=np.zeros((number, slices), np.int64),
        longest=np.zeros(number, np.int64),
        used=np.zeros(number, np.int64),
        least=np.zeros((regions, AXIS_WIDTH)),
        region_begin=np.zeros((number, slices), np.int64),
        classes=np.zeros(number, np.int64),
        whole=np.zeros(number, np.int64),
        smallest=np.zeros(regions, np.int64),
        largest=np.zeros(regions, np.int64),
        halves=np.full((regions, 2), -1, np.int64),
        kinds=np.zeros((kinds, AXIS_WIDTH + 1)),
        kind_begin=np.zeros(rows, np.int64),
        kind_count=np.zeros(rows, np.int64),
    )
    seen = np.zeros((total + 1, 2 * parts), np.int64)
    _fill_axis(task, is_rows, spreads, made, seen, np.zeros(AXIS_WIDTH + 1))
    return made


@entry
def _fill_axis(task, is_rows, spreads, made, seen, one):
    """`axis_tables`; the last two are for numbers on the way."""
    (
        table, begin, longest, used, least, region_begin, classes, whole, smallest, largest, halves,
        kinds, kind_begin, kind_count,
    ) = made  # fmt: skip
    total = task.rows if is_rows else task.columns
    end, kind_end = 0, 0
    for spread in range(spreads.shape[0]):
        slices, parts = spreads[spread, 0], spreads[spread, 1]
        size = ceil_div(total, slices)
        used[spread] = ceil_div(total, size) == slices
        if not used[spread]:
            continue
        longest[spread] = ceil_div(size, parts)
        for index in range(slices):
            begin[spread, index] = end
            first = index * size
            count = min(size, total - first)
            for tile in range(1, longest[spread] + 1):
                row = end + tile
                kind_begin[row] = kind_end
                kind_count[row] = _add_turns(
                    task, is_rows, first, count, parts, tile, table[row], kinds[kind_end:], seen,
                    one,
                )  # fmt: skip
                kind_end += kind_count[row]
            end += longest[spread] + 1
    end = 0
    for spread in range(spreads.shape[0]):
        if not used[spread]:
            continue
        for index in range(spreads[spread, 0]):
            region_begin[spread, index] = end
            tile, number = longest[spread], 0
            while tile:  # from large tiles, which make few steps, down
                row = end + number
                largest[row] = tile
                smallest[row] = ceil_div(longest[spread], ceil_div(longest[spread], tile))
                _add_class(table, begin[spread, index], smallest[row], tile, least, row)
                tile = smallest[row] - 1
                number += 1
            classes[spread] = number
            regions = _add_regions(least, end, number, smallest, largest, halves)
            whole[spread] = regions - 1
            end += regions
