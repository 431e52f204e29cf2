"""Large arrays that do not lie in the order of their axes (weights of a fully connected layer, read
the other way round), copied a few rows at a time: what stays in a cache is read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROWS = 64
"""Of a transposed array, so many neighbours in memory are read together: some lines of a cache."""


def row_blocks(values: Array) -> Iterator[tuple[slice, Array]]:
    """The rows of ``values`` and contiguous copies of them, one block after the other."""
    for begin in range(0, len(values), ROWS):
        rows = slice(begin, begin + ROWS)
        yield rows, np.ascontiguousarray(values[rows])


def contiguous(values: Array) -> Array:
    """``values`` itself or, where it is not contiguous, a copy that is."""
    if values.flags.c_contiguous or values.ndim < 2:
        return np.asarray(values, order="C")
    result = np.empty(values.shape, values.dtype)
    for rows, block in row_blocks(values):
        result[rows] = block
    return result
