"""Sums, extremes, comparisons and searches of arrays in compiled code, as loops.

numba's own come from `numba.np.arraymath`, and machine code that uses one of them imports SciPy's
linear algebra when it is read from disk: longer than planning a layer.
"""

from __future__ import annotations

from typing import Any

from tvm_npu.sim.compiled.decorators import device


@device
def total(values: Any) -> Any:
    """Of whole numbers along one axis."""
    found = 0
    for value in values:
        found += value
    return found


@device
def total_of_plane(values: Any) -> Any:
    """Of two axes, row by row, from 0.0 on."""
    found = 0.0
    for row in values:
        for value in row:
            found += value
    return found


@device
def least(values: Any) -> Any:
    """Of one axis with at least one value."""
    found = values[0]
    for value in values:
        found = min(found, value)
    return found


@device
def are_all(values: Any, wanted: int) -> bool:
    """Whether all of one axis are what is wanted."""
    for value in values:
        if value != wanted:
            return False
    return True


@device
def count_below(values: Any, limit: Any) -> int:
    """How many of one axis, in ascending order, are less than ``limit``."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@device
def are_same(one: Any, other: Any) -> bool:
    """Two arrays of one axis and one length."""
    for at in range(len(one)):
        if one[at] != other[at]:
            return False
    return True
