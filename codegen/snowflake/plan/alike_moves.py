"""What the transfers of tiles move, computed once for tiles that are alike, for compiled code.

What a tile moves depends on its size, and on where in a unit of memory it begins; of maps also on
what of it is padding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan.counting import LANE, Along, end_tap, first_tap
from tvm_npu.codegen.snowflake.plan.moved import maps_moved, results_moved
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import Choice
from tvm_npu.sim.compiled import device
from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, WORD_BYTES

UNIT_WORDS = MEMORY_UNIT_BYTES // WORD_BYTES


class Known(NamedTuple):
    """By the word of a unit of memory at which tiles begin: rows, columns and planes of the one
    that was computed last, and what it moves (`moved.maps_moved`)."""

    sizes: np.ndarray
    moved: np.ndarray


@device
def nothing_known() -> Known:
    return Known(np.zeros((UNIT_WORDS, 3), np.int64), np.zeros((UNIT_WORDS, 3)))


@device
def alike_results(
    n: Numbers, p: Choice, group: int, tile: int, row: int, rows: int, column: int, columns: int,
    known: Known,
) -> tuple[int, float, int]:  # fmt: skip
    """`moved.results_moved`."""
    planes = min(p.m, n.filters - tile * p.m)
    begin = (row * n.columns.out + column) * n.out_pitch + group * n.filters + tile * p.m
    at = begin % UNIT_WORDS
    sizes, moved = known.sizes[at], known.moved[at]
    if sizes[0] != rows or sizes[1] != columns or sizes[2] != planes:
        moved[0], moved[1], moved[2] = results_moved(
            n, p, group, tile, row, rows, column, columns
        )
        sizes[0], sizes[1], sizes[2] = rows, columns, planes
    return int(moved[0]), moved[1], int(moved[2])


@device
def alike_maps(
    n: Numbers, p: Choice, group: int, tile: int, row: int, rows: int, column: int, columns: int,
    known: Known,
) -> tuple[int, float, int]:  # fmt: skip
    """`moved.maps_moved`."""
    if not (_is_inside(n.rows, row, rows) and _is_inside(n.columns, column, columns)):
        return maps_moved(n, p, group, tile, row, rows, column, columns)
    planes, plane = n.planes, group * n.planes
    if p.mode == LANE:
        plane = tile * p.m
        planes = min(p.m, n.planes - plane)
    top = row * n.rows.stride - n.rows.before
    left = column * n.columns.stride - n.columns.before
    at = ((top * n.columns.size + left) * n.in_pitch + plane) % UNIT_WORDS
    sizes, moved = known.sizes[at], known.moved[at]
    if sizes[0] != rows or sizes[1] != columns or sizes[2] != planes:
        moved[0], moved[1], moved[2] = maps_moved(n, p, group, tile, row, rows, column, columns)
        sizes[0], sizes[1], sizes[2] = rows, columns, planes
    return int(moved[0]), moved[1], int(moved[2])


@device
def _is_inside(axis: Along, begin: int, count: int) -> bool:
    """No window touches padding."""
    return first_tap(axis, begin) == 0 and end_tap(axis, begin + count - 1) == axis.kernel
