"""Bounds on plans whose steps wait for transfers, or for the steps before, for compiled code."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.counting import COOP, LANE, inside_tiles
from tvm_npu.codegen.snowflake.plan.exact_bounds import Sizes
from tvm_npu.codegen.snowflake.plan.joint import dealt
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import Choice
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
from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, WORD_BYTES


@device
def _padded(planes: int, m: int, pitch: int) -> int:
    """Words of a pixel's ``planes`` that the memory serves in tiles of ``m``, at least: whole units
    where the pixels of a tile do not lie together."""
    if m >= planes and planes == pitch:
        return planes
    unit = MEMORY_UNIT_BYTES // WORD_BYTES
    return unit * (planes // m * ceil_div(m, unit) + ceil_div(planes % m, unit))


@device
def in_turn(
    n: Numbers, p: Choice, room, edges, vector: float, rows: Sizes, columns: Sizes
) -> float:  # fmt: skip
    """A bound on the time of a plan whose kernels come whole: what `timeline.timed` has between the
    begin of a step and that of the next one, by transfers where each step has maps of its own, and
    by the step itself where that has the only place of something. ``vector`` are the cycles of all
    sums."""
    tiles = ceil_div(n.filters, p.m)
    maps_tiles = ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    turns = n.groups * tiles * maps_tiles - 1
    if turns == 0:
        return 0.0
    again, one, own = 1, min(p.m, n.filters), n.planes
    if p.mode == LANE:
        again, own = 1, one
        loads = turns
    else:
        again = tiles if not p.maps_stay and maps_tiles > room[0] else 1
        loads = n.groups * maps_tiles * again - 1
    each = float(min(p.r, n.rows.out) * min(p.c, n.columns.out) * _padded(one, one, 0))
    results = n.groups * n.rows.out * n.columns.out * _padded(n.filters, p.m, n.out_pitch) - each
    maps = n.groups * rows.inside[p.r] * columns.inside[p.c] * again
    maps *= _padded(n.planes, own, n.in_pitch)
    cus = 1 if p.mode == COOP else n.cus
    maps -= cus * rows.largest[p.r] * columns.largest[p.c] * _padded(own, own, 0)
    residual = results if n.has_residual else 0.0
    load = timeline.MOVE + n.load_latency
    waits = room[2] == 1
    late = (residual if waits else 0.0) + (maps if room[0] == 1 else 0.0)
    late_loads = 0
    if waits and n.has_residual:
        late_loads = turns
    elif room[0] == 1:
        late_loads = loads
    least = 0.0
    if loads == turns:
        chain, words = float(timeline.CHUNK + timeline.MOVE), maps + results + residual
        if waits:
            chain += n.store_latency
            late_cycles = late_loads * load
        else:
            chain += n.load_latency
            words -= each
            late_cycles = 0.0
        least = turns * chain + late_cycles + WORD_BYTES * max(0.0, words) / n.rate
        least += _issued_first(n, p, room) + _last_cycles(n, p, np.zeros(3))
    if waits or room[0] == 1:
        stops = turns if waits else late_loads
        alone = vector + stops * (timeline.ISSUE + n.vector_latency + timeline.RESULTS)
        alone += timeline.BETWEEN * (turns - stops) + late_loads * load
        if waits:
            alone += turns * n.store_latency
        alone += WORD_BYTES * max(0.0, late + (results if waits else 0.0)) / n.rate
        least = max(least, alone)
    return edges.begin + least + edges.end if least > 0.0 else 0.0


@device
def _last_cycles(n: Numbers, p: Choice, work) -> float:
    """Of the sums of the last step."""
    rows = np.zeros(2 * n.rows.kernel + 1, np.int64)
    columns = np.zeros(2 * n.columns.kernel + 1, np.int64)
    row, column = (n.rows.out - 1) // p.r * p.r, (n.columns.out - 1) // p.c * p.c
    row_kinds(n, p.mode, row, n.rows.out - row, rows)
    column_kinds(n, p.mode, column, n.columns.out - column, columns)
    tile_work(n, p, n.filters - (n.filters - 1) // p.m * p.m, 0, rows, columns, work)
    return work[CYCLES_OF]


@device
def _issued_first(n: Numbers, p: Choice, room) -> float:
    """Cycles of all steps but the last until their first chunks are issued, `timeline.CHUNK` left
    out, and those in which their code comes; of whole tiles, for the first without padding."""
    down, across = dealt(n, p.mode)
    tall, wide = ceil_div(p.r, down), ceil_div(p.c, across)
    transfers = ceil_div(p.r, tall) * ceil_div(p.c, wide)  # of each CU that has any results
    chunks = timeline.chunks_of(n, p, p.m, p.r, p.c, 1)
    words = chunks.parts * timeline.CHUNK_WORDS
    if room[0] > 1:
        words += timeline.MOVE_WORDS * transfers
    whole = n.groups * (n.filters // p.m) * (n.rows.out // p.r) * (n.columns.out // p.c)
    code = max(0, whole - 1) * words
    if room[2] > 1:
        code += max(0, whole - 2) * timeline.MOVE_WORDS * transfers
    found = timeline.CODE_BYTES * code / n.rate
    inside = inside_tiles(n.rows, p.r) * inside_tiles(n.columns, p.c)
    inside = n.groups * (n.filters // p.m) * inside - 1
    if inside <= 0:
        return found
    rows = np.zeros(2 * n.rows.kernel + 1, np.int64)
    columns, work = np.zeros(2 * n.columns.kernel + 1, np.int64), np.zeros(3)
    rows[n.rows.kernel], columns[n.columns.kernel] = tall, wide
    tile_work(n, p, p.m, 0, rows, columns, work)
    cycles, issued = work[CYCLES_OF], work[ISSUED]
    hidden = n.queue * cycles / max(1.0, work[VECTORS])
    first = max(
        chunks.first * issued,
        timeline.ISSUE + chunks.first * cycles - hidden - timeline.CHUNK,
    )
    return found + inside * first
