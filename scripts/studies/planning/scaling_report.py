"""The scaling study as a table and as a drawing; the drawing needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from studies.harness.drawing import render
from studies.harness.tables import Sheet, print_sheets
from studies.planning.scaling import ScalingRow
from studies.planning.tables import NONE, title_of
from tvm_npu.cli.tables import Column

COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:gray")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def print_scaling(console: Console, rows: Sequence[ScalingRow]) -> None:
    print_sheets(console, [scaling_table(rows)])
    for line in scaling_lines(rows):
        console.print(line, soft_wrap=True)


def scaling_table(rows: Sequence[ScalingRow]) -> Sheet:
    def count(value: float | None) -> str:
        return NONE if value is None else f"{value:,.0f}"

    def distance(row: ScalingRow) -> str:
        return NONE if row.simulated_cycles is None else f"{_distance(row):.2f}"

    def error(row: ScalingRow) -> str:
        if row.simulated_cycles is None or row.predicted_cycles is None:
            return NONE
        return f"{row.predicted_cycles / row.simulated_cycles - 1:+.1%}"

    columns = [
        Column("network", tuple(title_of(row.model) for row in rows), name=True),
        Column("input", tuple(str(row.input_size or NONE) for row in rows)),
        Column("width", tuple(f"{row.width:g}" for row in rows)),
        Column("machine", tuple(row.machine for row in rows), prose=True),
        Column("planner", tuple(row.planner for row in rows), prose=True),
        Column("MMACs", tuple(f"{row.macs / 1e6:,.1f}" for row in rows)),
        Column("simulated\ncycles", tuple(count(row.simulated_cycles) for row in rows)),
        Column("simulated\n/ bound", tuple(map(distance, rows))),
        Column("prediction\nerror", tuple(map(error, rows))),
        Column("distinct\nlayers", tuple(str(row.distinct_layers) for row in rows)),
        Column("planning\nms", tuple(f"{1e3 * row.plan_s:,.1f}" for row in rows)),
        Column("ms a\nlayer", tuple(f"{_per_layer(row):,.2f}" for row in rows)),
    ]
    return Sheet("Scaling: input size and width; planning by distinct layers", columns)


def _per_layer(row: ScalingRow) -> float:
    return 1e3 * row.plan_s / row.distinct_layers


def scaling_lines(rows: Sequence[ScalingRow]) -> list[str]:
    """The exponent of cycles over MACs by machine and planner (1: proportional), and the range of
    planning times a distinct layer."""
    lines = []
    for machine, name in dict.fromkeys((row.machine, row.planner) for row in rows):
        own = [row for row in rows if (row.machine, row.planner) == (machine, name)]
        slope = growth([(row.macs, row.simulated_cycles) for row in own if row.simulated_cycles])
        each = [_per_layer(row) for row in own]
        grows = "" if slope is None else f"simulated cycles grow as MACs to the {slope:.2f}, "
        lines.append(
            f"{name} on {machine}: {grows}planning takes {min(each):.2f} to {max(each):.2f} ms a "
            "distinct layer"
        )
    return lines


def growth(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of a line through the logarithms (least squares); None for one abscissa."""
    if len({x for x, _ in points}) < 2:
        return None
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def plot_scaling(rows: Sequence[ScalingRow], file_format: str) -> bytes:
    """Cycles over MACs, distance to the bound over input size, planning time over distinct layers
    and over input size; equal input gives equal bytes."""
    pairs = tuple(dict.fromkeys((row.machine, row.planner) for row in rows))
    one_machine = len({machine for machine, _ in pairs}) == 1
    scaled = [row for row in rows if row.simulated_cycles]
    planned = [row for row in rows if not row.simulated_cycles]

    def draw(figure: Any) -> None:
        (cycles, distance), (by_layers, by_size) = figure.subplots(2, 2)
        for at, pair in enumerate(pairs):
            color = COLORS[at % len(COLORS)]
            label = pair[1] if one_machine else f"{pair[1]}, {pair[0]}"
            own = [row for row in scaled if (row.machine, row.planner) == pair]
            _curves(cycles, own, color, lambda row: row.macs, lambda row: row.simulated_cycles)
            _curves(distance, own, color, lambda row: row.input_size, _distance)
            _curves(by_size, own, color, lambda row: row.input_size, lambda row: 1e3 * row.plan_s)
            own = sorted(
                (row for row in planned if (row.machine, row.planner) == pair),
                key=lambda row: row.distinct_layers,
            )
            by_layers.plot(
                [row.distinct_layers for row in own], [1e3 * row.plan_s for row in own],
                color=color, marker=".", lw=0.8, label=label,
            )  # fmt: skip
        _dress(cycles, distance, scaled)
        _dress_planning(by_layers, by_size, planned, scaled)
        found = [axes.get_legend_handles_labels() for axes in (by_layers, cycles)]
        figure.legend(
            found[0][0] + found[1][0], found[0][1] + found[1][1], loc="outside right upper"
        )

    return render(draw, (10.0, 7.4), file_format)


