"""What a plan costs, for compiled code: bytes, and the time of its steps one after the other.

While a step computes, the results of the last one leave and then what the next one needs comes, if
there is a place for it. The memory serves transfers one at a time. They are issued behind the first
vector instructions of the step, and the next step begins when its loads are complete.

A layer is one of many: its first kernels come while the layer before computes, where they have two
places, which costs that one a part of their time; and a layer takes at least what the memory needs
for all its bytes.
"""

from __future__ import annotations

from math import frexp
from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan.alike_moves import alike_results, nothing_known
from tvm_npu.codegen.snowflake.plan.counting import LANE
from tvm_npu.codegen.snowflake.plan.moved import kernels_moved, maps_moved, results_moved
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    kernels_words,
    places,
    spreads_columns,
    tile_columns,
    tile_rows,
    together,
)
from tvm_npu.codegen.snowflake.plan.room import share as dealt
from tvm_npu.codegen.snowflake.plan.step_loads import Loads, Step, loads_of, step_at, tiles_of
from tvm_npu.codegen.snowflake.plan.step_sums import all_sums, works_of
from tvm_npu.codegen.snowflake.plan.sums_time import CYCLES_OF, ISSUED, VECTORS
from tvm_npu.codegen.snowflake.steps.chunks import (
    CHUNKS,
    FIRST_VECTORS,
    LANE_CHUNKS,
    LANE_CHUNKS_OF_MANY,
    LEAST_TOGETHER,
    MOST_TRANSFERS,
    TRANSFER_CYCLES,
)
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, MOST_CUS, VMACS

CYCLES, VECTOR, LOADS, STORES, IN_BYTES, WEIGHT_BYTES, OUT_BYTES, STEPS, ALONE = range(9)
"""What `timed` gives: cycles in all, of the vector unit, of loads and stores at the memory; bytes;
steps; cycles where no layer comes before."""
COSTS = 9
RESOLUTION_BITS = 9
"""Cycles are known to so many bits behind the first: plans that are nearer are equally fast."""
EARLY_SHARE = 0.4
"""Which part of the time that its first kernels take a layer costs the one before, on average."""
START = 24.0
"""Cycles before a layer's first load: special registers, addresses."""
CHUNK_WORDS, MOVE_WORDS = 60, 5
"""Instructions of a chunk of vector instructions and of a transfer, about: code comes from memory,
too."""
CODE_BYTES = 4
CHUNK = 12
"""Instructions around the sums of a chunk, waits for registers included."""
MOVE = 7
"""Cycles of the core for a transfer: instructions, and waits for their registers."""
BETWEEN = 4
"""Cycles that the vector unit loses from one step to the next, on average."""
ISSUE = 10
"""Cycles from the last load until the first trace begins."""
RESULTS = 4
"""Cycles until results have left, before their latency."""


@device
def resolved(cycles: float) -> float:
    """Rounded up to what is known of a time: `RESOLUTION_BITS`, whole cycles at most."""
    step = max(1.0, 2.0 ** (frexp(cycles)[1] - 1 - RESOLUTION_BITS))
    return np.ceil(cycles / step) * step


@device
def resolved_below(limit: float) -> float:
    """The longest time that, `resolved`, is less than ``limit``."""
    step = max(1.0, 2.0 ** (frexp(limit)[1] - 1 - RESOLUTION_BITS))
    return (np.ceil(limit / step) - 1.0) * step


@device
def seconds(n: Numbers, units: float) -> float:
    """Cycles of the memory for so many units."""
    return units * MEMORY_UNIT_BYTES / n.rate


@device
def fitting(n: Numbers, p: Choice) -> tuple[int, int, int]:
    """`places` of a plan."""
    tall, wide = tile_rows(n, p.mode, p.r), tile_columns(n, p.mode, p.c)
    return places(n, p, tall, wide, kernels_words(n, p))


class Chunks(NamedTuple):
    """The parts in which a step's instructions are issued (`steps.conv`): how many ``parts``, and
    behind which part of the step the first, the second and the last but one end."""

    parts: float
    first: float
    second: float
    late: float


