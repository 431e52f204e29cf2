"""Accumulators in memory: sums of 4 or 8 bytes each."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.tiles.operands import RESULT, mark_written, memory_of, pitches, trap
from tvm_npu.sim.tiles.state import Array, Costs, State
from tvm_npu.sim.tiles.traps import TileTrapCode as Code


@device
def is_plain(s: State, m: Costs, address: int, rows: int, columns: int, width: int) -> bool:
    """Whether the accumulators lie packed and aligned, so that they can be worked on in place."""
    row_bytes, channel_bytes = pitches(s, RESULT, memory_of(s, RESULT), rows, columns, width)
    packed = row_bytes == columns * width and channel_bytes == rows * row_bytes
    return packed and address % width == 0


@device
def copy_rows(
    s: State, m: Costs, address: int, plain: int, channels: int, rows: int, columns: int,
    width: int, back: bool,
) -> None:  # fmt: skip
    """Accumulators at ``address`` to packed ones at ``plain``, or ``back``."""
    row_bytes, channel_bytes = pitches(s, RESULT, memory_of(s, RESULT), rows, columns, width)
    size = columns * width
    for c in range(channels):
        for i in range(rows):
            there = address + c * channel_bytes + i * row_bytes
            here = plain + (c * rows + i) * size
            if back:
                s.memory[there : there + size] = s.memory[here : here + size]
                mark_written(s, m, there, there + size, 1)
            else:
                s.memory[here : here + size] = s.memory[there : there + size]


@device
def add_sums(
    s: State, m: Costs, keep: bool, address: int, source: Array, first: int, filters: int,
    positions: int, begin: int, count: int,
) -> bool:  # fmt: skip
    """Adds source[filters][count] to the packed accumulators [first + f][begin + p] of
    ``positions`` each, or puts it there; False, with a trap, when a sum does not fit."""
    if m.accumulator_bytes == 4:
        low, high = np.int64(0), np.int64(0)
        for f in range(filters):
            at = address // 4 + (first + f) * positions + begin
            row = source[f * count : (f + 1) * count]
            line = s.memory_word[at : at + count]
            if keep:
                for p in range(count):
                    total = np.int64(line[p]) + np.int64(row[p])
                    low, high = min(low, total), max(high, total)
                    line[p] = total
            else:
                for p in range(count):
                    total = np.int64(row[p])
                    low, high = min(low, total), max(high, total)
                    line[p] = total
            if low < -(1 << 31) or high >= 1 << 31:
                trap(s, Code.ACCUMULATOR_OVERFLOW, first + f, 32, 0, 0, 0)
                return False
        return True
    for f in range(filters):
        at = address // 8 + (first + f) * positions + begin
        row = source[f * count : (f + 1) * count]
        line = s.memory_long[at : at + count]
        wrapped = np.int64(0)
        if keep:
            for p in range(count):
                old, added = line[p], np.int64(row[p])
                total = old + added
                wrapped |= (old ^ total) & (added ^ total)
                line[p] = total
        else:
            for p in range(count):
                line[p] = np.int64(row[p])
        if wrapped < 0:
            trap(s, Code.ACCUMULATOR_OVERFLOW, first + f, 64, 0, 0, 0)
            return False
    return True


@device
def load_sums(s: State, m: Costs, address: int, count: int, target: Array) -> None:
    """Packed accumulators as int64."""
    if m.accumulator_bytes == 4:
        base = address // 4
        for k in range(count):
            target[k] = s.memory_word[base + k]
    else:
        base = address // 8
        for k in range(count):
            target[k] = s.memory_long[base + k]
