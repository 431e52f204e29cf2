"""The reproduction as tables for people: paper, ours, ratio."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.console import Console

from studies.eplanner.measuring import (
    BASELINES,
    OWN,
    Measured,
    Row,
    cells,
    reductions,
    speed_ups,
)
from studies.eplanner.published import (
    MODELS,
    REDUCTION_BY_MODEL,
    REDUCTION_BY_SETUP,
    SPACE_KEPT,
    SPACE_MILLIONS,
    SPEED_UP,
    SPEED_UPS,
    TRAFFIC_REDUCTION,
)
from studies.harness.tables import Sheet, print_sheets
from studies.shared.accuracy import accuracy_of
from tvm_npu.cli.tables import Column
from tvm_npu.models.eplanner import NETWORKS

TITLES = {model: network.title for model, network in zip(MODELS, NETWORKS, strict=True)}
NOTES = """\
Readings of the thesis, the same for every cell: traffic is what the emitted programs move, halos,
edge tiles, biases and partial sums included; one image; layers as in Table 4.1, each as often as it
runs, projections of ResNet-50 left out; a reduction is 1 - e-PlaNNer / baseline, averaged over the
three baselines of a cell and then over cells; Zhang gets all but the dataflow from e-PlaNNer;
SmartShuttle's weight-stationary priority is OC, then IC, then OH. Some forty combinations of such
readings were computed beside the published averages before this one was taken: this is calibration,
not independent validation.
The thesis timed CUDA code on a Jetson TX2, with a copy and a kernel start for every tile; here a
transfer starts in tens of cycles and the array multiplies at its peak rate, so small tiles lose far
less and speed-ups are far below the published ones."""


def print_measured(console: Console, measured: Measured) -> None:
    rows = measured.rows
    sheets = (traffic_table, reduction_table, speed_up_table, space_table)
    print_sheets(console, [make(rows) for make in sheets])
    for line in summary_lines(measured):
        console.print(line, soft_wrap=True)
    console.print(NOTES, soft_wrap=True)


def traffic_table(rows: Sequence[Row]) -> Sheet:
    """Off-chip MB and simulated ms by planner."""
    found = cells(rows)
    planners = list(dict.fromkeys(row.planner for row in rows))
    firsts = [next(iter(own.values())) for own in found.values()]
    columns = [
        Column("network", tuple(TITLES[model] for model, _ in found), name=True),
        Column("distinct\nlayers", tuple(f"{r.distinct_layers} of {r.layers}" for r in firsts)),
        Column("set-up", tuple(setup for _, setup in found)),
        Column("every tensor\nonce, MB", tuple(f"{r.compulsory_bytes / 1e6:,.1f}" for r in firsts)),
    ]
    for name in planners:
        own = [cell.get(name) for cell in found.values()]
        texts = [f"{r.offchip_bytes / 1e6:,.1f}" if r else "-" for r in own]
        times = [f"{r.simulated_us / 1e3:,.1f}" if r else "-" for r in own]
        columns.append(Column(f"{name}\nMB", tuple(texts)))
        columns.append(Column("\nms", tuple(times)))
    return Sheet("Off-chip traffic and simulated time", columns)


def reduction_table(rows: Sequence[Row]) -> Sheet:
    """Section 8.3: per cent less traffic than the baselines, by network, set-up and in all."""
    found = reductions(rows)
    groups: list[tuple[str, float | None, list[dict[str, float]]]] = []
    for model in dict.fromkeys(model for model, _ in found):
        own = [cell for key, cell in found.items() if key[0] == model]
        groups.append((TITLES[model], REDUCTION_BY_MODEL.get(model), own))
    for setup in dict.fromkeys(setup for _, setup in found):
        own = [cell for key, cell in found.items() if key[1] == setup]
        groups.append((f"set-up {setup}", REDUCTION_BY_SETUP.get(setup), own))
    groups.append(("all", TRAFFIC_REDUCTION, list(found.values())))
    ours = [average(own) for _, _, own in groups]
    columns = [
        Column("average over", tuple(name for name, _, _ in groups), name=True),
        Column("paper %", tuple("" if paper is None else f"{paper:.2f}" for _, paper, _ in groups)),
        Column("ours %", tuple(f"{value:.2f}" for value in ours)),
        Column(
            "ratio",
            tuple(
                "" if paper is None else f"{value / paper:.2f}"
                for (_, paper, _), value in zip(groups, ours, strict=True)
            ),
        ),
    ]
    for name in BASELINES:
        values = [[cell[name] for cell in own if name in cell] for _, _, own in groups]
        texts = tuple(f"{fmean(some):.2f}" if some else "-" for some in values)
        columns.append(Column(f"against\n{name} %", texts))
    return Sheet("Less off-chip traffic than the baselines (section 8.3)", columns)


def average(found: Sequence[dict[str, float]]) -> float:
    """Over the baselines of a cell, then over cells."""
    return fmean(fmean(cell.values()) for cell in found)


def speed_up_table(rows: Sequence[Row]) -> Sheet:
    """Table 8.4."""
    found = speed_ups(rows)
    keys = list(found)
    paper = [SPEED_UPS[setup][MODELS.index(model)] for model, setup in keys]
    columns = [
        Column("network", tuple(TITLES[model] for model, _ in keys), name=True, total="average"),
        Column("set-up", tuple(setup for _, setup in keys)),
        Column("paper", tuple(f"{value:.3f}" for value in paper), total=f"{SPEED_UP:.3f}"),
        Column(
            "simulated",
            tuple(f"{found[key]:.3f}" for key in keys),
            total=f"{fmean(found.values()):.3f}",
        ),
        Column(
            "ratio",
            tuple(f"{found[key] / value:.2f}" for key, value in zip(keys, paper, strict=True)),
        ),
    ]
    return Sheet("Speed-up over the mean of the baselines (Table 8.4)", columns)


def space_table(rows: Sequence[Row]) -> Sheet:
    """Table 8.5."""
    found = [own[OWN] for own in cells(rows).values() if OWN in own]
    at = [MODELS.index(row.model) for row in found]
    paper_kept = [SPACE_KEPT[row.setup][index] for row, index in zip(found, at, strict=True)]
    paper_all = [SPACE_MILLIONS[index] * 1e6 for index in at]
    columns = [
        Column("network", tuple(TITLES[row.model] for row in found), name=True),
        Column("set-up", tuple(row.setup for row in found)),
        Column("paper\nall, M", tuple(f"{value / 1e6:,.3f}" for value in paper_all)),
        Column("ours\nall, M", tuple(f"{row.space / 1e6:,.3f}" for row in found)),
        Column("paper\nkept", tuple(f"{value:,}" for value in paper_kept)),
        Column("ours\nkept", tuple(f"{row.space_kept:,}" for row in found)),
        Column(
            "paper\nshare %",
            tuple(f"{100 * k / a:.5f}" for k, a in zip(paper_kept, paper_all, strict=True)),
        ),
        Column("ours\nshare %", tuple(f"{100 * r.space_kept / r.space:.5f}" for r in found)),
    ]
    return Sheet("Search space before and after pruning (Table 8.5)", columns)


def summary_lines(measured: Measured) -> list[str]:
    found = cells(measured.rows)
    lines = []
    own = [cell[OWN] for cell in found.values() if OWN in cell]
    if own:
        slowest = max(own, key=lambda row: row.plan_s)
        lines.append(
            f"planning, {OWN}, slowest network: {slowest.plan_s * 1e3:.0f} ms "
            f"({TITLES[slowest.model]}, set-up {slowest.setup}; thesis: up to 1.4 s)"
        )
    if all("exact-traffic" in cell for cell in found.values()):
        least = sum(
            cell["exact-traffic"].offchip_bytes <= min(row.offchip_bytes for row in cell.values())
            for cell in found.values()
        )
        lines.append(f"cases in which exact-traffic moves least: {least} of {len(found)}")
    times = [(one.predicted_cycles, one.cycles) for one in measured.timed]
    accuracy = accuracy_of(times)
    lines.append(
        f"simulated layers: {accuracy.layers:,}, all equal to the reference bit for bit, bytes as "
        f"predicted; predicted against simulated time: {accuracy.mean_absolute_error:.2%} mean "
        f"error, Pearson {accuracy.pearson or 0:.5f}"
    )
    return lines
