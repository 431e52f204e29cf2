"""tpool: maximum or average over windows."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.tiles.isa import TilePool
from tvm_npu.sim.tiles.operands import (
    FIRST,
    GO,
    LARGEST_EXTENT,
    NOWHERE,
    RESULT,
    STOP,
    in_bounds,
    load_first,
    locate,
    product,
    store_elements,
    trap,
)
from tvm_npu.sim.tiles.registers import (
    COUNT_COLUMN_BEGIN,
    COUNT_COLUMN_END,
    COUNT_ROW_BEGIN,
    COUNT_ROW_END,
    HIGH,
    IN_CHANNELS,
    IN_COLUMNS,
    IN_ROWS,
    KERNEL_COLUMNS,
    KERNEL_ROWS,
    LOW,
    ORIGIN_COLUMN,
    ORIGIN_ROW,
    OUT_CHANNELS,
    OUT_COLUMNS,
    OUT_ROWS,
    PAD_LEFT,
    PAD_TOP,
    STRIDE_COLUMNS,
    STRIDE_ROWS,
)
from tvm_npu.sim.tiles.state import Costs, State
from tvm_npu.sim.tiles.timing import book_elements
from tvm_npu.sim.tiles.traps import TileTrapCode

_ILLEGAL = int(TileTrapCode.ILLEGAL_INSTRUCTION)
_EMPTY = int(TileTrapCode.EMPTY_WINDOW)
_BAD_REGISTER = int(TileTrapCode.BAD_REGISTER)

SUB = 6
AVERAGE = int(TilePool.AVERAGE)


@device
def overlap(begin: int, length: int, low: int, high: int) -> int:
    return max(0, min(begin + length, high) - max(begin, low))


@device
def tpool(s: State, m: Costs, row: int) -> int:
    if s.decoded[row, SUB] > AVERAGE:
        return trap(s, _ILLEGAL, s.words[row], 0, 0, 0, 0)
    if not in_bounds(s, IN_CHANNELS, IN_CHANNELS, 1, LARGEST_EXTENT):
        return STOP
    if not in_bounds(s, IN_ROWS, IN_COLUMNS, 0, LARGEST_EXTENT):
        return STOP
    if not in_bounds(s, OUT_CHANNELS, STRIDE_COLUMNS, 1, LARGEST_EXTENT):
        return STOP
    if not in_bounds(s, PAD_TOP, PAD_LEFT, 0, LARGEST_EXTENT):
        return STOP
    r = s.registers
    if not in_bounds(s, LOW, LOW, -(1 << 31), r[HIGH]):
        return STOP
    channels, width = r[OUT_CHANNELS], m.element_bytes
    if r[IN_CHANNELS] != channels:
        return trap(s, _BAD_REGISTER, r[IN_CHANNELS], channels, channels, 0, IN_CHANNELS)
    in_at = locate(s, m, FIRST, channels, r[IN_ROWS], r[IN_COLUMNS], width, True, False)
    if in_at == NOWHERE or not load_first(s, m, in_at, channels, r[IN_ROWS], r[IN_COLUMNS]):
        return STOP
    out_at = locate(s, m, RESULT, channels, r[OUT_ROWS], r[OUT_COLUMNS], width, False, True)
    if out_at == NOWHERE:
        return STOP
    if not pool_planes(s, m, s.decoded[row, SUB] == AVERAGE):
        return STOP
    store_elements(s, m, out_at, channels, r[OUT_ROWS], r[OUT_COLUMNS], s.products)
    window = product(r[KERNEL_ROWS], r[KERNEL_COLUMNS])
    book_elements(s, m, row, channels * r[OUT_ROWS] * r[OUT_COLUMNS] * window)
    return GO


@device
def pool_planes(s: State, m: Costs, average: bool) -> bool:
    """The results, packed, into `products`; False, with a trap, at a window without elements."""
    r, tile, target = s.registers, s.tile, s.products
    rows, columns = r[IN_ROWS], r[IN_COLUMNS]
    low, high = max(r[LOW], m.element_low), min(r[HIGH], m.element_high)
    positions = r[OUT_ROWS] * r[OUT_COLUMNS]
    for p in range(r[OUT_ROWS]):
        top = p * r[STRIDE_ROWS] - r[PAD_TOP]
        y0, y1 = max(top, 0), min(top + r[KERNEL_ROWS], rows)
        counted_rows = overlap(
            r[ORIGIN_ROW] + top, r[KERNEL_ROWS], r[COUNT_ROW_BEGIN], r[COUNT_ROW_END]
        )
        for q in range(r[OUT_COLUMNS]):
            left = q * r[STRIDE_COLUMNS] - r[PAD_LEFT]
            x0, x1 = max(left, 0), min(left + r[KERNEL_COLUMNS], columns)
            counted = counted_rows * overlap(
                r[ORIGIN_COLUMN] + left, r[KERNEL_COLUMNS],
                r[COUNT_COLUMN_BEGIN], r[COUNT_COLUMN_END],
            )  # fmt: skip
            if (average and counted < 1) or (not average and (y0 >= y1 or x0 >= x1)):
                trap(s, _EMPTY, p, q, 0, 0, 0)
                return False
            for c in range(r[OUT_CHANNELS]):
                plane = c * rows * columns
                at = c * positions + p * r[OUT_COLUMNS] + q
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
