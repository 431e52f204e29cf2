"""Registers of a tile program before it runs: its words run one after the other, and registers are
only set to constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.tiles.isa import TILE_ISA, TileRegister

_SET, _SETU = TILE_ISA.index["tset"], TILE_ISA.index["tsetu"]
_LOW_BITS = 19
_RD, _IMM = 1, 4


def rows_of(decoded: NDArray[np.int32], mnemonic: str) -> NDArray[np.intp]:
    """Rows with that instruction, of the words that `TILE_ISA.decode_array` gives."""
    return np.flatnonzero(decoded[:, 0] == TILE_ISA.index[mnemonic])


def products_at(
    decoded: NDArray[np.int32], registers: Sequence[TileRegister], rows: NDArray[np.intp]
) -> NDArray[np.float64]:
    """What the product of ``registers`` is at each of ``rows``; negative values count as 0."""
    found = np.ones(len(rows))
    for register in registers:
        found *= np.maximum(values_at(decoded, register, rows), 0)
    return found


def values_at(
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
