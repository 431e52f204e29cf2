"""The planning benchmark as one drawing: speed-ups, where time goes, and rooflines. Needs
matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from studies.harness.drawing import render
from studies.planning.figures import (
    BASE,
    GOALS,
    Pair,
    base_rows,
    geometric_mean,
    mean_speed_ups,
    models_of,
    pairs_of,
    speed_ups,
)
from studies.planning.measuring import Case, Measured
from studies.planning.tables import title_of
from studies.shared.breakdown_bars import stack
from tvm_npu.codegen.nmp.plan.graph_bound import Roofs

COLORS = ("tab:blue", "tab:gray", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")
NETWORK_COLORS = ("tab:red", "tab:green", "tab:blue", "tab:orange", "tab:purple", "tab:brown")
HATCHES = ("", "///", "...", "xxx")
MEAN = "geometric\nmean"
LEAST_GMACS = 0.05
"""Lower end of the rooflines: a layer below it would be drawn at the edge."""


def plot(measured: Measured, file_format: str) -> bytes:
    """The drawing as a file of one of `drawing.FORMATS`; equal input gives equal bytes."""
    machines = list({case.machine.name: case for case in measured.cases}.values())
    pairs, models = pairs_of(measured.rows), models_of(measured.rows)
    rows = [3.6, 3.8, *(2.9 for _ in machines)]
    has_base = len(base_rows(measured.rows)) > 0

    def draw(figure: Any) -> None:
        parts = figure.subfigures(len(rows), 1, height_ratios=rows, squeeze=False)[:, 0]
        if has_base:
            _speed_ups(parts[0], measured, pairs, models)
        else:
            parts[0].suptitle(f"No speed-ups: {' '.join(BASE)} was not measured")
        _breakdowns(parts[1], measured, pairs, models)
        for part, case in zip(parts[2:], machines, strict=True):
            _rooflines(part, measured, case, models)

    planners = len({planner for _, planner in pairs})
    width = max(8.0, 2.6 * len(models), 3.4 * planners)
    return render(draw, (width, sum(rows)), file_format)


def _styles(pairs: Sequence[Pair]) -> dict[Pair, dict[str, Any]]:
    """A colour a planner, a hatch a machine."""
    colors = _dealt(COLORS, [planner for _, planner in pairs])
    hatches = _dealt(HATCHES, [machine for machine, _ in pairs])
    return {
        (machine, planner): {
            "color": colors[planner], "hatch": hatches[machine], "edgecolor": "white",
            "linewidth": 0.0,
        }
        for machine, planner in pairs
    }  # fmt: skip


def _dealt(styles: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """A style for each distinct name, in order; over again when they run out."""
    return dict(zip(dict.fromkeys(names), cycle(styles), strict=False))


def _speed_ups(
    figure: Any, measured: Measured, pairs: Sequence[Pair], models: Sequence[str]
) -> None:
    """Groups of bars; a line over a group is what the roofline bound leaves possible, a line in
    the last group a goal."""
    gains, means = speed_ups(measured.rows), mean_speed_ups(measured.rows)
    bases, styles = base_rows(measured.rows), _styles(pairs)
    shown = [pair for pair in pairs if pair in means]
    models = [model for model in models if model in bases]
    axes = figure.subplots()
    axes.set_title(f"Simulated speed-up over {BASE[1]} on {BASE[0]}")
    width = 0.8 / max(1, len(shown))
    for at, pair in enumerate(shown):
        heights = [gains.get((model, pair), 0.0) for model in models] + [means[pair]]
        places = [x + (at - (len(shown) - 1) / 2) * width for x in range(len(heights))]
        bars = axes.bar(
            places, heights, width, label=f"{pair[1]}, {pair[0]}", **styles[pair]
        )  # fmt: skip
        axes.bar_label(bars, fmt="%.2f", fontsize=6, rotation=90, padding=2)
        if pair in GOALS:
            x = places[-1]
            axes.plot([x - width / 2, x + width / 2], [GOALS[pair]] * 2, color="black", lw=1.5)
    least = {
        model: min(row.bound_us for row in measured.rows if row.model == model) for model in models
    }
    best = {model: bases[model].simulated_us / bound_us for model, bound_us in least.items()}
    tops = [*best.values(), geometric_mean(best.values())]
    axes.hlines(
        tops, [x - 0.42 for x in range(len(tops))], [x + 0.42 for x in range(len(tops))],
        color="black", linestyle="dotted", linewidth=1.0, label="roofline bound",
    )  # fmt: skip
    if any(pair in GOALS for pair in shown):
        axes.plot([], [], color="black", lw=1.5, label="goal")
    axes.axhline(1.0, color="black", linewidth=0.5)
    axes.set_xticks(range(len(tops)), [*map(title_of, models), MEAN])
    axes.set_xlim(-0.6, len(tops) - 0.4)
    axes.set_ylim(0.0, 1.18 * max(*tops, *gains.values(), 1.0))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")


def _breakdowns(
    figure: Any, measured: Measured, pairs: Sequence[Pair], models: Sequence[str]
) -> None:
    figure.suptitle("Simulated time by part, % of the first bar")
    machines = list(dict.fromkeys(machine for machine, _ in pairs))
    row = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    found = {
        (one.model, (one.machine, one.planner)): parts
        for one, parts in zip(measured.rows, measured.breakdowns, strict=True)
    }
    for axes, model in zip(row, models, strict=True):
        own = {pair: found[model, pair] for pair in pairs if (model, pair) in found}
        labels = [
            planner if len(machines) == 1 else f"{planner}\n{machine}" for machine, planner in own
        ]
        stack(axes, labels, list(own.values()), next(iter(own.values())).total_cycles)
        axes.set_title(title_of(model))
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
        axes.axhline(100.0, color="black", linewidth=0.5)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside right upper")


def _rooflines(figure: Any, measured: Measured, case: Case, models: Sequence[str]) -> None:
    """Every convolution and fully connected layer as simulated: MACs a second against MACs a byte
    that crossed the DRAM bus."""
    machine, ghz = case.machine.name, case.machine.frequency_mhz / 1e3
    layers = [layer for layer in measured.layers if layer.machine == machine and layer.macs]
    planners = list(dict.fromkeys(layer.planner for layer in layers))
    colors = _dealt(NETWORK_COLORS, models)
    figure.suptitle(f"Rooflines of {machine}: convolutions and fully connected layers, simulated")
    row = figure.subplots(1, len(planners), sharex=True, sharey=True, squeeze=False)[0]
    intensities = [layer.macs / layer.dram_bytes for layer in layers]
    reach = (min(intensities) / 2, max(intensities) * 2)
    for axes, planner in zip(row, planners, strict=True):
        _roofs(axes, case.top, ghz, reach)
        for model in models:
            own = [x for x in layers if (x.planner, x.model) == (planner, model)]
            axes.scatter(
                [x.macs / x.dram_bytes for x in own],
                [max(x.macs / x.simulated_us / 1e3, LEAST_GMACS) for x in own],
                s=9, alpha=0.7, linewidths=0, color=colors[model], label=title_of(model),
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", title=planner, xlabel="MACs per DRAM byte", xlim=reach)
    row[0].set_ylabel("GMAC/s")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside right upper")


def _roofs(axes: Any, top: Roofs, ghz: float, reach: tuple[float, float]) -> None:
    x = np.geomspace(*reach, 200)
    for name, style, macs, source, rate in (
        ("peak", "dashed", top.peak_macs, "DRAM", top.dram_bytes),
        ("reachable", "solid", top.reachable_macs, "DMA engines", top.engine_bytes),
    ):
        axes.plot(
            x, ghz * np.minimum(x * rate, macs), color="black", linestyle=style, linewidth=0.8,
            label=f"{name} {ghz * macs:.0f} GMAC/s;\n{source} {ghz * rate:.1f} GB/s",
        )  # fmt: skip
