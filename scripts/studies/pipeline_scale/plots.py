"""CPU time and quality over the number of places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.harness.drawing import render
from studies.pipeline_scale.rows import SEARCHES, ScaleRow


def plot(rows: Sequence[ScaleRow], file_format: str) -> bytes:
    """A row of the picture a search; a line a number of layers, for the most kinds of places."""
    kinds = sorted({row.kinds for row in rows})

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(SEARCHES), 2, squeeze=False)
        for search, (time_axes, share_axes) in zip(SEARCHES, axes, strict=True):
            for layers in sorted({row.layers for row in rows}):
                for kind, style in zip(kinds, ("-", "--", ":", "-."), strict=False):
                    line = [
                        row
                        for row in rows
                        if (row.search, row.layers, row.kinds) == (search, layers, kind)
                        and row.error is None
                    ]
                    places = [row.places for row in line]
                    label = f"{layers} layers, {kind} kinds"
                    time_axes.plot(places, [row.cpu_s for row in line], style, label=label)
                    share_axes.plot(places, [row.share for row in line], style, label=label)
            time_axes.set(xscale="log", yscale="log", ylabel=f"{search}: CPU s", xlabel="places")
            share_axes.set(xscale="log", ylabel="share of optimum or bound", xlabel="places")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)

    return render(draw, (9.0, 9.0), file_format)
