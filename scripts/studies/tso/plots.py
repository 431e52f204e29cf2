"""The TSO reproduction as one drawing: Table I and figures 8, 9, 12 and 13. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.harness.drawing import render
from studies.shared.breakdown_bars import stack
from studies.shared.titles import TITLES
from studies.tso.cells import Cell, SpeedUp, models_of, speed_ups
from studies.tso.published import BURST, COLUMNS, NO_BURST
from studies.tso.tables import Breakdowns

PAPER, OURS = "0.65", "tab:blue"
SPEED_UP_PANELS = (
    ("Figure 8: over no burst", "model"),
    ("Figure 12: over fixed TLE slicing", "TLE slicing"),
    ("Figure 13: over fixed TLT schedule", "TLT schedule"),
)


def plot(cells: Sequence[Cell], breakdowns: Breakdowns, file_format: str) -> bytes:
    """The drawing as a file of one of FORMATS; equal input gives equal bytes."""
    models = models_of(cells)

    def draw(figure: Any) -> None:
        rows = figure.subfigures(3, 1, height_ratios=(1.0, 1.0, 0.9), squeeze=False)
        times, gains, parts = rows[:, 0]
        _times(times, cells, models)
        _speed_ups(gains, speed_ups(cells, BURST.head), models)
        _breakdowns(parts, breakdowns, models)

    return render(draw, (max(11.0, 3.4 * len(models)), 11.0), file_format)


def _pairs(axes: Any, labels: Sequence[str], paper: Sequence[float], ours: Sequence[float]) -> None:
    """Grouped bars, paper beside simulated."""
    places = range(len(labels))
    axes.bar([x - 0.2 for x in places], paper, 0.4, color=PAPER, label="paper")
    axes.bar([x + 0.2 for x in places], ours, 0.4, color=OURS, label="simulated")
    axes.set_xticks(list(places), labels, rotation=45)
    axes.axhline(0.0, color="black", linewidth=0.5)


def _times(figure: Any, cells: Sequence[Cell], models: Sequence[str]) -> None:
    figure.suptitle("Table I: execution time, us")
    row = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(row, models, strict=True):
        own = [cell for cell in cells if cell.model == model]
        heads = [cell.column for cell in own]
        _pairs(axes, heads, [c.paper_us for c in own], [c.simulated_us for c in own])
        axes.set_title(TITLES[model])
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside right upper")


def _speed_ups(figure: Any, gains: Sequence[SpeedUp], models: Sequence[str]) -> None:
    figure.suptitle("Speed-up of burst, %")
    row = figure.subplots(1, len(SPEED_UP_PANELS), width_ratios=(1, 3, 3), squeeze=False)[0]
    for axes, (title, group) in zip(row, SPEED_UP_PANELS, strict=True):
        heads = {column.head for column in COLUMNS if column.group == group}
        own = [gain for gain in gains if gain.column in heads]
        labels = [
            TITLES[gain.model] + ("" if group == "model" else f" {gain.column}") for gain in own
        ]
        _pairs(axes, labels, [100 * g.paper for g in own], [100 * g.simulated for g in own])
        axes.tick_params(axis="x", labelrotation=90)
        axes.set_title(title)


def _breakdowns(figure: Any, breakdowns: Breakdowns, models: Sequence[str]) -> None:
    """Shares of the no-burst time where that was measured, else of the first column's."""
    figure.suptitle("Figure 9: simulated time by part, % of no burst (else of the first bar)")
    row = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(row, models, strict=True):
        own = {head: one for (name, head), one in breakdowns.items() if name == model}
        whole = own.get(NO_BURST.head, next(iter(own.values()))).total_cycles
        stack(axes, list(own), list(own.values()), whole)
        axes.set_title(TITLES[model])
        axes.tick_params(axis="x", labelrotation=45)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside right upper")