def _distance(row: ScalingRow) -> float:
    return (row.simulated_cycles or 0.0) / row.bound_cycles


def _curves(
    axes: Any,
    own: Sequence[ScalingRow],
    color: str,
    x: Callable[[ScalingRow], Any],
    y: Callable[[ScalingRow], Any],
) -> None:
    """A line a width, from the smallest input to the largest."""
    for at, width in enumerate(dict.fromkeys(row.width for row in own)):
        line = [row for row in own if row.width == width]
        axes.plot(
            [x(row) for row in line], [y(row) for row in line], color=color, lw=0.8,
            marker=MARKERS[at % len(MARKERS)], markersize=4,
        )  # fmt: skip


def _dress(cycles: Any, distance: Any, scaled: Sequence[ScalingRow]) -> None:
    name = title_of(scaled[0].model)
    bounds = sorted({(row.macs, row.bound_cycles) for row in scaled})
    cycles.scatter(
        [x for x, _ in bounds], [y for _, y in bounds], marker="_", color="black", linewidths=1.0,
        label="roofline bound",
    )  # fmt: skip
    for at, width in enumerate(dict.fromkeys(row.width for row in scaled)):
        cycles.plot(
            [], [], color="0.4", lw=0.8, marker=MARKERS[at % len(MARKERS)], markersize=4,
            label=f"width {width:g}",
        )  # fmt: skip
    cycles.set(xscale="log", yscale="log", xlabel="MACs", ylabel="simulated cycles")
    cycles.set_title(f"{name}: simulated time")
    distance.set(ylabel="simulated / bound", title=f"{name}: distance to the bound")
    distance.set_ylim(bottom=1.0)
    _size_axis(distance, scaled)


def _dress_planning(
    by_layers: Any, by_size: Any, planned: Sequence[ScalingRow], scaled: Sequence[ScalingRow]
) -> None:
    by_layers.set(xlabel="distinct layers", ylabel="planning time, ms (one core)")
    by_layers.set(yscale="log", title="networks at their published sizes: planning")
    highest: dict[str, ScalingRow] = {}
    for row in planned:
        if row.model not in highest or row.plan_s > highest[row.model].plan_s:
            highest[row.model] = row
    for model, row in highest.items():
        by_layers.annotate(
            title_of(model), (row.distinct_layers, 1e3 * row.plan_s), xytext=(-3, 4),
            textcoords="offset points", fontsize=6, rotation=90, ha="center", va="bottom",
        )  # fmt: skip
    by_layers.margins(y=0.25)
    by_layers.set_xlim(left=0)
    by_size.set(yscale="log", ylabel="planning time, ms (one core)")
    by_size.set_title(f"{title_of(scaled[0].model)}: planning")
    _size_axis(by_size, scaled)


def _size_axis(axes: Any, scaled: Sequence[ScalingRow]) -> None:
    sizes = sorted({row.input_size for row in scaled if row.input_size is not None})
    axes.set(xscale="log", xlabel="input rows and columns")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.minorticks_off()
