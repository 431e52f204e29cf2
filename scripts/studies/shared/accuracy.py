"""How good predictions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, fmean


@dataclass(frozen=True)
class Accuracy:
    """Predicted against simulated time over layers: mean of abs(predicted / simulated - 1), and
    Pearson's correlation of the two times (None for fewer than two different ones)."""

    layers: int
    mean_absolute_error: float
    pearson: float | None


def accuracy_of(times: Sequence[tuple[float, float]]) -> Accuracy:
    """Of (predicted, simulated) times. Raises ValueError without layers."""
    if not times:
        raise ValueError("accuracy needs at least one layer")
    predicted, simulated = zip(*times, strict=True)
    try:
        pearson = correlation(predicted, simulated)
    except StatisticsError:
        pearson = None
    return Accuracy(len(times), fmean(abs(p / s - 1) for p, s in times), pearson)
