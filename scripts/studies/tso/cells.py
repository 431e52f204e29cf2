"""One published figure beside ours, and what a whole table of them amounts to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import spearmanr


@dataclass(frozen=True)
class Cell:
    """Times of one network under one strategy, microseconds. ``predicted_us`` is the planners'
    expectation, ``simulated_us`` what the simulator took."""

    model: str
    column: str
    paper_us: float
    simulated_us: float
    predicted_us: float

    @property
    def ratio(self) -> float:
        """Simulated over published."""
        return self.simulated_us / self.paper_us


@dataclass(frozen=True)
class Summary:
    """Statistics over cells. Rank correlations (Spearman) are None where they are undefined:
    fewer than two different values. ``rank_correlation`` is over all cells, which mostly orders
    large networks before small ones; ``rank_correlation_in_model`` is the mean over the models
    of the correlation among each one's own cells, which orders strategies."""

    cells: int
    mean_absolute_error: float
    geometric_mean_ratio: float
    rank_correlation: float | None
    rank_correlation_in_model: float | None
    mean_prediction_error: float


def models_of(cells: Iterable[Cell] | Iterable[SpeedUp]) -> tuple[str, ...]:
    """In order of first appearance."""
    return tuple(dict.fromkeys(cell.model for cell in cells))


def summarize(cells: Sequence[Cell]) -> Summary:
    """``mean_absolute_error`` is the mean of abs(simulated / paper - 1), ``mean_prediction_error``
    that of abs(predicted / simulated - 1). Raises ValueError without cells."""
    if not cells:
        raise ValueError("a summary needs at least one cell")
    by_model = [[cell for cell in cells if cell.model == model] for model in models_of(cells)]
    inside = [rho for rho in map(_rank_correlation, by_model) if rho is not None]
    return Summary(
        cells=len(cells),
        mean_absolute_error=fmean(abs(cell.ratio - 1) for cell in cells),
        geometric_mean_ratio=math.exp(fmean(math.log(cell.ratio) for cell in cells)),
        rank_correlation=_rank_correlation(cells),
        rank_correlation_in_model=fmean(inside) if inside else None,
        mean_prediction_error=fmean(abs(c.predicted_us / c.simulated_us - 1) for c in cells),
    )


def _rank_correlation(cells: Sequence[Cell]) -> float | None:
    paper = [cell.paper_us for cell in cells]
    simulated = [cell.simulated_us for cell in cells]
    if len(set(paper)) < 2 or len(set(simulated)) < 2:
        return None
    return float(spearmanr(paper, simulated).statistic)


@dataclass(frozen=True)
class SpeedUp:
    """How much faster ``base`` is than ``column``: time of the column / time of the base - 1."""

    model: str
    column: str
    paper: float
    simulated: float


def speed_ups(cells: Sequence[Cell], base: str) -> tuple[SpeedUp, ...]:
    """Of column ``base`` over every other column of the same model; none where it is missing."""
    bases = {cell.model: cell for cell in cells if cell.column == base}
    return tuple(
        SpeedUp(
            cell.model,
            cell.column,
            cell.paper_us / bases[cell.model].paper_us - 1,
            cell.simulated_us / bases[cell.model].simulated_us - 1,
        )
        for cell in cells
        if cell.column != base and cell.model in bases
    )
