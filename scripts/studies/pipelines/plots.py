"""The reproduction as one drawing. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.harness.drawing import render
from studies.pipelines.cases import CHIPLETS
from studies.pipelines.figures import EIGHT, HEURISTICS, find, heuristic_shares
from studies.pipelines.found import Found
from studies.pipelines.guided_study import Trust
from studies.pipelines.pipe_study import Quality
from studies.pipelines.published import EXHAUSTIVE_BANDS, PIPE_BANDS
from studies.pipelines.rows import Row
from studies.pipelines.shisha_study import Latency, Seeds

SHOWN = {
    "shisha-h1": ("tab:blue", "o"),
    "shisha-h3": ("tab:cyan", "o"),
    "guided": ("tab:red", "*"),
    "pipe-search": ("tab:orange", "s"),
    "random-walk": ("0.6", "x"),
    "hill-climbing": ("tab:green", "^"),
    "hill-climbing-seeded": ("tab:olive", "^"),
    "annealing": ("tab:purple", "v"),
    "annealing-seeded": ("tab:pink", "v"),
    "exhaustive": ("black", "D"),
}


def plot(found: Found, file_format: str) -> bytes:
    """The drawing as a file of one of FORMATS; panels of parts that were left out are empty."""

    def draw(figure: Any) -> None:
        grid = figure.subplots(3, 3, squeeze=False)
        for axes, model in zip(grid[0], CHIPLETS, strict=True):
            _convergence(axes, found.rows, model)
        _heuristics(grid[1][0], found.rows)
        for axes, model in zip(grid[1][1:], CHIPLETS[1:], strict=True):
            _seeds(axes, [one for one in found.seeds if one.model == model], model)
        _latency(grid[2][0], found.latencies)
        _bands(grid[2][1], found.quality)
        _trust(grid[2][2], found.trust)
        handles, labels = [], []
        for axes in grid[0]:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                if label not in labels:
                    handles.append(handle)
                    labels.append(label)
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=5)

    return render(draw, (12.0, 11.0), file_format)


def _empty(axes: Any, title: str) -> None:
    axes.set_title(title)
    axes.text(0.5, 0.5, "left out", ha="center", va="center", transform=axes.transAxes, color="0.5")
    axes.set_xticks([])
    axes.set_yticks([])


def _convergence(axes: Any, rows: Sequence[Row], model: str) -> None:
    """Figure 4: where each search ends up, and when."""
    title = f"{model}, eight places: convergence"
    found = {name: find(rows, model, EIGHT, name) for name in SHOWN}
    if not any(found.values()):
        _empty(axes, title)
        return
    for name, (color, marker) in SHOWN.items():
        row = found[name]
        if row is not None:
            axes.scatter(
                row.convergence_s, row.share_of_best, color=color, marker=marker, s=45,
                label=name, zorder=3,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.axhline(1.0, color="black", linewidth=0.5)
    axes.set_xlabel("running time until its best, s")
    axes.set_ylabel("throughput / optimum")
    axes.grid(alpha=0.3)
    axes.set_title(title)


def _heuristics(axes: Any, rows: Sequence[Row]) -> None:
    """Figure 7."""
    title = "Shisha's heuristics, mean over networks"
    shares = {name: heuristic_shares(rows, name) for name in HEURISTICS}
    if not any(shares.values()):
        _empty(axes, title)
        return
    platforms = list(shares[HEURISTICS[0]])
    width = 0.8 / len(shares)
    for index, (name, share) in enumerate(shares.items()):
        xs = [x - 0.4 + width * (index + 0.5) for x in range(len(platforms))]
        label = name.removeprefix("shisha-").upper()
        axes.bar(xs, [share[platform] for platform in platforms], width, label=label)
    axes.set_xticks(
        range(len(platforms)), [one.removeprefix("shisha-").upper() for one in platforms]
    )
    axes.set_ylim(0.4, 1.02)
    axes.axhline(1.0, color="black", linewidth=0.5)
    axes.set_ylabel("throughput / optimum")
    axes.legend(ncols=6, loc="lower center", fontsize=6, framealpha=1)
    axes.set_title(title)


def _seeds(axes: Any, found: Sequence[Seeds], model: str) -> None:
    """Figure 6: solutions from random seeds, and from Shisha's."""
    title = f"{model}, eight places: 100 random seeds"
    if not found:
        _empty(axes, title)
        return
    first = found[0]  # H1 and H3 differ in their seeds only: from random ones they are the same
    axes.scatter(first.times_s, first.throughputs, color="0.5", s=10, label="random seeds")
    for one, color in zip(found, ("tab:blue", "tab:cyan"), strict=False):
        axes.scatter(
            one.own_time_s, one.own_throughput, color=color, marker="*", s=160, edgecolor="black",
            label=f"{one.search}, its own seed",
        )  # fmt: skip
    axes.set_xlabel("running time until its best, s")
    axes.set_ylabel("frames / s")
    axes.legend(fontsize=6)
    axes.grid(alpha=0.3)
    axes.set_title(title)


def _latency(axes: Any, found: Sequence[Latency]) -> None:
    """Figure 9."""
    title = "SynthNet, eight places: latency between places"
    if not found:
        _empty(axes, title)
        return
    xs = [one.latency_s for one in found]
    axes.plot(xs, [one.optimum for one in found], color="black", label="optimum")
    axes.plot(xs, [one.guided for one in found], "*", color="tab:red", label="guided")
    axes.plot(xs, [one.shisha for one in found], "o", color="tab:blue", ms=3, label="shisha-h1")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("latency, s")
    axes.set_ylabel("frames / s")
    axes.legend(loc="lower left")
    axes.set_title(title)


def _bands(axes: Any, found: Quality | None) -> None:
    """Table 4."""
    title = "VGG16, four cores: quality of trials"
    if found is None:
        _empty(axes, title)
        return
    groups = {
        "pipe-search, paper": PIPE_BANDS,
        "pipe-search": found.pipe_bands,
        "exhaustive, paper": EXHAUSTIVE_BANDS,
        "exhaustive": found.space_bands,
    }
    bottoms = [0.0] * len(groups)
    for index, name in enumerate(("1 to 1.5", "1.5 to 2", "2 to 5 times the best")):
        heights = [band[index] for band in groups.values()]
        color = ("tab:green", "gold", "tab:red")[index]
        axes.bar(range(len(groups)), heights, bottom=bottoms, label=name, color=color)
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set_xticks(range(len(groups)), [name.replace(", ", "\n") for name in groups])
    axes.set_ylabel("% of configurations")
    axes.set_ylim(0, 118)
    axes.legend(loc="upper center", fontsize=6, ncols=3)
    axes.set_title(title)


def _trust(axes: Any, found: Sequence[Trust]) -> None:
    """How many runs of the guided search come how close to the optimum."""
    title = "guided from cold, all cases"
    if not found:
        _empty(axes, title)
        return
    for condition in dict.fromkeys(one.condition for one in found):
        shares = [share for one in found if one.condition == condition for share in one.shares]
        axes.ecdf(shares, label=condition, linewidth=1.2)
    axes.set_xlim(right=1.004)
    axes.axvline(0.99, color="black", linewidth=0.5, linestyle=":")
    axes.set_xlabel("throughput / optimum")
    axes.set_ylabel("share of runs up to that")
    axes.legend(loc="upper left", fontsize=6)
    axes.grid(alpha=0.3)
    axes.set_title(title)
