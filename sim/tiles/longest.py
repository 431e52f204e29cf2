"""How much the longest instruction of a tile program does, known before the program runs: its words
run one after the other, and registers are only set to constants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.tiles.isa import TILE_ISA, TileRegister

_SET, _SETU = TILE_ISA.index["tset"], TILE_ISA.index["tsetu"]
_LOW_BITS = 19
_RD, _IMM = 1, 4
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
        rows = np.flatnonzero(decoded[:, 0] == TILE_ISA.index[mnemonic])
        if len(rows):
            work = np.ones(len(rows))
            for register in registers:
                work *= np.maximum(_values(decoded, register, rows), 0)
            longest = max(longest, float(work.max()))
    return longest


def _values(
    decoded: NDArray[np.int32], register: TileRegister, rows: NDArray[np.intp]
) -> NDArray[np.int64]:
    """What ``register`` holds at each of ``rows``."""
    operations = decoded[:, 0]
    sets = np.flatnonzero(
        ((operations == _SET) | (operations == _SETU)) & (decoded[:, _RD] == register)
    )
    if not len(sets):
        return np.zeros(len(rows), np.int64)
    given = decoded[sets, _IMM].astype(np.int64)
    whole = operations[sets] == _SET
    # `tsetu` leaves the low bits as the last `tset` made them.
    last = np.maximum.accumulate(np.where(whole, np.arange(len(sets)), -1))
    low = np.where(last >= 0, given[last], 0) & ((1 << _LOW_BITS) - 1)
    values = np.where(whole, given, (low | given << _LOW_BITS).astype(np.int32))
    at = np.searchsorted(sets, rows) - 1
    return np.where(at >= 0, values[at], 0)
