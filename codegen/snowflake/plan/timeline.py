"""What a plan costs, for compiled code: bytes, and the time of its steps one after the other.

While a step computes, the results of the last one leave and then what the next one needs comes, if
there is a place for it. The memory serves transfers one at a time. They are issued behind the first
vector instructions of the step, and the next step begins when its loads are complete.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
from tvm_npu.codegen.snowflake.plan.sums_time import (
    CYCLES_OF,
    ISSUED,
    VECTORS,
    add_group,
    column_kinds,
    row_kinds,
)
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, MOST_CUS

CYCLES, VECTOR, LOADS, STORES, IN_BYTES, WEIGHT_BYTES, OUT_BYTES, STEPS = range(8)
"""What `timed` gives: cycles in all, of the vector unit, of loads and stores at the memory; bytes;
steps."""
COSTS = 8
START = 24.0
"""Cycles before a layer's first load: special registers, addresses."""
CHUNK_WORDS, MOVE_WORDS = 60, 5
"""Instructions of a chunk of vector instructions and of a transfer, about: code comes from memory,
too."""
CODE_BYTES = 4
CHUNKS = 4
CHUNK = 12
"""Instructions around the sums of a chunk, waits for registers included."""
MOVE = 7
"""Cycles of the core for a transfer: instructions, and waits for their registers."""
FIRST = 16
"""Vector instructions of a step's first chunk, at least."""
BETWEEN = 4
"""Cycles that the vector unit loses from one step to the next, on average."""
ISSUE = 10
"""Cycles from the last load until the first trace begins."""
MOST_AHEAD = 24
"""Steps over which a load is dealt, at most (`steps.passes`)."""
RESULTS = 4
"""Cycles until results have left, before their latency."""


class Step(NamedTuple):
    """Numbers of the tiles that a step works on."""

    tile: int
    map_row: int
    map_column: int
    depth: int


class Tiles(NamedTuple):
    """How many there are: of kernels, of rows and of columns of maps, of the depth, steps."""

    kernels: int
    down: int
    across: int
    depths: int
    steps: int


@device
def _tiles(n: Numbers, p: Choice) -> Tiles:
    kernels, depths = ceil_div(n.filters, p.m), depth_parts(n, p.mode)
    down, across = ceil_div(n.rows.out, p.r), ceil_div(n.columns.out, p.c)
    return Tiles(kernels, down, across, depths, kernels * down * across * depths)


