"""Rows of a convolution's OFM that stay on chip for the next tile of the window behind it.

A TLT that goes down its map tile by tile needs the last ``kernel - stride`` rows of the OFM under
one tile again under the next. With `ConvPlan.keeps_rows` these stay in MB2, where the OFM lies row
by row (all filters of a row, then those of the next), and only the rows behind them are loaded and
multiplied: a row at a time, as an instruction writes all rows of a filter one behind the other.
Behind the window a copy brings the rows that stay to the front.

An instruction for row j of a tile names an IN tile that begins j rows later, and so ends as much
behind the tile in MB0, and one that copies a row names a box that ends up to a channel later.
Nothing there is read, but it must be in MB0, and nothing may arrive there meanwhile. So there is
room between two IN tiles (`guard_elements`); behind the last one lies what the window reads, which
comes later.
"""

from __future__ import annotations

from tvm_npu.codegen.plan.problem import ConvProblem


def shared_rows(problem: ConvProblem) -> int:
    """Rows of the convolution's OFM that windows of one row and of the next have in common."""
    window = problem.window
    return 0 if window is None else max(0, window.kernel[0] - window.stride[0])


def least_tile_rows(problem: ConvProblem) -> int:
    """Rows of an OUT tile from which on all windows of the next tiles begin inside of the OFM."""
    window = problem.window
    return 1 if window is None else max(1, -(-window.padding[0] // window.stride[0]))


def reaches_last_row(problem: ConvProblem) -> bool:
    """Windows of the last row but one end inside of the OFM, so that there is all that stays."""
    window = problem.window
    if window is None:
        return False
    end = (window.rows - 2) * window.stride[0] - window.padding[0] + window.kernel[0]
    return end <= problem.rows


def has_whole_rows(problem: ConvProblem) -> bool:
    """Under no new row of the OFM there are no less than no rows of the IFM."""
    return problem.in_tile_rows(0) >= 0


def may_keep_rows(problem: ConvProblem) -> bool:
    return shared_rows(problem) > 0 and reaches_last_row(problem) and has_whole_rows(problem)


def guard_elements(problem: ConvProblem, middle_rows: int, middle_columns: int) -> int:
    """Behind an IN tile under ``middle_rows`` x ``middle_columns`` of the OFM."""
    return (middle_rows - 1) * problem.stride[0] * problem.in_tile_columns(middle_columns)


def in_room(in_bytes: int, copies: int, guard: int) -> int:
    """Bytes of MB0 up to the end of the last IN tile, with ``guard`` between two of them."""
    return copies * in_bytes + (copies - 1) * guard
