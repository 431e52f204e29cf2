"""What a search of `exact` knows of plans before it looks at them one by one, compiled: of tiles by
their size, of all plans with so many filters a tile, and bounds on their times in cycles:

  vector   traces of all sums, behind the loads of the first step and in front of the store of the
           last; for all plans with so many filters and rows a tile, columns at their least
  core     what issuing takes at least
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan import sums_time, timeline
from tvm_npu.codegen.snowflake.plan.counting import (
    COOP,
    LANE,
    alike_tiles,
    tap_step,
    touched,
)
from tvm_npu.codegen.snowflake.plan.joint import (
    Bytes,
    bytes_of,
    dealt,
    inputs_inside,
    kernel_bytes,
    tile_inputs,
)
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    depth_parts,
    spreads_columns,
    tile_columns,
    tile_rows,
    together,
)
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.compiled.reductions import least
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, WORD_BYTES

MAP_PLACES = 2
"""Of tiles of maps, at most."""


TRACES, INSIDE, FIRST, LARGEST, SERVED, FEWEST_INSIDE, FEWEST_SERVED = range(7)
"""What `Sizes` have: rows of taps of all rows, or cycles of a row of taps of all columns; inputs of
all tiles, of the first tile (each CU its own), of the largest one; of columns words of a row of all
tiles that the memory serves, at least, and the fewest inputs and words of tiles of as many or
less."""


class Sizes(NamedTuple):
    """Of rows or columns, ``by`` size of a tile, from 1 on: `TRACES` and so on."""

    by: np.ndarray
    least_traces: float
    least_inside: float


@device
def largest(sizes: Sizes, size: int) -> int:
    """Inputs of the largest tile."""
    return int(sizes.by[size, LARGEST])


@device
def row_sizes(n: Numbers, mode: int, most: int) -> Sizes:
    kinds = np.zeros(2 * n.rows.kernel + 1, np.int64)
    by, cus = np.zeros((most + 1, 7)), dealt(n, mode)[0]
    for size in range(1, most + 1):
        by[size, TRACES] = sums_time.least_rows(n, mode, size, kinds)
        by[size, INSIDE] = inputs_inside(n.rows, size, cus)
        by[size, FIRST] = tile_inputs(n.rows, 0, size, cus)
        by[size, LARGEST] = tile_rows(n, mode, size)
    return Sizes(by, least(by[1:, TRACES]), least(by[1:, INSIDE]))


@device
def whole_units(words: int) -> int:
    """Words rounded up to units of memory."""
    unit = MEMORY_UNIT_BYTES // WORD_BYTES
    return ceil_div(words, unit) * unit


@device
def _served(n: Numbers, size: int) -> float:
    """Words of a row of all tiles that the memory serves, at least: whole units of a part of it."""
    total, begin = 0, 0
    while begin < n.columns.out:
        tiles = alike_tiles(n.columns, begin, size)
        count = min(size, n.columns.out - begin)
        pixels = touched(n.columns, begin, count, tap_step(n.columns, count))
        words = pixels * n.planes
        total += tiles * (words if pixels == n.columns.size else whole_units(words))
        begin += tiles * size
    return float(total)


@device
def column_sizes(n: Numbers, mode: int, most: int) -> Sizes:
    kinds = np.zeros(2 * n.columns.kernel + 1, np.int64)
    by, cus = np.zeros((most + 1, 7)), dealt(n, mode)[1]
    by[0, FEWEST_INSIDE] = by[0, FEWEST_SERVED] = np.inf
    in_units = not spreads_columns(n, mode) and n.planes == n.in_pitch
    for size in range(1, most + 1):
        inside = inputs_inside(n.columns, size, cus)
        served = _served(n, size) if in_units else float(n.planes * inside)
        by[size, TRACES] = sums_time.least_columns(n, mode, size, LANES, kinds)
        by[size, INSIDE] = inside
        by[size, LARGEST] = tile_columns(n, mode, size)
        by[size, SERVED] = served
        by[size, FEWEST_INSIDE] = min(by[size - 1, FEWEST_INSIDE], float(inside))
        by[size, FEWEST_SERVED] = min(by[size - 1, FEWEST_SERVED], served)
    return Sizes(by, least(by[1:, TRACES]), least(by[1:, INSIDE]))


@device
def sums_of(n: Numbers, mode: int, m: int) -> int:
    """Sums of a result, one after the other: groups of filters, in mode lane lines of channels."""
    unit = LANES if mode == LANE else together(n, mode)
    return n.filters // m * ceil_div(m, unit) + ceil_div(n.filters % m, unit)


class Fixed(NamedTuple):
    """What all plans of a part with so many filters a tile share: tiles of them, sums of a result
    (0 where kernels come in parts), bytes of a group's kernels and of all results, cycles of the
    core for the `vmov`s of a sum and of its groups, and cycles before the first and after the last
    trace."""

    tiles: int
    sums: float
    groups: int
    kernels: float
    results: float
    ends: float


@device
def fixed_of(n: Numbers, mode: int, m: int) -> Fixed:
    split = depth_parts(n, mode) > 1
    unit = together(n, mode)
    groups = n.filters // m * ceil_div(m, unit) + ceil_div(n.filters % m, unit)
    return Fixed(
        ceil_div(n.filters, m),
        0.0 if split else float(sums_of(n, mode, m) * n.groups),
        0 if split else groups * n.groups,
        float(kernel_bytes(n, mode, m)),
        float(WORD_BYTES * n.filters * n.groups * n.rows.out * n.columns.out),
        timeline.START + n.vector_latency + n.store_latency,
    )


@device
def by_rows(n: Numbers, fixed: Fixed, rows: Sizes, columns: Sizes, r: int) -> float:
    """A bound on all plans with ``r`` rows a tile."""
    vector = fixed.sums * rows.by[r, TRACES] * columns.least_traces
    moved = WORD_BYTES * rows.by[r, INSIDE] * columns.least_inside * n.planes * n.groups
    moved += fixed.kernels * n.groups + fixed.results * (2 if n.has_residual else 1)
    return max(vector, moved / n.rate) + fixed.ends


@device
def by_columns(
    n: Numbers, fixed: Fixed, rows: Sizes, columns: Sizes, mode: int, m: int, r: int, c: int
) -> float:
    """A bound on both orders of ``r`` rows and ``c`` columns a tile."""
    vector = fixed.sums * rows.by[r, TRACES] * columns.by[c, TRACES]
    core = _core(n, mode, fixed, m, r, c, rows.by[r, TRACES])
    return max(vector + between(n, mode, fixed, r, c), core) + fixed.ends


@device
def between(n: Numbers, mode: int, fixed: Fixed, r: int, c: int) -> float:
    """What the vector unit loses between steps."""
    maps = ceil_div(n.rows.out, r) * ceil_div(n.columns.out, c)
    steps = n.groups * fixed.tiles * maps * depth_parts(n, mode)
    return timeline.BETWEEN * (steps - 1)


@device
def _core(n: Numbers, mode: int, fixed: Fixed, m: int, r: int, c: int, taps: float) -> float:
    """The least that the core takes to issue: each trace with an address, each sum with its
    `vmov`s, each step with its special registers and transfers."""
    down, across = ceil_div(n.rows.out, r), ceil_div(n.columns.out, c)
    steps = n.groups * fixed.tiles * down * across
    stores = steps
    if c < n.columns.out and m < n.out_pitch:
        stores = n.groups * fixed.tiles * across * n.rows.out
    cus = 1 if mode == COOP else n.cus
    columns = ceil_div(n.columns.out, cus) if spreads_columns(n, mode) else n.columns.out
    rows = ceil_div(n.rows.out, cus) if columns == n.columns.out else n.rows.out
    preloads = 2 if n.has_residual else 1
    sums = fixed.groups * columns * (2 * taps + preloads * rows)
    if n.rows.kernel * n.columns.kernel > 1 or fixed.groups == 0:
        sums = fixed.groups * columns * rows * (1 + preloads)
    return sums + steps * timeline.CHUNK + stores * timeline.MOVE


@device
def moved_of(
    n: Numbers, p: Choice, fixed: Fixed, rows: Sizes, columns: Sizes, map_places: int,
    kernel_places: int,
) -> Bytes:  # fmt: skip
    """`bytes_of`, out of what is known of the sizes."""
    inside = rows.by[p.r, INSIDE] * columns.by[p.c, INSIDE]
    return bytes_of(n, p, inside, fixed.kernels, map_places, kernel_places)


@device
def total_of(found: Bytes) -> float:
    return found.maps + found.kernels + found.results
