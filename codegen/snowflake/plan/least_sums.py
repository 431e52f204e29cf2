"""The least that the vector unit takes for all sums of a plan, for compiled code.

`step_sums.all_sums` in parts: what a row of results takes depends on the columns of the tile that
it is in, and how many rows there are with so many taps depends on the rows of the tiles. Left out
is what groups of filters take in a loop around several rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan.counting import alike_tiles
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import depth_parts, together
from tvm_npu.codegen.snowflake.plan.sums_time import CYCLES_OF, add_group, column_kinds, row_kinds
from tvm_npu.sim.compiled import device

ALONE, SEVERAL = range(2)
"""Rows with as many taps as no other row of the tile has, and as others have."""


class Rows(NamedTuple):
    """By `ALONE` or `SEVERAL`, rows a tile and kind of row (`sums_time.alike`): rows of all tiles;
    by kind whether there are any."""

    counts: np.ndarray
    come: np.ndarray


class Columns(NamedTuple):
    """What a row of all tiles takes for all filters, by `ALONE` or `SEVERAL`, columns a tile and
    kind of row: for the ``filters`` a tile for which that was computed last."""

    cycles: np.ndarray
    filters: np.ndarray


@device
def rows_of(n: Numbers, mode: int, most: int) -> Rows:
    kinds = np.zeros(2 * n.rows.kernel + 1, np.int64)
    counts = np.zeros((2, most + 1, len(kinds)))
    come = np.zeros(len(kinds), np.bool_)
    for size in range(1, most + 1):
        begin = 0
        while begin < n.rows.out:
            tiles = alike_tiles(n.rows, begin, size)
            row_kinds(n, mode, begin, min(size, n.rows.out - begin), kinds)
            for t in range(1, len(kinds)):
                if kinds[t] > 0:
                    come[t] = True
                    counts[ALONE if kinds[t] == 1 else SEVERAL, size, t] += tiles * kinds[t]
            begin += tiles * size
    return Rows(counts, come)


@device
def columns_of(n: Numbers, most: int) -> Columns:
    """Nothing is computed yet."""
    return Columns(
        np.zeros((2, most + 1, 2 * n.rows.kernel + 1)), np.zeros(most + 1, np.int64)
    )


@device
def least_sums(
    n: Numbers, mode: int, m: int, r: int, c: int, rows: Rows, columns: Columns
) -> float:  # fmt: skip
    """Cycles for ``m`` filters, ``r`` rows and ``c`` columns a tile; 0 where kernels come in
    parts."""
    if depth_parts(n, mode) > 1:
        return 0.0
    if columns.filters[c] != m:
        _compute(n, mode, m, c, rows, columns)
        columns.filters[c] = m
    total = 0.0
    for of in range(2):
        for t in range(1, len(rows.come)):
            total += rows.counts[of, r, t] * columns.cycles[of, c, t]
    return n.groups * total


@device
def _compute(n: Numbers, mode: int, m: int, c: int, rows: Rows, columns: Columns) -> None:
    across = np.zeros(2 * n.columns.kernel + 1, np.int64)
    down, work = np.zeros(len(rows.come), np.int64), np.zeros(3)
    columns.cycles[:, c] = 0.0
    begin = 0
    while begin < n.columns.out:
        tiles = alike_tiles(n.columns, begin, c)
        column_kinds(n, mode, begin, min(c, n.columns.out - begin), across)
        for t in range(1, len(down)):
            if rows.come[t]:
                for of in range(2):
                    down[t] = of + 1
                    each = _filters(n, mode, m, down, across, work) / (of + 1)
                    columns.cycles[of, c, t] += tiles * each
                down[t] = 0
        begin += tiles * c


@device
def _filters(n: Numbers, mode: int, m: int, down, across, work) -> float:
    """Cycles of the sums of all filters, in tiles of ``m``."""
    whole = n.filters // m
    total = 0.0
    if whole > 0:
        total += whole * _tile(n, mode, m, m, down, across, work)
    if n.filters % m > 0:
        total += _tile(n, mode, n.filters % m, m, down, across, work)
    return total


@device
def _tile(n: Numbers, mode: int, filters: int, m: int, down, across, work) -> float:
    """Of a tile of filters, one group after the other without a loop around them."""
    unit = together(n, mode)
    whole, rest = divmod(filters, unit)
    step, total = min(m, filters), 0.0
    if whole > 0:
        work[:] = 0.0
        add_group(n, mode, 1, unit, step, down, across, work)
        total += whole * work[CYCLES_OF]
    if rest > 0:
        work[:] = 0.0
        add_group(n, mode, 1, rest, step, down, across, work)
        total += work[CYCLES_OF]
    return total
