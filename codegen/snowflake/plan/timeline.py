"""What a plan costs, for compiled code: bytes, and the time of its steps one after the other.

While a step computes, the results of the last one leave and then what the next one needs comes, if
there is a place for it. The memory serves transfers one at a time. They are issued behind the first
vector instructions of the step, and the next step begins when its loads are complete.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan import sums_time
from tvm_npu.codegen.snowflake.plan.counting import COOP, LANE
from tvm_npu.codegen.snowflake.plan.moved import kernels_moved, maps_moved, results_moved
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    depth_parts,
    depth_words,
    kernels_words,
    places,
    spreads_columns,
    tile_columns,
    tile_rows,
    together,
)
from tvm_npu.codegen.snowflake.plan.room import share as dealt
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, MOST_CUS

CYCLES, VECTOR, LOADS, STORES, IN_BYTES, WEIGHT_BYTES, OUT_BYTES, STEPS = range(8)
"""What `timed` gives: cycles in all, of the vector unit, of loads and stores at the memory; bytes;
steps."""
COSTS = 8
START = 24.0
"""Cycles before a layer's first load: special registers, addresses."""
CHUNK_WORDS, MOVE_WORDS = 60, 8
"""Instructions of a chunk of vector instructions and of a transfer, about: code comes from memory,
too."""
CODE_BYTES = 4
CHUNKS = 4
CHUNK = 12
"""Instructions around the sums of a chunk, waits for registers included."""
MOVE = 10
"""Cycles of the core for a transfer: instructions, and waits for their registers."""
FIRST = 16
"""Vector instructions of a step's first chunk, at least."""
ISSUE = 10
"""Cycles from the last load until the first trace begins."""
RESULTS = 4
"""Cycles until results have left, before their latency."""


class Step(NamedTuple):
    """Numbers of the tiles that a step works on."""

    tile: int
    map_row: int
    map_column: int
    depth: int


