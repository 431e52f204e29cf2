"""Tile extents along an axis: drawn at random, and changed by a little.

A drawn extent is the whole axis or uniform in its logarithm, then mostly rounded to one that cuts
the axis into nearly equal tiles.
"""

from __future__ import annotations

import numpy as np

WHOLE_SHARE, ROUNDED_SHARE = 0.5, 0.75


def rounded(extent: int, top: int) -> int:
    """The least extent that cuts ``top`` into as many tiles as ``extent`` does."""
    return -(-top // -(-top // extent))


def drawn_extent(top: int, generator: np.random.Generator) -> int:
    """From 1 to ``top``."""
    if generator.random() < WHOLE_SHARE:
        return top
    extent = min(top, int(np.exp(generator.random() * np.log(top + 1))))
    return rounded(extent, top) if generator.random() < ROUNDED_SHARE else extent


def moved_extent(extent: int, top: int, generator: np.random.Generator) -> int:
    """Another extent: one tile more or fewer, twice or half the size, one position more or fewer,
    the whole axis, or any."""
    extent = min(extent, top)
    tiles = -(-top // extent)
    options = (
        -(-top // (tiles + 1)),
        -(-top // max(1, tiles - 1)),
        max(1, extent // 2),
        min(top, 2 * extent),
        max(1, extent - 1),
        min(top, extent + 1),
        top,
        drawn_extent(top, generator),
    )
    return options[generator.integers(len(options))]
