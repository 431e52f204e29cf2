"""The benchmark's drawing: best so far against trials, rank correlation, gains of re-ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.harness.drawing import render
from studies.learned.reranking import RerankRow
from studies.learned.searches import CLOSE, CorrelationRow, LayerSearch
from tvm_npu.codegen.tune.tuners import tuner_names

COLORS = {"learned": "tab:blue", "random": "tab:gray", "annealing": "tab:orange"}
TOP = 8.0
"""Of the axis of best so far: what is slower matters little."""


def plot(
    searches: Sequence[LayerSearch],
    correlations: Sequence[CorrelationRow],
    reranked: Sequence[RerankRow],
    file_format: str,
) -> bytes:
    def draw(figure: Any) -> None:
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.1, 1))
        for axes, search in zip(_row(top, len(searches)), searches, strict=True):
            _draw_search(axes, search, axes.get_subplotspec().is_first_col())
        left, right = bottom.subplots(1, 2)
        _draw_correlations(left, correlations)
        _draw_gains(right, reranked)

    return render(draw, (10, 6.4), file_format)


def _row(figure: Any, count: int) -> list[Any]:
    return list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def _draw_search(axes: Any, search: LayerSearch, is_first: bool) -> None:
    for tuner in tuner_names():
        rows = search.best_so_far(tuner)
        shown = np.where(np.isfinite(rows), rows, 2 * TOP)
        trials = np.arange(1, shown.shape[1] + 1)
        color = COLORS[tuner]
        axes.fill_between(trials, shown.min(0), shown.max(0), color=color, alpha=0.15, lw=0)
        axes.plot(trials, np.median(shown, axis=0), color=color, label=tuner)
    axes.axhline(1.0, color="black", lw=0.8, label="exact")
    axes.axhline(CLOSE, color="black", lw=0.6, ls=":", label=f"exact + {CLOSE - 1:.0%}")
    axes.set_yscale("log")
    axes.set_ylim(0.9, TOP)
    ticks = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(f"ResNet-50, {search.layer.replace('>', '→')}")
    axes.set_xlabel("trials")
    if is_first:
        axes.set_ylabel("best so far / exact, simulated\n(median; band: all seeds)")
        axes.legend(loc="upper right")


def _draw_correlations(axes: Any, rows: Sequence[CorrelationRow]) -> None:
    layers = list(dict.fromkeys(row.layer for row in rows))
    for number, layer in enumerate(layers):
        for of, style in (("random", "-"), ("good", "--")):
            own = [row for row in rows if (row.layer, row.of) == (layer, of)]
            counts = sorted({row.trials for row in own})
            medians = [np.median([r.spearman for r in own if r.trials == n]) for n in counts]
            label = f"{layer.replace('>', '→')}, {of} plans"
            axes.plot(counts, medians, style, color=f"C{number}", marker=".", label=label)
    axes.set_ylim(min(0.0, *(row.spearman for row in rows)) if rows else 0.0, 1.02)
    axes.set_xlabel("trials that the cost model has seen")
    axes.set_ylabel("rank correlation, held-out plans")
    axes.set_title("Cost model against simulator (Spearman, median of seeds)")
    if rows:
        axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def _draw_gains(axes: Any, rows: Sequence[RerankRow]) -> None:
    places = np.arange(len(rows))
    for shift, key, label, color in (
        (-0.2, "reranked_cycles", "re-ranked, network not seen", "tab:blue"),
        (0.2, "fastest_cycles", "all of the list measured", "tab:green"),
    ):
        gains = [100 * (row.exact_cycles / getattr(row, key) - 1) for row in rows]
        bars = axes.bar(places + shift, gains, 0.38, label=label, color=color)
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.axhline(0.0, color="black", lw=0.8)
    axes.margins(y=0.15)
    axes.set_xticks(places, [row.model for row in rows])
    axes.set_ylabel("gain over exact, simulated, %")
    axes.set_title("The best plans of exact, ranked by measurements")
    axes.legend()
