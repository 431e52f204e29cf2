"""How much the longest instruction of a tile program does, known before the program runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.tiles.isa import TileRegister
from tvm_npu.sim.tiles.values_ahead import products_at, rows_of

_RESULTS = TileRegister.OUT_CHANNELS, TileRegister.OUT_ROWS, TileRegister.OUT_COLUMNS
_WINDOW = TileRegister.KERNEL_ROWS, TileRegister.KERNEL_COLUMNS
_INPUT = TileRegister.IN_CHANNELS, TileRegister.IN_ROWS, TileRegister.IN_COLUMNS
_LENGTHS = (
    ("tconv", (*_RESULTS, *_WINDOW, TileRegister.IN_CHANNELS)),
    ("tconv", (TileRegister.GROUPS, *_INPUT)),
    ("tpool", (*_RESULTS, *_WINDOW)),
    ("tpool", _INPUT),
    ("tvec", _RESULTS),
    ("tfinish", _RESULTS),
    ("tfill", _RESULTS),
)
"""Registers whose product is what an instruction computes, about, or reads: outside of the chip an
input may be much larger than the result."""


def longest_work(decoded: NDArray[np.int32]) -> float:
    """Products or elements of the instruction that has most, for the words that
    `TILE_ISA.decode_array` gives."""
    longest = 0.0
    for mnemonic, registers in _LENGTHS:
        work = products_at(decoded, registers, rows_of(decoded, mnemonic))
        longest = float(work.max(initial=longest))
    return longest