@device
def chunks_of(n: Numbers, p: Choice, filters: int, tall: int, wide: int, depths: int) -> Chunks:
    groups = ceil_div(filters, together(n, p.mode))
    if depths > 1:
        return Chunks(1.0, 1.0, 1.0, 1.0)
    count, first = float(CHUNKS), 1.0 / groups
    if p.mode == LANE or filters // together(n, p.mode) < 2:
        rows, columns = tall, wide
        if spreads_columns(n, p.mode):
            columns = dealt(n, p.mode, wide)
        else:
            rows = dealt(n, p.mode, tall)
        total, small = columns, min(columns, FIRST_VECTORS // 2)
        if rows > 1:
            total, small = rows, min(rows // 2, ceil_div(FIRST_VECTORS, 2 * columns))
        if p.mode == LANE:
            count, first = _lane_chunks(n, filters, groups, total, small)
        else:
            count = (1.0 + min(CHUNKS - 1, total - small)) * groups
            first *= small / total
    if count == 1.0:
        return Chunks(1.0, 1.0, 1.0, 1.0)
    each = (1.0 - first) / (count - 1.0)
    return Chunks(count, first, first + each, 1.0 - each)


@device
def _lane_chunks(
    n: Numbers, filters: int, groups: int, total: int, small: int
) -> tuple[float, float]:
    """How many chunks there are in mode lane, and which part of the step the first is; ``total``
    results of each of ``groups`` groups of lanes, of which ``small`` come first."""
    parts = ceil_div(LANE_CHUNKS if filters == n.planes else LANE_CHUNKS_OF_MANY, groups)
    lines = ceil_div(filters, LANES)
    count = 1 + (groups - 1) * ceil_div(total, ceil_div(total, parts))
    if total > small:
        count += ceil_div(total - small, ceil_div(total - small, parts))
    return float(count), min(VMACS, lines) / lines * small / total


MEMORY, CORE, UNIT, READY, RESULT = range(5)
"""Times: when memory, core and vector unit are free, when what the next step needs is there, and
when the last step's results are complete."""


@device
def _hiding(n: Numbers, chunks: Chunks, units: float, count: float, cycles: float) -> float:
    """Chunks behind which ``count`` transfers of so many ``units`` are issued in a step of
    ``cycles`` (`emit.sequence`)."""
    half = max(1.0, (chunks.parts + 1) // 2)
    if count <= MOST_TRANSFERS * half:
        return half
    part = seconds(n, units) / max(1.0, cycles)
    return max(half, min(chunks.parts - 1.0, np.floor(part * chunks.parts)))


@device
def _beside(
    n: Numbers, loads: Loads, number: int, chunks: Chunks, out_units: float, out_count: float,
    begin: float, start: float, cycles: float, issued: float, hidden: float, at,
) -> float:  # fmt: skip
    """The transfers beside a step that begins to issue at ``begin`` and to compute at ``start``:
    results leave, loads come. Moves the times on; gives when the results have left."""
    units, count = loads.during[0, number], loads.during[1, number]
    together = max(float(LEAST_TOGETHER), hidden // TRANSFER_CYCLES)
    hiding = _hiding(n, chunks, out_units + units, out_count + count, cycles)
    together = max(together, np.ceil((out_count + count) / hiding))
    now = min(1.0, max(0.0, together - out_count) / count) if count > 0 else 1.0
    asked = max(begin + chunks.first * issued + CHUNK, start + chunks.first * cycles - hidden)
    left = 0.0
    if out_units > 0:
        asked = max(asked, at[RESULT])
        at[MEMORY] = max(at[MEMORY], asked + MOVE) + seconds(n, out_units)
        left = at[MEMORY] + n.store_latency
    code = CODE_BYTES * (CHUNK_WORDS * chunks.parts + MOVE_WORDS * (out_count + count))
    at[MEMORY] = max(at[MEMORY], asked + MOVE) + seconds(n, code / MEMORY_UNIT_BYTES + now * units)
    at[MEMORY] = max(at[MEMORY], asked + MOVE * (out_count + now * count))
    if now < 1.0:
        asked = max(begin + chunks.second * issued, start + chunks.second * cycles - hidden)
        at[MEMORY] = max(at[MEMORY], asked + MOVE) + seconds(n, (1.0 - now) * units)
        at[MEMORY] = max(at[MEMORY], asked + MOVE * (1.0 - now) * count)
        if hiding > 2.0:  # the last ones
            behind = chunks.first + (hiding - 1.0) * (chunks.second - chunks.first)
            asked = max(begin + behind * issued, start + behind * cycles - hidden)
            at[MEMORY] = max(at[MEMORY], asked + MOVE + seconds(n, (1.0 - now) * units / hiding))
    at[READY] = at[CORE]
    if count > 0:
        needed = at[MEMORY] - seconds(n, loads.further[number])
        at[READY] = max(at[READY], needed + n.load_latency)
    if loads.behind[1, number] > 0:
        # Residuals take the place of these results: the core waits for that.
        asked = max(begin + chunks.late * issued, start + chunks.late * cycles - hidden)
        asked = max(asked, left)
        at[UNIT] = max(at[UNIT], asked + (1.0 - chunks.late) * cycles)
        at[CORE] = max(at[CORE], at[UNIT] - hidden)
        at[MEMORY] = max(at[MEMORY], asked + MOVE) + seconds(n, loads.behind[0, number])
        at[READY] = max(at[READY], at[CORE], at[MEMORY] + n.load_latency)
    return left


class Edges(NamedTuple):
    """Cycles of a layer beside its sums: from its begin to the first trace, at least, and from
    where the last ends; what its early kernels cost the layer before counts as the end."""

    begin: float
    end: float


@device
def edges_of(n: Numbers, p: Choice, kernel_places: int) -> Edges:
    """Of the loads of the first step, and of the store of the last."""
    tall, wide = min(p.r, n.rows.out), min(p.c, n.columns.out)
    _, units, count = maps_moved(n, p, 0, 0, 0, tall, 0, wide)
    if n.has_residual:
        _, more, pieces = results_moved(n, p, 0, 0, 0, tall, 0, wide)
        units, count = units + more, count + pieces
    _, kernels, pieces = kernels_moved(n, p, 0, 0)
    early = 0.0
    if kernel_places > 1:
        early = EARLY_SHARE * (seconds(n, kernels) + MOVE * pieces)
    else:
        units, count = units + kernels, count + pieces
    row, column = (n.rows.out - 1) // p.r * p.r, (n.columns.out - 1) // p.c * p.c
    _, out, _ = results_moved(
        n, p, n.groups - 1, (n.filters - 1) // p.m, row, n.rows.out - row, column,
        n.columns.out - column,
    )  # fmt: skip
    begin = START + MOVE * count + seconds(n, units) + n.load_latency + ISSUE
    stored = n.vector_latency + RESULTS + MOVE + seconds(n, out) + n.store_latency
    return Edges(begin, stored + early)


class Extent(NamedTuple):
    """The results of a step: their first row and column, rows, columns, filters."""

    row: int
    column: int
    tall: int
    wide: int
    filters: int


@device
def _extent(n: Numbers, p: Choice, tile: Step) -> Extent:
    row, column = tile.map_row * p.r, tile.map_column * p.c
    return Extent(
        row, column, min(p.r, n.rows.out - row), min(p.c, n.columns.out - column),
        min(p.m, n.filters - tile.tile * p.m),
    )  # fmt: skip


@device
def _in_front(n: Numbers, loads: Loads, number: int, waits: bool, out, at) -> float:
    """When a step can issue its sums. It ``waits`` for the results of the last step, of ``out``
    units and transfers, where they have the only place: then none of them leave beside it."""
    begin = max(at[CORE], at[READY])
    if out[0] > 0 and waits:
        at[MEMORY] = max(at[MEMORY], at[RESULT]) + seconds(n, out[0])
        begin = max(begin, at[MEMORY] + n.store_latency)
        out[:] = 0.0
    if loads.late[0, number] > 0:
        if number:
            begin = max(begin, at[RESULT])
        begin += MOVE * loads.late[1, number]
        at[MEMORY] = max(at[MEMORY], begin) + seconds(n, loads.late[0, number])
        begin = at[MEMORY] + n.load_latency
    return begin


@device
def _step(
    n: Numbers, work, chunks: Chunks, loads: Loads, number: int, begin: float, start: float, out,
    at, costs,
) -> float:  # fmt: skip
    """A step's sums, which are ``work``, and what moves beside them. Gives when the last step's
    results have left."""
    cycles = work[CYCLES_OF]
    costs[VECTOR] += cycles
    moves = out[1] + loads.during[1, number] + loads.behind[1, number]
    issued = work[ISSUED] + CHUNK * chunks.parts + MOVE * moves
    hidden = n.queue * cycles / max(1.0, work[VECTORS])
    at[UNIT] = max(start + cycles, begin + issued)
    at[CORE] = max(begin + issued, at[UNIT] - hidden)
    gone = _beside(
        n, loads, number, chunks, out[0], out[1], begin, start, cycles, work[ISSUED], hidden, at
    )
    code = CODE_BYTES * (CHUNK_WORDS * chunks.parts + MOVE_WORDS * moves)
    units = loads.late[0, number] + loads.during[0, number] + loads.behind[0, number]
    costs[LOADS] += seconds(n, units + code / MEMORY_UNIT_BYTES)
    at[RESULT] = at[UNIT] + n.vector_latency + RESULTS
    return gone


@device
def timed(
    n: Numbers, p: Choice, room: tuple[int, int, int], best: float, costs
) -> bool:  # fmt: skip
    """Writes the `COSTS` of a plan that fits; False, and unfinished costs, as soon as it is sure
    that its time is more than ``best``."""
    costs[:] = 0.0
    tiles = tiles_of(n, p)
    costs[STEPS] = steps = n.groups * tiles.steps
    works = works_of(n, p, tiles)
    total = all_sums(n, tiles, works)
    edges = edges_of(n, p, room[1])
    if edges.begin + total + BETWEEN * (steps - 1) + edges.end > best:
        return False
    loads = loads_of(n, p, room, tiles, costs[IN_BYTES : WEIGHT_BYTES + 1])
    costs[LOADS] = seconds(n, loads.early[0])
    early = costs[LOADS] + MOVE * loads.early[1]
    left = np.zeros(MOST_CUS)  # when the results in a place have left
    at = np.full(5, START)
    at[MEMORY] = 0.0
    out = np.zeros(2)  # units and transfers of the last step's results
    turn, opens = -1, True
    known = nothing_known()
    for number in range(steps):
        tile = step_at(p, number % tiles.steps, tiles)
        extent = _extent(n, p, tile)
        last_turn = turn
        if opens:
            turn = (turn + 1) % room[2]
        begin = max(_in_front(n, loads, number, turn == last_turn, out, at), left[turn])
        start = max(at[UNIT] + BETWEEN, begin + ISSUE)
        left_over = total - costs[VECTOR] + BETWEEN * (steps - number - 1)
        if start + left_over + edges.end > best:
            return False
        last = 1 if tile.tile == tiles.kernels - 1 else 0
        work = works[tile.map_row, tile.map_column, last, tile.depth]
        chunks = chunks_of(n, p, extent.filters, extent.tall, extent.wide, tiles.depths)
        gone = _step(n, work, chunks, loads, number, begin, start, out, at, costs)
        if out[0] > 0:
            left[last_turn] = gone
        opens = tile.depth == tiles.depths - 1
        out[:] = 0.0
        if opens:
            size, out[0], out[1] = alike_results(
                n, p, number // tiles.steps, tile.tile, extent.row, extent.tall, extent.column,
                extent.wide, known,
            )  # fmt: skip
            costs[STORES] += seconds(n, out[0])
            costs[OUT_BYTES] += size
    at[MEMORY] = max(at[MEMORY], at[RESULT] + MOVE) + seconds(n, out[0])
    ends = max(at[MEMORY], at[UNIT] + MOVE * out[1]) + n.store_latency
    transfers = START + costs[LOADS] + costs[STORES] + n.vector_latency + n.store_latency
    costs[CYCLES] = resolved(max(ends, transfers) + EARLY_SHARE * early)
    costs[ALONE] = ends + early
    return True


@entry
def cost_of(n, p, costs):
    """`timed`; False where the plan does not fit."""
    room = fitting(n, p)
    if room[0] == 0:
        return False
    return timed(n, p, room, np.inf, costs)


@entry
def places_of(n, p):
    """`fitting`, for Python."""
    return fitting(n, p)
