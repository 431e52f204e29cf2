"""Whole numbers that every part of a machine rounds in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

Count = TypeVar("Count", int, "NDArray[Any]")


def ceil_div(total: Count, part: int) -> Count:
    """How many parts of ``part`` hold ``total``; both positive, or ``total`` 0."""
    return (total + part - 1) // part


def overlap(begin: int, length: int, low: int, high: int) -> int:
    """How much of ``length`` from ``begin`` on lies in low..high."""
    return max(0, min(begin + length, high) - max(begin, low))


def aligned(size: Count, alignment: int) -> Count:
    """``size`` rounded up to a multiple of ``alignment``."""
    return ceil_div(size, alignment) * alignment
