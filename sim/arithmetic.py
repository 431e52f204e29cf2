"""Whole numbers that every part of a machine rounds in the same way."""

from __future__ import annotations


def ceil_div(total: int, part: int) -> int:
    """How many parts of ``part`` hold ``total``; both positive, or ``total`` 0."""
    return (total + part - 1) // part


def aligned(size: int, alignment: int) -> int:
    """``size`` rounded up to a multiple of ``alignment``."""
    return ceil_div(size, alignment) * alignment
