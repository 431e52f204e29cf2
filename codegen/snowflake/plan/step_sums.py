"""What the sums of each step of a convolution take, for compiled code."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.snowflake.plan.counting import COOP
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import Choice, depth_parts, depth_words, together
from tvm_npu.codegen.snowflake.plan.step_loads import Tiles
from tvm_npu.codegen.snowflake.plan.sums_time import (
    CYCLES_OF,
    ISSUED,
    VECTORS,
    add_group,
    column_kinds,
    row_kinds,
)
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.compiled.reductions import are_same, total_of_plane
from tvm_npu.sim.snowflake.isa import LANES


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
def works_of(n: Numbers, p: Choice, tiles: Tiles):
    """`tile_work` of the steps, by row and column of the tile, whether its kernels are the last
    tile of them, and part of the depth."""
    rows = np.zeros((tiles.down, 2 * n.rows.kernel + 1), np.int64)
    columns = np.zeros((tiles.across, 2 * n.columns.kernel + 1), np.int64)
    for i in range(tiles.down):
        row_kinds(n, p.mode, i * p.r, min(p.r, n.rows.out - i * p.r), rows[i])
    for j in range(tiles.across):
        column_kinds(n, p.mode, j * p.c, min(p.c, n.columns.out - j * p.c), columns[j])
    rest = n.filters - (tiles.kernels - 1) * p.m
    found = np.zeros((tiles.down, tiles.across, 2, tiles.depths, 3))
    for i in range(tiles.down):
        if i > 0 and are_same(rows[i], rows[i - 1]):
            found[i] = found[i - 1]
            continue
        for j in range(tiles.across):
            if j > 0 and are_same(columns[j], columns[j - 1]):
                found[i, j] = found[i, j - 1]
                continue
            for depth in range(tiles.depths):
                tile_work(n, p, rest, depth, rows[i], columns[j], found[i, j, 1, depth])
                if rest == p.m or tiles.kernels == 1:
                    found[i, j, 0, depth] = found[i, j, 1, depth]
                else:
                    tile_work(n, p, p.m, depth, rows[i], columns[j], found[i, j, 0, depth])
    return found


@device
def all_sums(n: Numbers, tiles: Tiles, works) -> float:
    """Cycles of the vector unit for all steps."""
    total = 0.0
    for depth in range(tiles.depths):
        whole = total_of_plane(works[:, :, 0, depth, CYCLES_OF]) * (tiles.kernels - 1)
        total += n.groups * (whole + total_of_plane(works[:, :, 1, depth, CYCLES_OF]))
    return total
