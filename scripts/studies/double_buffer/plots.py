"""Transfer cycles and whole times by layer, as in the paper's Figures 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.double_buffer.measuring import LayerRow
from studies.harness.drawing import render

COLORS = {"none": "tab:blue", "naive": "tab:red", "optimal": "tab:green"}
PANELS = (
    ("transfers, Mcycles", {"naive": "naive_cycles", "optimal": "optimal_cycles"}, 1e6),
    (
        "whole layer without caches, s",
        {key: f"uncached_{key}_s" for key in COLORS},
        1.0,
    ),
    ("whole layer with caches, s", {key: f"cached_{key}_s" for key in COLORS}, 1.0),
)


def plot(rows: Sequence[LayerRow], file_format: str) -> bytes:
    """The figure as a file of ``file_format``."""

    def draw(figure: Any) -> None:
        for axes, (title, keys, unit) in zip(figure.subplots(3, 1), PANELS, strict=True):
            _bars(axes, rows, keys, unit)
            axes.set_title(title)
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", alpha=0.3)
            axes.legend()

    return render(draw, (8, 9), file_format)


def _bars(axes: Any, rows: Sequence[LayerRow], keys: dict[str, str], unit: float) -> None:
    at = np.arange(len(rows))
    width = 0.8 / len(keys)
    for number, (label, key) in enumerate(keys.items()):
        heights = [getattr(row, key) / unit for row in rows]
        offset = (number - (len(keys) - 1) / 2) * width
        name = "no double buffers" if label == "none" else f"{label} tiles"
        axes.bar(at + offset, heights, width, color=COLORS[label], label=name)
    axes.set_xticks(at, [row.layer for row in rows])
