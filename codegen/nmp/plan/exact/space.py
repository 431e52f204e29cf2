"""The spreads of `exact`: who works on what, in which schedule, over which wires.

`space` lists them as rows of integers for the search, in the order in which ties are broken: more
TLEs first, then fewer row and column slices, fewer spatial parts of the TLTs, one buffer, no
ring, WS before OS that keeps IN before OS. Cuts with an empty slice are passed over when a layer
is searched: s slices of ceil(total / s) of which only t hold anything are the same slices as t
slices are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.nmp.plan.exact.cost import KEEPS_IN, OS, WS

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Facts:
    """What of a machine decides which plans there are."""

    tles: int
    tlts: int
    ring: bool
    ports: int


@dataclass(frozen=True)
class Space:
    """``families`` has a row for each spread and schedule: indices into the other four, which say
    how the axes are spread (rows and columns: slices, parts; items: slices, parts, TLEs that share
    W; channels: TLEs that share IN), then slices of rows, columns and items, spatial parts,
    filter parts, schedule, ring_in, ring_weights, buffers, row parts, column parts."""

    families: Integers
    rows: Integers
    columns: Integers
    items: Integers
    channels: Integers


class _Numbered:
    """Numbers things in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def __call__(self, *key: int) -> int:
        return self.known.setdefault(key, len(self.known))

    def array(self) -> Integers:
        return np.array(list(self.known), dtype=np.int64)


@lru_cache(maxsize=64)
def space(facts: Facts, is_grouped: bool) -> Space:
    """All spreads of one mode."""
    rows, columns, items, channels = _Numbered(), _Numbered(), _Numbered(), _Numbered()
    families = []
    for slices, parts in _deals(facts, is_grouped):
        row_slices, column_slices, item_slices = slices
        row_parts, column_parts = parts
        sharing, spatial = row_slices * column_slices, row_parts * column_parts
        runs = facts.tlts // spatial
        for buffers in (1, 2)[: 1 if is_grouped else facts.ports]:
            for ring_weights in _choices(facts.ring and sharing > 1 and not is_grouped):
                for ring_in in _choices(facts.ring and item_slices > 1 and not is_grouped):
                    for flow in (WS,) if is_grouped else (WS, KEEPS_IN, OS):
                        families.append(
                            (
                                rows(row_slices, row_parts),
                                columns(column_slices, column_parts),
                                items(item_slices, runs, sharing if ring_weights else 1),
                                channels(item_slices if ring_in else 1),
                                *slices, spatial, runs, flow, ring_in, ring_weights, buffers,
                                *parts,
                            )
                        )  # fmt: skip
    return Space(
        np.array(families, dtype=np.int64), rows.array(), columns.array(), items.array(),
        channels.array().reshape(-1),
    )  # fmt: skip


def _choices(is_possible: bool) -> tuple[int, ...]:
    return (0, 1) if is_possible else (0,)


def _deals(
    facts: Facts, is_grouped: bool
) -> Iterator[tuple[tuple[int, int, int], tuple[int, int]]]:
    """(row, column and filter slices over TLEs, row and column parts over TLTs)."""
    tles = range(1, facts.tles + 1)
    slices = [
        (row, column, item)
        for row in tles
        for column in (tles if not is_grouped else (1,))
        for item in tles
        if row * column * item <= facts.tles
    ]
    slices.sort(key=lambda one: (-one[0] * one[1] * one[2], one[0] * one[1], one[0]))
    tlts = range(1, facts.tlts + 1)
    parts = [
        (row, column)
        for row in tlts
        for column in tlts
        if facts.tlts % (row * column) == 0 and (not is_grouped or row * column == 1)
    ]
    parts.sort(key=lambda grid: (grid[0] * grid[1], grid[0]))
    for spread in slices:
        for grid in parts:
            yield spread, grid
