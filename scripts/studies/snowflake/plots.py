"""Drawings after figures 5, 6 and 7. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studies.harness.drawing import render
from studies.harness.errors import StudyError
from studies.snowflake.measuring import Measured
from studies.snowflake.published import FIGURE_7, NETWORKS
from studies.snowflake.rows import Found
from studies.snowflake.variants import REUSE
from studies.snowflake.work import NETWORK_MACHINE, SCALED, snowflake
from tvm_npu.sim.snowflake.isa import WORD_BYTES

COLORS = ("tab:blue", "tab:orange", "tab:green")
Series = tuple[str, dict[str, Measured]]
"""A legend, and what was measured by network."""


@dataclass(frozen=True)
class Panel:
    """A drawing in as many axes below each other as ``heights`` has, relative."""

    heights: tuple[float, ...]
    draw: Callable[[Sequence[Any]], None]


def plot(found: Found, file_format: str) -> bytes:
    """The figures that there are rows for, below each other. Raises StudyError when there is
    none."""
    every = (_figure_5(found), _figure_6(found), _figure_7(found))
    panels = [panel for panel in every if panel is not None]
    if not panels:
        raise StudyError("nothing to draw: figures 5, 6 and 7 have no rows")
    heights = [height for panel in panels for height in panel.heights]

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        begin = 0
        for panel in panels:
            end = begin + len(panel.heights)
            panel.draw(axes[begin:end])
            begin = end

    return render(draw, (10, 1.8 * sum(heights)), file_format)


def _figure_5(found: Found) -> Panel | None:
    series = [(machine, _networks(found, machine)) for machine in SCALED]
    title = "Figure 5: networks under planner snowflake, without linear layers"
    return _bars(title, series) if "figure5" in found.tables else None


def _figure_6(found: Found) -> Panel | None:
    series = []
    for variant in REUSE:
        measured = {model: found.of(model, NETWORK_MACHINE, variant) for model in NETWORKS}
        kept = {model: one for model, one in measured.items() if one is not None}
        series.append((f"reuse of {variant.title}", kept))
    title = f"Figure 6: one order of loads for all layers, {NETWORK_MACHINE}"
    return _bars(title, series) if "figure6" in found.tables else None


def _networks(found: Found, machine: str) -> dict[str, Measured]:
    measured = {model: found.of(model, machine) for model in NETWORKS}
    return {model: one for model, one in measured.items() if one is not None}


def _bars(title: str, series: Sequence[Series]) -> Panel | None:
    """Performance, bandwidth and efficiency by network, as the paper has them below each other."""
    shown = [(name, measured) for name, measured in series if measured]
    models = [model for model in NETWORKS if any(model in measured for _, measured in shown)]
    if not models:
        return None

    def draw(axes: Sequence[Any]) -> None:
        speed, bandwidth, efficiency = axes
        speed.set_title(title)
        width = 0.8 / len(shown)
        for number, (name, measured) in enumerate(shown):
            own = [model for model in models if model in measured]
            at = np.array([models.index(model) for model in own])
            at = at + (number - (len(shown) - 1) / 2) * width
            color, found = COLORS[number], [measured[model] for model in own]
            speed.bar(at, [_gops(one) for one in found], width, color=color, label=name)
            required = [one.gb_per_s(one.expected_cycles) for one in found]
            bandwidth.bar(
                at, required, width, fill=False, hatch="////", edgecolor=color, linewidth=0.5
            )
            achieved = [one.gb_per_s(one.cycles) for one in found]
            bandwidth.bar(at, achieved, 0.7 * width, color=color)
            shares = [100 * (one.efficiency or 0.0) for one in found]
            efficiency.bar(at, shares, width, color=color)
        limit = snowflake(NETWORK_MACHINE).dram.bandwidth_gb_per_s
        bandwidth.axhline(limit, color="black", linewidth=0.8, linestyle="--")
        speed.set_ylabel("Gops/s")
        bandwidth.set_ylabel("GB/s\n(striped: required)")
        efficiency.set_ylabel("efficiency, %")
        efficiency.set_ylim(0, 100)
        efficiency.set_xticks(range(len(models)), models, rotation=30, ha="right")
        for one_axes in axes:
            one_axes.set_xlim(-0.6, len(models) - 0.4)
            one_axes.grid(axis="y", alpha=0.3)
            one_axes.set_axisbelow(True)
        for upper in (speed, bandwidth):
            upper.set_xticks(range(len(models)), [""] * len(models))
        speed.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return Panel((1.0, 1.0, 1.0), draw)


def _gops(one: Measured) -> float:
    """Operations a second: two a MAC."""
    return 2e-6 * sum(layer.macs for layer in one.counted) / one.simulated_ms


def _figure_7(found: Found) -> Panel | None:
    measured = {layer.name: found.of(layer.name, NETWORK_MACHINE) for layer in FIGURE_7}
    layers = {name: one for name, one in measured.items() if one is not None}
    if not layers or "figure7" not in found.tables:
        return None
    machine = snowflake(NETWORK_MACHINE)
    gb_per_s = machine.dram.bandwidth_gb_per_s
    peak = 2e-3 * machine.macs_per_cycle(WORD_BYTES) * machine.frequency_mhz

    def draw(panel: Sequence[Any]) -> None:
        (axes,) = panel
        axes.set_title(f"Figure 7: {NETWORK_MACHINE}, convolutions of ResNet-18, each alone")
        speeds = {name: _gops(one) for name, one in layers.items()}
        intensities = {
            name: 1e6 * speeds[name] * one.simulated_ms / one.moved_bytes
            for name, one in layers.items()
        }
        ends = np.array([0.5 * peak / gb_per_s / 4, 2.5 * max(intensities.values())])
        knee = peak / gb_per_s
        roof = np.array([ends[0], knee, ends[1]])
        axes.plot(
            roof, np.minimum(peak, gb_per_s * roof), "--", color="tab:blue",
            label=f"{peak:.1f} Gops/s, {gb_per_s:g} GB/s",
        )  # fmt: skip
        for name, mark in zip(layers, "os^vD<>PX*hd", strict=False):
            axes.plot(
                intensities[name], speeds[name], mark, markersize=5, linestyle="", label=name
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlabel("operations a byte moved")
        axes.set_ylabel("Gops/s")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
        title = "map, kernel, planes,\nfilters, stride, padding"
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), title=title)

    return Panel((2.6,), draw)
