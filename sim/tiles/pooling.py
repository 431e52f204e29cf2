"""tpool: maximum or average over windows."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import overlap
from tvm_npu.sim.compiled.spans import product, volume
from tvm_npu.sim.tiles.isa import TilePool
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.operands import (
    FIRST,
    GO,
    NOWHERE,
    RESULT,
    STOP,
    clip_bounds,
    in_bounds,
    load_first,
    locate,
    spend,
    store_elements,
    trap,
    window_in_bounds,
)
from tvm_npu.sim.tiles.state import Costs, State
from tvm_npu.sim.tiles.timing import book_elements
from tvm_npu.sim.tiles.traps import TileTrapCode as Code

SUB = 6


@device
def tpool(s: State, m: Costs, row: int) -> int:
    if s.decoded[row, SUB] > TilePool.AVERAGE:
        return trap(s, Code.ILLEGAL_INSTRUCTION, s.words[row], 0, 0, 0, 0)
    if not window_in_bounds(s, Reg.STRIDE_COLUMNS):
        return STOP
    r = s.registers
    if not in_bounds(s, Reg.LOW, Reg.LOW, -(1 << 31), r[Reg.HIGH]):
        return STOP
    channels, width = r[Reg.OUT_CHANNELS], m.element_bytes
    if r[Reg.IN_CHANNELS] != channels:
        return trap(
            s, Code.BAD_REGISTER, r[Reg.IN_CHANNELS], channels, channels, 0, Reg.IN_CHANNELS
        )
    in_at = locate(s, m, FIRST, channels, r[Reg.IN_ROWS], r[Reg.IN_COLUMNS], width, True, False)
    if in_at == NOWHERE or not load_first(s, m, in_at, channels, r[Reg.IN_ROWS], r[Reg.IN_COLUMNS]):
        return STOP
    out_at = locate(s, m, RESULT, channels, r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS], width, False, True)
    if out_at == NOWHERE:
        return STOP
    window = product(r[Reg.KERNEL_ROWS], r[Reg.KERNEL_COLUMNS])
    inside = product(r[Reg.IN_ROWS], r[Reg.IN_COLUMNS])
    count = volume(channels, r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS])
    if not spend(s, product(count, 1 + min(window, inside))):
        return STOP
    if not pool_planes(s, m, s.decoded[row, SUB] == TilePool.AVERAGE):
        return STOP
    store_elements(s, m, out_at, channels, r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS], s.products)
    book_elements(s, m, row, product(count, window))
    return GO


@device
def pool_planes(s: State, m: Costs, average: bool) -> bool:
    """The results, packed, into `products`; False, with a trap, at a window without elements."""
    r, tile, target = s.registers, s.tile, s.products
    rows, columns = r[Reg.IN_ROWS], r[Reg.IN_COLUMNS]
    low, high = clip_bounds(s, m)
    positions = r[Reg.OUT_ROWS] * r[Reg.OUT_COLUMNS]
    for p in range(r[Reg.OUT_ROWS]):
        top = p * r[Reg.STRIDE_ROWS] - r[Reg.PAD_TOP]
        y0, y1 = max(top, 0), min(top + r[Reg.KERNEL_ROWS], rows)
        counted_rows = overlap(
            r[Reg.ORIGIN_ROW] + top,
            r[Reg.KERNEL_ROWS],
            r[Reg.COUNT_ROW_BEGIN],
            r[Reg.COUNT_ROW_END],
        )
        for q in range(r[Reg.OUT_COLUMNS]):
            left = q * r[Reg.STRIDE_COLUMNS] - r[Reg.PAD_LEFT]
            x0, x1 = max(left, 0), min(left + r[Reg.KERNEL_COLUMNS], columns)
            counted = counted_rows * overlap(
                r[Reg.ORIGIN_COLUMN] + left, r[Reg.KERNEL_COLUMNS],
                r[Reg.COUNT_COLUMN_BEGIN], r[Reg.COUNT_COLUMN_END],
            )  # fmt: skip
            if (average and counted < 1) or (not average and (y0 >= y1 or x0 >= x1)):
                trap(s, Code.EMPTY_WINDOW, p, q, 0, 0, 0)
                return False
            for c in range(r[Reg.OUT_CHANNELS]):
                plane = c * rows * columns
                at = c * positions + p * r[Reg.OUT_COLUMNS] + q
                if average:
                    total = np.int64(0)
                    for y in range(y0, y1):
                        for x in range(x0, x1):
                            total += np.int64(tile[plane + y * columns + x])
                    best = (2 * total + counted) // (2 * counted)
                else:
                    best = np.int64(m.element_low)
                    for y in range(y0, y1):
                        for x in range(x0, x1):
                            best = max(best, np.int64(tile[plane + y * columns + x]))
                target[at] = min(max(best, low), high)
    return True
