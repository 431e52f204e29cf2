"""Bounds on plans whose steps wait for transfers, or for the steps before, for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.counting import (
    COOP,
    LANE,
    Along,
    end_tap,
    first_tap,
    inside_tiles,
    span,
    whole_lines,
)
from tvm_npu.codegen.snowflake.plan.exact_bounds import (
    FEWEST_INSIDE,
    FEWEST_SERVED,
    FIRST,
    INSIDE,
    MAP_PLACES,
    SERVED,
    Sizes,
    largest,
    whole_units,
)
from tvm_npu.codegen.snowflake.plan.joint import dealt
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    out_words,
    share,
    spreads_columns,
    tile_planes,
)
from tvm_npu.codegen.snowflake.plan.step_loads import step_at, tiles_of
from tvm_npu.codegen.snowflake.plan.step_sums import tile_work
from tvm_npu.codegen.snowflake.plan.sums_time import (
    CYCLES_OF,
    ISSUED,
    VECTORS,
    column_kinds,
    row_kinds,
)
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import WORD_BYTES


@device
def _padded(planes: int, m: int, pitch: int) -> int:
    """Words of a pixel's ``planes`` that the memory serves in tiles of ``m``, at least: whole units
    where the pixels of a tile do not lie together."""
    if m >= planes and planes == pitch:
        return planes
    return planes // m * whole_units(m) + whole_units(planes % m)


class Issued(NamedTuple):
    """``first``: cycles until the first chunk of a step is issued, `timeline.CHUNK` left out, of
    all steps but the last; ``code``: cycles of the memory for what all steps but the last issue,
    and ``all_code`` for all, at least."""

    first: float
    code: float
    all_code: float


class Scratch(NamedTuple):
    """Arrays to compute in: kinds of rows and of columns, and what sums take."""

    rows: np.ndarray
    columns: np.ndarray
    work: np.ndarray


@device
def scratch_for(n: Numbers) -> Scratch:
    return Scratch(
        np.zeros(2 * n.rows.kernel + 1, np.int64), np.zeros(2 * n.columns.kernel + 1, np.int64),
        np.zeros(3),
    )  # fmt: skip


@device
def _sizes(axis: Along, size: int, rest: int) -> tuple[int, int, int]:
    """(results a tile, how many tiles have as many, how many of these touch no padding): of whole
    tiles, or of the ``rest``."""
    if rest == 0:
        return size, axis.out // size, inside_tiles(axis, size)
    count = axis.out % size
    if count == 0:
        return 0, 0, 0
    inside = end_tap(axis, axis.out - 1) == axis.kernel and first_tap(axis, axis.out - count) == 0
    return count, 1, 1 if inside else 0


@device
def issued_by(n: Numbers, p: Choice, room, scratch: Scratch) -> Issued:
    """Of a plan whose kernels come whole."""
    rows, columns, work = scratch
    rows[:] = 0
    columns[:] = 0
    down, across = dealt(n, p.mode)
    first = code = all_code = 0.0
    for kind in range(8):
        tall, bands, bands_inside = _sizes(n.rows, p.r, kind & 1)
        wide, strips, strips_inside = _sizes(n.columns, p.c, kind >> 1 & 1)
        filters, tiles = p.m, n.filters // p.m
        if kind & 4:
            filters, tiles = n.filters % p.m, 1
        if bands * strips * filters == 0:
            continue
        count = n.groups * bands * strips * tiles
        of_last = n.rows.out % p.r == 0 or kind & 1 > 0
        of_last = of_last and (n.columns.out % p.c == 0 or kind & 2 > 0)
        last = 1 if of_last and (n.filters % p.m == 0 or kind & 4 > 0) else 0
        chunks = timeline.chunks_of(n, p, filters, tall, wide, 1)
        words = chunks.parts * timeline.CHUNK_WORDS
        code += (count - last) * words
        all_code += count * words
        own_tall, own_wide = ceil_div(tall, down), ceil_div(wide, across)
        if kind == 0:
            # Each CU with results has a transfer of its own; the first maps come before the steps,
            # the last two results leave behind those but the last.
            transfers = ceil_div(tall, own_tall) * ceil_div(wide, own_wide)
            moves = max(0, count - 1) if room[0] > 1 else 0
            if room[2] > 1:
                moves += max(0, count - 2)
            code += timeline.MOVE_WORDS * transfers * moves
            all_code += timeline.MOVE_WORDS * transfers * moves
        inside = n.groups * bands_inside * strips_inside * tiles - last
        if inside > 0:
            rows[n.rows.kernel], columns[n.columns.kernel] = own_tall, own_wide
            tile_work(n, p, filters, 0, rows, columns, work)
            cycles = work[CYCLES_OF]
            hidden = n.queue * cycles / max(1.0, work[VECTORS])
            first += inside * max(
                chunks.first * work[ISSUED],
                timeline.ISSUE + chunks.first * cycles - hidden - timeline.CHUNK,
            )
    bytes_cycles = timeline.CODE_BYTES / n.rate
    return Issued(first, bytes_cycles * code, bytes_cycles * all_code)


@device
def _last_cycles(n: Numbers, p: Choice, scratch: Scratch) -> float:
    """Of the sums of the last step."""
    rows, columns, work = scratch
    row, column = (n.rows.out - 1) // p.r * p.r, (n.columns.out - 1) // p.c * p.c
    row_kinds(n, p.mode, row, n.rows.out - row, rows)
    column_kinds(n, p.mode, column, n.columns.out - column, columns)
    tile_work(n, p, n.filters - (n.filters - 1) // p.m * p.m, 0, rows, columns, work)
    return work[CYCLES_OF]


@device
def _result_words(n: Numbers, p: Choice, number: int) -> float:
    """Words of the results of a step of a group that the memory serves, at least."""
    at = step_at(p, number, tiles_of(n, p))
    tall = min(p.r, n.rows.out - at.map_row * p.r)
    wide = min(p.c, n.columns.out - at.map_column * p.c)
    filters = min(p.m, n.filters - at.tile * p.m)
    return float(tall * wide * _padded(filters, filters, n.out_pitch))


@device
def in_turn(
    n: Numbers, p: Choice, room, edges, vector: float, issued: Issued, rows: Sizes,
    columns: Sizes, scratch: Scratch,
) -> float:  # fmt: skip
    """A bound on the time of a plan whose kernels come whole: what `timeline.timed` has between the
    begin of a step and that of the next one, by transfers where each step has maps of its own, and
    by the step itself where that has the only place of something. ``vector`` are the cycles of all
    sums."""
    tiles = ceil_div(n.filters, p.m)
    map_tiles = ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    turns = n.groups * tiles * map_tiles - 1
    if turns == 0:
        return 0.0
    again, own, loads = 1, n.planes, turns
    if p.mode == LANE:
        own = min(p.m, n.planes)
    else:
        again = tiles if not p.maps_stay and map_tiles > room[0] else 1
        loads = n.groups * map_tiles * again - 1
    last = _result_words(n, p, tiles * map_tiles - 1)
    total = float(n.groups * n.rows.out * n.columns.out * _padded(n.filters, p.m, n.out_pitch))
    cus = 1 if p.mode == COOP else n.cus
    if p.mode != LANE and n.planes == n.in_pitch:
        maps = rows.by[p.r, INSIDE] * columns.by[p.c, SERVED] * again
        maps -= cus * largest(rows, p.r) * whole_units(largest(columns, p.c) * n.planes)
    else:
        maps = n.groups * rows.by[p.r, INSIDE] * columns.by[p.c, INSIDE] * again
        maps *= _padded(n.planes, own, n.in_pitch)
        maps -= cus * largest(rows, p.r) * largest(columns, p.c) * _padded(own, own, 0)
    maps = max(0.0, maps)
    residual = total - _result_words(n, p, 0) if n.has_residual else 0.0
    load, per_word = timeline.MOVE + n.load_latency, WORD_BYTES / n.rate
    waits = room[2] == 1
    late_loads = 0
    if waits and n.has_residual:
        late_loads = turns
    elif room[0] == 1:
        late_loads = loads
    least = 0.0
    if loads == turns:
        chain, words, end = float(timeline.CHUNK + timeline.MOVE), maps + residual, 0.0
        if waits:
            least, words = turns * n.store_latency + late_loads * load, words + total - last
        else:
            # Behind the begin of the last step leave the results of the one before, then its own.
            before = _result_words(n, p, max(0, tiles * map_tiles - 2))
            least, words = turns * n.load_latency, words + total - last - before
            end = timeline.CHUNK - timeline.ISSUE + before * per_word
            end -= n.vector_latency + timeline.RESULTS
        least += turns * chain + words * per_word + issued.first + issued.code
        least += max(end, _last_cycles(n, p, scratch))
    if waits or room[0] == 1:
        stops = turns if waits else late_loads
        alone = vector + stops * (timeline.ISSUE + n.vector_latency + timeline.RESULTS)
        alone += timeline.BETWEEN * (turns - stops) + late_loads * load
        late = maps if room[0] == 1 else 0.0
        if waits:
            alone += turns * n.store_latency
            late += residual + total - last
        least = max(least, alone + late * per_word)
    return edges.begin + least + edges.end if least > 0.0 else 0.0


@device
def _short_of(n: Numbers, p: Choice, rows: Sizes, wide: int) -> int:
    """Inputs by which the first tile of a plan with ``wide`` or fewer inputs in a row has less than
    the largest one, that in all CUs: at most."""
    axis, first = n.columns, int(rows.by[p.r, FIRST])
    cus = 1 if p.mode == COOP else n.cus
    short = max(0, cus * largest(rows, p.r) - first) * wide
    if spreads_columns(n, p.mode):
        # Of as many results as all CUs could have, they lack less than one each.
        short = cus * max(0, largest(rows, p.r) - first) * wide
        return short + largest(rows, p.r) * (cus - 1) * axis.kernel * (axis.stride + axis.dilation)
    ends = (axis.out - 1) * axis.stride - axis.before + (axis.kernel - 1) * axis.dilation + 1
    padding = max(0, axis.before) + max(0, ends - axis.size)
    if axis.dilation > 1:
        padding *= axis.kernel
    return short + first * min(wide, padding)


@device
def with_fewer_columns(n: Numbers, p: Choice, rows: Sizes, columns: Sizes) -> float:
    """A bound on the times of all plans whose tiles have no more columns than those of ``p`` and
    the rest alike, by what `in_turn` has between the begins of steps; 0 where steps share maps, or
    may have one place for results. Kernels come whole."""
    tiles = ceil_div(n.filters, p.m)
    map_tiles = ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    turns = n.groups * tiles * map_tiles - 1
    if turns == 0 or (
        p.mode != LANE and tiles > 1 and (p.maps_stay or map_tiles <= MAP_PLACES)
    ):
        return 0.0
    wide = span(n.columns, share(n, p.mode, p.c) if spreads_columns(n, p.mode) else p.c)
    if p.mode != COOP or n.cus == 1:
        maps = whole_lines(largest(rows, p.r) * wide * tile_planes(n, p))
        if 2 * (maps + out_words(n, p)) > n.mbuf:
            return 0.0
    own, again = (min(p.m, n.planes), 1) if p.mode == LANE else (n.planes, tiles)
    missing = _short_of(n, p, rows, wide)
    if p.mode != LANE and n.planes == n.in_pitch:
        cus = 1 if p.mode == COOP else n.cus
        missing = missing * n.planes + cus * largest(rows, p.r) * (whole_units(1) - 1)
        words = rows.by[p.r, INSIDE] * columns.by[p.c, FEWEST_SERVED] * again - missing
    else:
        words = n.groups * rows.by[p.r, INSIDE] * columns.by[p.c, FEWEST_INSIDE] * again
        words = words * _padded(n.planes, own, n.in_pitch) - missing * _padded(own, own, 0)
    results = n.groups * n.rows.out * n.columns.out * _padded(n.filters, p.m, n.out_pitch)
    words = max(0.0, words) + results * (2 if n.has_residual else 1)
    code = timeline.CODE_BYTES * timeline.CHUNK_WORDS
    begin = timeline.START + timeline.MOVE + n.load_latency + timeline.ISSUE
    end = timeline.CHUNK - timeline.ISSUE + timeline.MOVE + n.store_latency
    turn = timeline.CHUNK + timeline.MOVE + n.load_latency + code / n.rate
    return begin + turns * turn + words * WORD_BYTES / n.rate + end
