"""Figures 8.1 and 8.2 as one drawing. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.eplanner.measuring import OWN, Row, cells
from studies.eplanner.tables import TITLES
from studies.harness.drawing import render

COLOURS = {
    "eplanner": "tab:red",
    "zhang": "tab:blue",
    "ma": "tab:green",
    "smartshuttle": "tab:orange",
    "exact-traffic": "0.35",
    "exact": "0.7",
}


def plot(rows: Sequence[Row], file_format: str) -> bytes:
    """Traffic over every tensor once, above time over e-PlaNNer's, by network and set-up."""
    found = cells(rows)
    planners = list(dict.fromkeys(row.planner for row in rows))
    names = [f"{TITLES[model]}\n{setup}" for model, setup in found]

    def draw(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True)
        each = 0.84 / len(planners)
        for index, name in enumerate(planners):
            at = [x + (index - (len(planners) - 1) / 2) * each for x in range(len(found))]
            own = [cell[name] for cell in found.values()]
            colour = COLOURS.get(name, "tab:purple")
            traffic = [row.offchip_bytes / row.compulsory_bytes for row in own]
            upper.bar(at, traffic, each, label=name, color=colour)
            if all(OWN in cell for cell in found.values()):
                times = [
                    row.simulated_us / cell[OWN].simulated_us
                    for row, cell in zip(own, found.values(), strict=True)
                ]
                lower.bar(at, times, each, color=colour)
        upper.set_yscale("log", base=2)
        upper.axhline(1, color="black", linewidth=0.8)
        lower.axhline(1, color="black", linewidth=0.8)
        upper.set_ylabel("off-chip bytes / every tensor once")
        lower.set_ylabel("simulated time / e-PlaNNer's")
        upper.legend(ncols=6, loc="upper left", fontsize="small")
        lower.set_xticks(range(len(found)), names, fontsize="x-small")
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)

    return render(draw, (14, 8), file_format)
