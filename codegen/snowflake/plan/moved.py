"""What the transfers of tiles move, for compiled code: bytes, 64-byte units, and their number.
Tensors are taken to begin at units of memory."""

from __future__ import annotations

from tvm_npu.codegen.snowflake.plan.counting import (
    COOP,
    LANE,
    Along,
    piece,
    pieces,
    run_units,
    span,
    tap_step,
    touched,
)
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import (
    Choice,
    depth_parts,
    depth_words,
    kernel_at,
    kernel_words,
    share,
    spreads_columns,
    together,
)
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, VMACS, WORD_BYTES


@device
def box(
    size_columns: int, row: int, rows: int, column: int, columns: int, plane: int, planes: int,
    pitch: int, row_words: int,
) -> tuple[float, int]:  # fmt: skip
    """(units, transfers) of a box of pixels (`steps.maps.moves`)."""
    if rows <= 0 or columns <= 0 or planes <= 0:
        return 0.0, 0
    begin = WORD_BYTES * ((row * size_columns + column) * pitch + plane)
    in_pixel, in_row = WORD_BYTES * pitch, WORD_BYTES * pitch * size_columns
    size = WORD_BYTES * planes
    whole = columns == size_columns and row_words == columns * planes
    if pitch == planes:
        if whole:
            return run_units(begin, rows * columns * size, 0, 1), 1
        return run_units(begin, columns * size, in_row, rows), 1
    if whole:
        return run_units(begin, size, in_pixel, rows * columns), 1
    units = 0.0
    period = max(1, min(rows, MEMORY_UNIT_BYTES))
    for k in range(period):
        units += run_units(begin + k * in_row, size, in_pixel, columns)
    return units * rows / period, rows


@device
def part(axis: Along, begin: int, count: int, cus: int, cu: int) -> tuple[int, int]:
    """(begin, count) of the results that a CU has."""
    each = ceil_div(count, cus)
    first = min(cu * each, count)
    return begin + first, max(0, min(each, count - first))


@device
def maps_moved(
    n: Numbers, p: Choice, group: int, tile: int, row: int, rows: int, column: int, columns: int
) -> tuple[int, float, int]:
    """(bytes, units, transfers) of a tile of maps; ``tile`` is that of kernels."""
    planes, plane = n.planes, group * n.planes
    if p.mode == LANE:
        plane = tile * p.m
        planes = min(p.m, n.planes - plane)
    parts = 1 if p.mode == COOP else n.cus
    spread = spreads_columns(n, p.mode)
    size, units, transfers = 0, 0.0, 0
    row_step = tap_step(n.rows, rows if spread else share(n, p.mode, rows))
    column_step = tap_step(n.columns, share(n, p.mode, columns) if spread else columns)
    wide = touched(n.columns, column, columns, column_step)
    if spread:
        wide = span(n.columns, share(n, p.mode, columns))
    for cu in range(parts):
        at_row, at_column, down, across = row, column, rows, columns
        if spread:
            at_column, across = part(n.columns, column, columns, parts, cu)
        elif parts > 1:
            at_row, down = part(n.rows, row, rows, parts, cu)
        if down == 0 or across == 0:
            continue
        for i in range(pieces(n.rows, row_step)):
            top, tall = piece(n.rows, at_row, down, row_step, i)
            for j in range(pieces(n.columns, column_step)):
                left, inside = piece(n.columns, at_column, across, column_step, j)
                found, count = box(
                    n.columns.size, top, tall, left, inside, plane, planes, n.in_pitch,
                    wide * planes,
                )  # fmt: skip
                size += WORD_BYTES * tall * inside * planes
                units += found
                transfers += count
    return size, units, transfers


@device
def results_moved(
    n: Numbers, p: Choice, group: int, tile: int, row: int, rows: int, column: int, columns: int
) -> tuple[int, float, int]:
    """The same of a tile of results (or residuals)."""
    plane = tile * p.m
    planes = min(p.m, n.filters - plane)
    plane += group * n.filters
    parts = 1 if p.mode == COOP else n.cus
    spread = spreads_columns(n, p.mode)
    wide = share(n, p.mode, columns) if spread else columns
    units, transfers = 0.0, 0
    for cu in range(parts):
        at_row, at_column, down, across = row, column, rows, columns
        if spread:
            at_column, across = part(n.columns, column, columns, parts, cu)
        elif parts > 1:
            at_row, down = part(n.rows, row, rows, parts, cu)
        found, count = box(
            n.columns.out, at_row, down, at_column, across, plane, planes, n.out_pitch,
            wide * planes,
        )  # fmt: skip
        units += found
        transfers += count
    return WORD_BYTES * rows * columns * planes, units, transfers


@device
def kernels_moved(n: Numbers, p: Choice, tile: int, depth: int) -> tuple[int, float, int]:
    """The same of a tile of kernels, or of a part of its depth."""
    filters = min(p.m, n.filters - tile * p.m)
    groups = ceil_div(filters, together(n, p.mode))
    pieces = together(n, p.mode) if p.mode == COOP else VMACS
    if groups == 1:
        pieces = min(pieces, filters if p.mode == COOP else ceil_div(filters, LANES))
    words = groups * kernel_words(n, p.mode)
    if depth_parts(n, p.mode) > 1:
        begin = kernel_at(p.mode) + depth * depth_words(n, p.mode)
        end = min(begin + depth_words(n, p.mode), words)
        words = end - (begin if depth else 0)
    size = WORD_BYTES * words
    # Pieces lie one behind the other.
    return pieces * size, run_units(0, size, size + MEMORY_UNIT_BYTES, pieces), pieces
