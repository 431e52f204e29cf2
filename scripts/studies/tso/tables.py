"""The TSO reproduction as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.shared.accuracy import accuracy_of
from studies.shared.networks import NetworkFacts
from studies.shared.simulation import Breakdown, LayerMeasurement
from studies.shared.titles import TITLES
from studies.tso.cells import Cell, SpeedUp, models_of, speed_ups, summarize
from studies.tso.published import BURST, MACHINE, NO_BURST, TRANSFER_SHARE
from tvm_npu.cli.tables import Column

Breakdowns = Mapping[tuple[str, str], Breakdown]
"""By model and column head."""


def print_reproduction(
    console: Console,
    networks: Sequence[NetworkFacts],
    cells: Sequence[Cell],
    breakdowns: Breakdowns,
    layers: Sequence[LayerMeasurement],
) -> None:
    """Everything that was measured, then what it amounts to."""
    gains = speed_ups(cells, BURST.head)
    print_sheets(
        console,
        [
            networks_table(networks),
            cells_table(cells),
            *([speed_ups_table(gains)] if gains else []),
            breakdown_table(breakdowns),
        ],
    )
    for line in (*summary_lines(cells), accuracy_line(layers)):
        console.print(line, soft_wrap=True)


def networks_table(networks: Sequence[NetworkFacts]) -> Sheet:
    """What was run: times below are sums over a network's regions, each run once."""
    columns = [
        Column("network", tuple(TITLES[one.model] for one in networks), name=True),
        Column("regions", tuple(str(one.regions) for one in networks)),
        Column("layers", tuple(str(one.layers) for one in networks)),
        Column("MMACs", tuple(f"{one.macs / 1e6:,.1f}" for one in networks)),
        Column("MACs\non the NPU", tuple(f"{one.npu_mac_share:.2%}" for one in networks)),
        Column("operators\non the CPU", tuple(str(one.cpu_operators) for one in networks)),
    ]
    return Sheet(f"Networks, {MACHINE}, int16, batch 1", columns)


def cells_table(cells: Sequence[Cell]) -> Sheet:
    """Table I: rows of paper, simulated, ratio and predicted for each model."""
    rows: tuple[tuple[str, Callable[[Cell], str]], ...] = (
        ("paper us", lambda cell: f"{cell.paper_us:,.0f}"),
        ("simulated us", lambda cell: f"{cell.simulated_us:,.0f}"),
        ("ratio", lambda cell: f"{cell.ratio:.2f}"),
        ("predicted us", lambda cell: f"{cell.predicted_us:,.0f}"),
    )
    return _by_model(cells, "Table I: microseconds, ratio = simulated / paper", rows)


def speed_ups_table(gains: Sequence[SpeedUp]) -> Sheet:
    """Figures 8 (no burst), 12 (fixed TLE slicing) and 13 (fixed TLT schedule)."""
    rows: tuple[tuple[str, Callable[[SpeedUp], str]], ...] = (
        ("paper", lambda gain: f"{gain.paper:+.1%}"),
        ("simulated", lambda gain: f"{gain.simulated:+.1%}"),
    )
    title = "Speed-up of burst over ... (figures 8, 12, 13): time / burst time - 1"
    return _by_model(gains, title, rows)


def _by_model(
    items: Sequence[Cell] | Sequence[SpeedUp],
    title: str,
    rows: Sequence[tuple[str, Callable[..., str]]],
) -> Sheet:
    """One column for each column of Table I, ``rows`` for each model."""
    found = {(item.model, item.column): item for item in items}
    models = models_of(items)
    heads = tuple(dict.fromkeys(head for _, head in found))
    names = [TITLES[model] if not n else "" for model in models for n in range(len(rows))]
    kinds = [kind for _ in models for kind, _ in rows]
    columns = [Column("network", tuple(names), name=True), Column("", tuple(kinds), prose=True)]
    for head in heads:
        texts = [
            show(found[model, head]) if (model, head) in found else "-"
            for model in models
            for _, show in rows
        ]
        columns.append(Column(head, tuple(texts)))
    return Sheet(title, columns)


def breakdown_table(breakdowns: Breakdowns) -> Sheet:
    """Figure 9: shares of simulated time; the paper gives numbers for two bars only."""
    shown = tuple(breakdowns)

    def share(part: Callable[[Breakdown], float]) -> tuple[str, ...]:
        return tuple(f"{part(one) / one.total_cycles:.1%}" for one in breakdowns.values())

    paper = tuple(
        f"{TRANSFER_SHARE[model]:.1%}" if head == NO_BURST.head and model in TRANSFER_SHARE else ""
        for model, head in shown
    )
    columns = [
        Column("network", tuple(TITLES[model] for model, _ in shown), name=True),
        Column("strategy", tuple(head for _, head in shown), prose=True),
        Column("load", share(lambda one: one.load_cycles)),
        Column("store", share(lambda one: one.store_cycles)),
        Column("MAC", share(lambda one: one.mac_cycles)),
        Column("other", share(lambda one: one.other_cycles)),
        Column("load + store", share(lambda one: one.load_cycles + one.store_cycles)),
        Column("paper:\nload + store", paper),
    ]
    return Sheet("Breakdown of the simulated time (figure 9)", columns)


def summary_lines(cells: Sequence[Cell]) -> list[str]:
    """What a table amounts to, one statement a line."""
    summary = summarize(cells)

    def correlation(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.3f}"

    return [
        f"cells: {summary.cells}; all values equal the reference's, bit for bit",
        f"mean absolute error of simulated against paper: {summary.mean_absolute_error:.1%} "
        f"(geometric mean of the ratios: {summary.geometric_mean_ratio:.3f})",
        *error_lines(cells),
        f"Spearman rank correlation over all cells: {correlation(summary.rank_correlation)}; "
        "among the cells of one network, mean: "
        f"{correlation(summary.rank_correlation_in_model)}",
        f"mean absolute error of predicted against simulated: {summary.mean_prediction_error:.1%}",
    ]


def accuracy_line(layers: Sequence[LayerMeasurement]) -> str:
    """Predicted against simulated, layer by layer, over all cells."""
    found = accuracy_of([(one.predicted_cycles, one.cycles) for one in layers if one.cycles > 0])
    pearson = "undefined" if found.pearson is None else f"{found.pearson:.4f}"
    return (
        f"the same by layer, {found.layers:,} layers of all cells: "
        f"{found.mean_absolute_error:.1%}; Pearson correlation: {pearson}"
    )


def error_lines(cells: Sequence[Cell]) -> list[str]:
    """Where the error sits: mean absolute errors by network and by column."""

    def line(what: str, groups: Mapping[str, list[Cell]]) -> str:
        parts = (f"{n} {summarize(own).mean_absolute_error:.1%}" for n, own in groups.items())
        return f"  by {what}: {', '.join(parts)}"

    models = dict.fromkeys(cell.model for cell in cells)
    columns = dict.fromkeys(cell.column for cell in cells)
    return [
        line("network", {TITLES[m]: [c for c in cells if c.model == m] for m in models}),
        line("column", {head: [c for c in cells if c.column == head] for head in columns}),
    ]
