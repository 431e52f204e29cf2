"""Tiles that a search of `exact` looks at: the largest that may fit, and a few of all sizes, for
compiled code."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.snowflake.plan.counting import whole_lines
from tvm_npu.codegen.snowflake.plan.exact_bounds import Sizes, largest
from tvm_npu.codegen.snowflake.plan.joint import within
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import Choice, out_words, tile_planes
from tvm_npu.sim.compiled import device


@device
def most_columns(layer, mode, sizes_m, most_c):
    """Columns of a tile of one row, at most: more results do not fit the MBufs, whatever else."""
    low, high = 1, most_c
    while low < high:
        c = (low + high + 1) // 2
        fits = True
        for number in range(layer.distinct):
            n = layer.parts[number]
            p = within(n, Choice(mode, sizes_m[-1], 1, c, True))
            if c <= n.columns.out and out_words(n, p) > n.mbuf:
                fits = False
        low, high = (c, high) if fits else (low, c - 1)
    return low


@device
def widest(n: Numbers, p: Choice, columns: Sizes) -> int:
    """Columns of a tile whose results fit an MBuf, at most."""
    low, high = 1, len(columns.by) - 1
    while low < high:
        c = (low + high + 1) // 2
        fits = out_words(n, Choice(p.mode, p.m, p.r, c, True)) <= n.mbuf
        low, high = (c, high) if fits else (low, c - 1)
    return low


@device
def has_room(n: Numbers, mode: int, m: int, r: int, c: int, sizes) -> bool:
    """A tile of maps and one of results fit an MBuf."""
    rows, columns, _, _ = sizes
    p = Choice(mode, m, r, c, True)
    maps = whole_lines(largest(rows, r) * largest(columns, c) * tile_planes(n, p))
    return maps + out_words(n, p) <= n.mbuf


@device
def ladder(most):
    """Sizes from ``most`` down to 1, each about a fourth less than the one before."""
    sizes = np.zeros(64, np.int64)
    count, size = 0, most
    while size >= 1 and count < 64:
        sizes[count] = size
        count, size = count + 1, min(size - 1, size * 3 // 4)
    return sizes[:count]
