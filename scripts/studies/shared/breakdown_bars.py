"""Bars of the parts of simulated time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from studies.shared.simulation import Breakdown

PARTS: tuple[tuple[str, str, Callable[[Breakdown], float]], ...] = (
    ("load", "tab:blue", lambda one: one.load_cycles),
    ("store", "tab:orange", lambda one: one.store_cycles),
    ("MAC", "tab:green", lambda one: one.mac_cycles),
    ("other", "0.75", lambda one: one.other_cycles),
)


def stack(axes: Any, labels: list[str], parts: list[Breakdown], whole: float) -> None:
    """One stacked bar a breakdown, in percent of ``whole`` cycles."""
    bottoms = [0.0] * len(parts)
    for label, color, part in PARTS:
        heights = [100 * part(one) / whole for one in parts]
        axes.bar(labels, heights, bottom=bottoms, color=color, label=label)
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