@device
def step_at(p: Choice, number: int, tiles: int, down: int, across: int, depths: int) -> Step:
    """The step with this number, tiles of the kind that stays outside (`steps.passes.grouped`)."""
    maps = down * across
    depth = number % depths
    if p.maps_stay and p.mode != LANE:
        at, tile = number // (depths * tiles), number // depths % tiles
    else:
        tile, at = number // (depths * maps), number // depths % maps
    return Step(tile, at // across, at % across, depth)


@device
def seconds(n: Numbers, units: float) -> float:
    """Cycles of the memory for so many units."""
    return units * MEMORY_UNIT_BYTES / n.rate


@device
def held(keys, used, count: int, key: int, number: int) -> tuple[int, bool]:
    """(place, whether it lies there already) of what a step needs; it replaces what was used
    longest ago."""
    oldest = 0
    for place in range(count):
        if keys[place] == key:
            used[place] = number
            return place, True
        if used[place] < used[oldest]:
            oldest = place
    keys[oldest], used[oldest] = key, number
    return oldest, False


@device
def tile_work(n: Numbers, p: Choice, filters: int, depth: int, rows, columns, work) -> None:
    """Writes what a step takes (`sums_time.CYCLES` and so on)."""
    work[:] = 0.0
    if depth_parts(n, p.mode) > 1:
        words = depth_words(n, p.mode)
        if depth == depth_parts(n, p.mode) - 1:
            lanes = 1 if p.mode == COOP else LANES
            words = lanes * n.rows.kernel * n.columns.kernel * n.planes - depth * words
        work[sums_time.CYCLES] = ceil_div(words, LANES)
        work[sums_time.ISSUED] = work[sums_time.VECTORS] = 1.0
        return
    whole, rest = divmod(filters, together(n, p.mode))
    step = min(p.m, filters)
    if whole:
        outputs = together(n, p.mode)
        sums_time.add_group(n, p.mode, whole, outputs, step, rows, columns, work)
    if rest:
        sums_time.add_group(n, p.mode, 1, rest, step, rows, columns, work)


@device
def fitting(n: Numbers, p: Choice) -> tuple[int, int, int]:
    """`places` of a plan."""
    tall, wide = tile_rows(n, p.mode, p.r), tile_columns(n, p.mode, p.c)
    return places(n, p, tall, wide, kernels_words(n, p))


@device
def first_share(n: Numbers, p: Choice, filters: int, tall: int, wide: int, depths: int) -> float:
    """Which part of a step its first chunk is (`steps.conv`)."""
    groups = ceil_div(filters, together(n, p.mode))
    if groups > 1 or depths > 1:
        return 1.0 / groups
    rows, columns = tall, wide
    if spreads_columns(n, p.mode):
        columns = dealt(n, p.mode, wide)
    else:
        rows = dealt(n, p.mode, tall)
    if rows > 1:
        return min(1.0, ceil_div(FIRST, 2 * columns) / rows)
    return min(1.0, FIRST / 2 / columns)


class Running(NamedTuple):
    """A step whose transfers are not known yet: when the core comes to it and the vector unit
    begins, cycles and instructions of it and of its first chunk, cycles of a vector instruction,
    when the results of the step before are complete."""

    core: float
    begin: float
    cycles: float
    issued: float
    first_cycles: float
    first_issued: float
    each: float
    results: float


@device
def timed(
    n: Numbers, p: Choice, room: tuple[int, int, int], vector_least: float, best: float, costs
) -> bool:  # fmt: skip
    """Writes the `COSTS` of a plan that fits; False, and unfinished costs, as soon as it is sure
    that its time is not less than ``best``. ``vector_least`` is a lower bound on the cycles of the
    vector unit."""
    costs[:] = 0.0
    map_places, kernel_places, out_places = room
    tiles = ceil_div(n.filters, p.m)
    down, across = ceil_div(n.rows.out, p.r), ceil_div(n.columns.out, p.c)
    depths = depth_parts(n, p.mode)
    steps = tiles * down * across * depths
    rows = np.zeros((down, 2 * n.rows.kernel + 1), np.int64)
    columns = np.zeros((across, 2 * n.columns.kernel + 1), np.int64)
    for i in range(down):
        sums_time.row_kinds(n, p.mode, i * p.r, min(p.r, n.rows.out - i * p.r), rows[i])
    for j in range(across):
        sums_time.column_kinds(n, p.mode, j * p.c, min(p.c, n.columns.out - j * p.c), columns[j])
    map_keys, map_used = np.full(2, -1), np.full(2, -1)
    kernel_keys, kernel_used = np.full(2, -1), np.full(2, -1)
    work = np.zeros(3)
    left = np.zeros(MOST_CUS)  # when the results in a place have left
    memory, core, vector = 0.0, START, START
    running = Running(START, START, 0.0, 0.0, 0.0, 0.0, 0.0, START)
    out_units, out_count = 0.0, 0  # of the last step
    leaving_units, leaving_count = 0.0, 0  # of the step before, which have not left yet
    turn, last_turn, last_map, last_kernel = -1, -1, -1, -1
    opens, number = True, 0
    for group in range(n.groups):
        map_keys[:] = kernel_keys[:] = -1
        for s in range(steps):
            at = step_at(p, s, tiles, down, across, depths)
            row, column = at.map_row * p.r, at.map_column * p.c
            tall, wide = min(p.r, n.rows.out - row), min(p.c, n.columns.out - column)
            filters = min(p.m, n.filters - at.tile * p.m)
            last = at.depth == depths - 1
            early, late, early_count, late_count = 0.0, 0.0, 0, 0
            # --- what the step loads: beside the last one, or behind it
            key = at.map_row * across + at.map_column
            if p.mode == LANE:
                key += at.tile * down * across
            place, there = held(map_keys, map_used, map_places, key, number)
            if not there:
                size, units, count = maps_moved(n, p, group, at.tile, row, tall, column, wide)
                costs[IN_BYTES] += size
                if number and place != last_map:
                    early, early_count = early + units, early_count + count
                else:
                    late, late_count = late + units, late_count + count
            last_map = place
            key = at.tile * depths + at.depth
            place, there = held(kernel_keys, kernel_used, kernel_places, key, number)
            if not there:
                size, units, count = kernels_moved(n, p, at.tile, at.depth)
                costs[WEIGHT_BYTES] += size
                if number and place != last_kernel:
                    early, early_count = early + units, early_count + count
                else:
                    late, late_count = late + units, late_count + count
            last_kernel = place
            if opens:
                turn = (turn + 1) % out_places
            size, units, count = results_moved(n, p, group, at.tile, row, tall, column, wide)
            if n.has_residual and at.depth == 0:
                costs[IN_BYTES] += size
                if number and turn != last_turn:
                    early, early_count = early + units, early_count + count
                else:
                    late, late_count = late + units, late_count + count
            # --- the last step, now that its transfers are known
            moves = leaving_count + early_count
            issued = running.issued + MOVE * moves
            vector = max(running.begin + running.cycles, running.core + issued)
            hidden = n.queue * running.each
            core = max(running.core + issued, vector - hidden)
            asked = max(
                running.core + running.first_issued, running.begin + running.first_cycles - hidden
            )
            ready = core
            code = CODE_BYTES * (CHUNK_WORDS * CHUNKS + MOVE_WORDS * (moves + late_count))
            code_units = code / MEMORY_UNIT_BYTES if number else 0.0
            costs[LOADS] += seconds(n, early + late + code_units)
            if leaving_units > 0:
                asked = max(asked, running.results)
                memory = max(memory, asked + MOVE) + seconds(n, leaving_units)
                left[last_turn - 1 if last_turn else out_places - 1] = memory + n.store_latency
            if early > 0:
                memory = max(memory, asked + MOVE) + seconds(n, early + code_units)
                memory = max(memory, asked + MOVE * moves)
                ready = max(ready, memory + n.load_latency)
            results = vector + n.vector_latency + RESULTS
            if out_units > 0 and turn == last_turn:
                memory = max(memory, results) + seconds(n, out_units)
                core = memory + n.store_latency
                ready = max(ready, core)
                out_units, out_count = 0.0, 0
            if late > 0:
                begin = core if number == 0 else max(core, results)
                core = begin + MOVE * late_count
                memory = max(max(memory, begin + MOVE) + seconds(n, late), core)
                ready = max(ready, memory + n.load_latency)
            leaving_units, leaving_count = out_units, out_count
            ready = max(ready, left[turn])
            # --- the step
            if max(vector, ready) + vector_least - costs[VECTOR] >= best:
                return False
            tile_work(n, p, filters, at.depth, rows[at.map_row], columns[at.map_column], work)
            cycles = work[sums_time.CYCLES]
            costs[VECTOR] += cycles
            share = first_share(n, p, filters, tall, wide, depths)
            chunks = min(CHUNKS, 1.0 / share)
            running = Running(
                ready, max(vector, ready + ISSUE), cycles, work[sums_time.ISSUED] + CHUNK * chunks,
                share * cycles, share * work[sums_time.ISSUED] + CHUNK,
                cycles / max(1.0, work[sums_time.VECTORS]), results,
            )  # fmt: skip
            opens = last
            out_units, out_count = 0.0, 0
            if last:
                out_units, out_count = units, count
                costs[STORES] += seconds(n, units)
                costs[OUT_BYTES] += size
            last_turn = turn
            number += 1
    issued = running.issued + MOVE * leaving_count
    vector = max(running.begin + running.cycles, running.core + issued)
    if leaving_units > 0:
        memory = max(memory, running.results) + seconds(n, leaving_units)
    memory = max(memory, vector + n.vector_latency + RESULTS + MOVE) + seconds(n, out_units)
    costs[CYCLES] = max(memory, vector + MOVE * out_count) + n.store_latency
    costs[STEPS] = number
    return True


@entry
def cost_of(n, p, costs):
    """`timed`; False where the plan does not fit."""
    room = fitting(n, p)
    if room[0] == 0:
        return False
    return timed(n, p, room, 0.0, np.inf, costs)