@device
def step_at(p: Choice, number: int, tiles: Tiles) -> Step:
    """The step with this number, tiles of the kind that stays outside (`steps.passes.grouped`)."""
    maps = tiles.down * tiles.across
    depth = number % tiles.depths
    if p.maps_stay and p.mode != LANE:
        at, tile = number // (tiles.depths * tiles.kernels), number // tiles.depths % tiles.kernels
    else:
        tile, at = number // (tiles.depths * maps), number // tiles.depths % maps
    return Step(tile, at // tiles.across, at % tiles.across, depth)


@device
def seconds(n: Numbers, units: float) -> float:
    """Cycles of the memory for so many units."""
    return units * MEMORY_UNIT_BYTES / n.rate


@device
def held(keys, used, count: int, key: int, number: int) -> tuple[int, bool]:
    """(last step that used the place of what step ``number`` needs, whether it lies there already);
    it replaces what was used longest ago."""
    oldest = 0
    for place in range(count):
        if keys[place] == key:
            before = used[place]
            used[place] = number
            return before, True
        if used[place] < used[oldest]:
            oldest = place
    before = used[oldest]
    keys[oldest], used[oldest] = key, number
    return before, False


@device
def tile_work(n: Numbers, p: Choice, filters: int, depth: int, rows, columns, work) -> None:
    """Writes what a step takes (`sums_time.CYCLES_OF` and so on)."""
    work[:] = 0.0
    if depth_parts(n, p.mode) > 1:
        words = depth_words(n, p.mode)
        if depth == depth_parts(n, p.mode) - 1:
            lanes = 1 if p.mode == COOP else LANES
            words = lanes * n.rows.kernel * n.columns.kernel * n.planes - depth * words
        work[CYCLES_OF] = ceil_div(words, LANES)
        work[ISSUED] = work[VECTORS] = 1.0
        return
    whole, rest = divmod(filters, together(n, p.mode))
    step = min(p.m, filters)
    if whole:
        outputs = together(n, p.mode)
        add_group(n, p.mode, whole, outputs, step, rows, columns, work)
    if rest:
        add_group(n, p.mode, 1, rest, step, rows, columns, work)


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


@device
def _loads(n: Numbers, p: Choice, room: tuple[int, int, int], tiles: Tiles, late, during, costs):
    """Deals all loads to steps (`steps.passes`): writes units and transfers of those that a step
    begins with to ``late`` [2, steps], of those that come beside it to ``during``."""
    map_places, kernel_places, out_places = room
    map_keys, map_used = np.full(2, -1), np.full(2, -1)
    kernel_keys, kernel_used = np.full(2, -1), np.full(2, -1)
    turn, number = -1, 0
    opens = True
    for group in range(n.groups):
        map_keys[:] = kernel_keys[:] = -1
        for s in range(tiles.steps):
            at = step_at(p, s, tiles)
            row, column = at.map_row * p.r, at.map_column * p.c
            tall, wide = min(p.r, n.rows.out - row), min(p.c, n.columns.out - column)
            key = at.map_row * tiles.across + at.map_column
            if p.mode == LANE:
                key += at.tile * tiles.down * tiles.across
            used, there = held(map_keys, map_used, map_places, key, number)
            if not there:
                size, units, count = maps_moved(n, p, group, at.tile, row, tall, column, wide)
                costs[IN_BYTES] += size
                _deal(number, used, units, count, late, during)
            key = at.tile * tiles.depths + at.depth
            used, there = held(kernel_keys, kernel_used, kernel_places, key, number)
            if not there:
                size, units, count = kernels_moved(n, p, at.tile, at.depth)
                costs[WEIGHT_BYTES] += size
                _deal(number, used, units, count, late, during)
            last_turn = turn
            if opens:
                turn = (turn + 1) % out_places
            opens = at.depth == tiles.depths - 1
            if n.has_residual and at.depth == 0:
                size, units, count = results_moved(n, p, group, at.tile, row, tall, column, wide)
                costs[IN_BYTES] += size
                used = number - 2 if turn != last_turn else number - 1
                _deal(number, used, units, count, late, during)
            number += 1


@device
def _deal(number: int, used: int, units: float, count: int, late, during) -> None:
    """A load of step ``number`` into a place that step ``used`` was the last to use."""
    first = max(used + 1, number - MOST_AHEAD, 0)
    steps = number - first
    if steps <= 0:
        late[0, number] += units
        late[1, number] += count
        return
    for k in range(steps):
        share = (k + 1) * count // steps - k * count // steps
        during[0, first + k] += units * share / count
        during[1, first + k] += share


@device
def timed(
    n: Numbers, p: Choice, room: tuple[int, int, int], vector_least: float, best: float, costs
) -> bool:  # fmt: skip
    """Writes the `COSTS` of a plan that fits; False, and unfinished costs, as soon as it is sure
    that its time is not less than ``best``. ``vector_least`` is a lower bound on the cycles of the
    vector unit."""
    costs[:] = 0.0
    tiles = _tiles(n, p)
    rows = np.zeros((tiles.down, 2 * n.rows.kernel + 1), np.int64)
    columns = np.zeros((tiles.across, 2 * n.columns.kernel + 1), np.int64)
    for i in range(tiles.down):
        row_kinds(n, p.mode, i * p.r, min(p.r, n.rows.out - i * p.r), rows[i])
    for j in range(tiles.across):
        column_kinds(n, p.mode, j * p.c, min(p.c, n.columns.out - j * p.c), columns[j])
    late, during = np.zeros((2, n.groups * tiles.steps)), np.zeros((2, n.groups * tiles.steps))
    _loads(n, p, room, tiles, late, during, costs)
    out_places = room[2]
    work = np.zeros(3)
    left = np.zeros(MOST_CUS)  # when the results in a place have left
    # When the memory, the core and the vector unit are free, and what the next step needs is there.
    memory, core, vector, ready = 0.0, START, START, START
    out_units, out_count = 0.0, 0  # results of the last step
    results, turn, number = START, -1, 0
    opens = True
    for group in range(n.groups):
        for s in range(tiles.steps):
            at = step_at(p, s, tiles)
            row, column = at.map_row * p.r, at.map_column * p.c
            tall, wide = min(p.r, n.rows.out - row), min(p.c, n.columns.out - column)
            filters = min(p.m, n.filters - at.tile * p.m)
            last_turn = turn
            if opens:
                turn = (turn + 1) % out_places
            # --- what comes in front of the step
            begin = max(core, ready)
            if out_units > 0 and turn == last_turn:
                memory = max(memory, results) + seconds(n, out_units)
                begin = max(begin, memory + n.store_latency)
                out_units, out_count = 0.0, 0
            if late[0, number] > 0:
                if number:
                    begin = max(begin, results)
                begin += MOVE * late[1, number]
                memory = max(memory, begin) + seconds(n, late[0, number])
                begin = memory + n.load_latency
            begin = max(begin, left[turn])
            start = max(vector + BETWEEN, begin + ISSUE)
            behind = BETWEEN * (n.groups * tiles.steps - number - 1)
            if start + vector_least - costs[VECTOR] + behind >= best:
                return False
            # --- its sums
            tile_work(n, p, filters, at.depth, rows[at.map_row], columns[at.map_column], work)
            cycles, issued = work[CYCLES_OF], work[ISSUED]
            costs[VECTOR] += cycles
            share = first_share(n, p, filters, tall, wide, tiles.depths)
            chunks = min(CHUNKS, 1.0 / share)
            moves = out_count + during[1, number]
            issued += CHUNK * chunks + MOVE * moves
            hidden = n.queue * cycles / max(1.0, work[VECTORS])
            vector = max(start + cycles, begin + issued)
            core = max(begin + issued, vector - hidden)
            # --- transfers beside it, behind its first chunk
            asked = max(begin + share * work[ISSUED] + CHUNK, start + share * cycles - hidden)
            code = CODE_BYTES * (CHUNK_WORDS * chunks + MOVE_WORDS * (moves + late[1, number]))
            units = during[0, number] + code / MEMORY_UNIT_BYTES
            costs[LOADS] += seconds(n, units + late[0, number])
            ready = core
            if out_units > 0:
                asked = max(asked, results)
                memory = max(memory, asked + MOVE) + seconds(n, out_units)
                left[last_turn] = memory + n.store_latency
                if n.has_residual and out_places == 2:
                    # The next residuals take the place of these results: the core waits for it
                    # behind the first chunk, or the second of several.
                    done = share + (1.0 - share) / 3 if chunks > 2 else share
                    vector = max(vector, left[last_turn] + (1.0 - done) * cycles)
                    core = max(core, vector - hidden)
            memory = max(memory, asked + MOVE) + seconds(n, units)
            if during[0, number] > 0:
                memory = max(memory, asked + MOVE * moves)
                ready = max(ready, memory + n.load_latency)
            results = vector + n.vector_latency + RESULTS
            opens = at.depth == tiles.depths - 1
            out_units, out_count = 0.0, 0
            if opens:
                size, out_units, out_count = results_moved(
                    n, p, group, at.tile, row, tall, column, wide
                )
                costs[STORES] += seconds(n, out_units)
                costs[OUT_BYTES] += size
            number += 1
    memory = max(memory, results + MOVE) + seconds(n, out_units)
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


@entry
def places_of(n, p):
    """`fitting`, for Python."""
    return fitting(n, p)
