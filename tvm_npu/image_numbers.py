"""Numbers that images may be computed with: those of float32."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Numbers:
    """From ``least`` to ``most``; ``words``: what a message says of them behind "a number"."""

    least: float
    most: float
    words: str

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most


LEAST_FLOAT, MOST_FLOAT = 1.2e-38, 3.4e38
"""Magnitudes that float32 has, about."""
FINITE = Numbers(-MOST_FLOAT, MOST_FLOAT, f"from {-MOST_FLOAT:g} to {MOST_FLOAT:g}")
DIVISORS = Numbers(LEAST_FLOAT, MOST_FLOAT, f"above 0 (from {LEAST_FLOAT:g} to {MOST_FLOAT:g})")
