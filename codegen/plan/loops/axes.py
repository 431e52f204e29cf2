"""How the tiles of a loop cut tensors: how many there are, and what of the IFM lies under them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tvm_npu.codegen.plan.loops.plan import Loop, LoopPlan, in_extent, trips
from tvm_npu.codegen.plan.problem import ConvProblem


class InAxis(NamedTuple):
    """IFM rows (or columns) under the tiles of the loop over OFM rows (columns). What lies outside
    of the IFM is padding and not counted."""

    tiles: int
    inside: int
    """Rows of all tiles together; those under two tiles count twice."""
    largest: int
    """Rows of the largest tile."""
    full: int
    """Tiles that have all rows of the IFM."""
    filled: int
    """Tiles that have any."""


def in_axis(problem: ConvProblem, loop: Loop, tile: int) -> InAxis:
    """What tiles of ``tile`` OFM rows (``loop`` "R") or columns ("C") need of the IFM."""
    axis = 0 if loop == "R" else 1
    size, extent = (
        (problem.in_rows, problem.rows) if axis == 0 else (problem.in_columns, problem.columns)
    )
    return _in_axis(
        extent,
        tile,
        size,
        problem.stride[axis],
        (problem.kernel[axis] - 1) * problem.dilation[axis] + 1,
        problem.padding[axis],
    )


@lru_cache(maxsize=1 << 16)
def _in_axis(extent: int, tile: int, size: int, stride: int, reach: int, padding: int) -> InAxis:
    inside = largest = full = filled = 0
    for begin in range(0, extent, tile):
        low = begin * stride - padding
        high = low + (min(tile, extent - begin) - 1) * stride + reach
        count = max(min(high, size) - min(max(low, 0), size), 0)
        inside += count
        largest = max(largest, count)
        full += count == size
        filled += count > 0
    return InAxis(-(-extent // tile), inside, largest, full, filled)


class KeptRows(NamedTuple):
    """Of the IN tiles of the loop over OFM rows those that take rows from the tile before: they
    begin in it, below its first row."""

    tiles: int
    bringing: int
    """Those among them that have other rows, too."""
    kept: int
    """Rows that move, of all these tiles together."""
    brought: int
    """Rows that come from outside."""


NONE_KEPT = KeptRows(0, 0, 0, 0)


def kept_rows(problem: ConvProblem, tile: int) -> KeptRows:
    """What tiles of ``tile`` OFM rows, one after another, leave to the next."""
    tiles = bringing = kept = brought = 0
    before = (0, 0)
    for begin in range(0, problem.rows, tile):
        first, count, _ = in_extent(problem, begin, min(tile, problem.rows - begin), "R")
        if not count:
            continue
        both = shared_rows(before, (first, count))
        if both:
            tiles += 1
            kept += both
            brought += count - both
            bringing += count > both
        before = (first, count)
    return KeptRows(tiles, bringing, kept, brought)


def can_keep_rows(problem: ConvProblem, plan: LoopPlan) -> bool:
    """IN tiles follow each other down the rows, and some have rows of the one before."""
    inside = plan.order[plan.order.index("R") :]
    if any(trips(problem, plan, loop) > 1 for loop in inside if loop in "NC"):
        return False
    return kept_rows(problem, plan.tile_r).kept > 0


def shared_rows(before: tuple[int, int], rows: tuple[int, int]) -> int:
    """How many of ``rows`` (begin, count) a tile keeps of those of the tile before: none unless it
    begins below the first of them."""
    if rows[0] <= before[0]:
        return 0
    return max(0, min(sum(before), sum(rows)) - rows[0])


def largest_inside(problem: ConvProblem, loop: Loop, tile: int) -> int:
    """`InAxis.largest`, counted tile by tile with `in_extent`."""
    total = problem.rows if loop == "R" else problem.columns
    begins = range(0, total, tile)
    return max(in_extent(problem, at, min(tile, total - at), loop)[1] for at in begins)
