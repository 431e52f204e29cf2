"""The benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.planners.measuring import LayerRow, Row
from tvm_npu.cli.tables import Column


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """Simulated time by planner (down) and network and machine (across), then what went wrong."""
    planners = list(dict.fromkeys(row.planner for row in rows))
    found = {(row.model, row.machine, row.planner): row for row in rows}
    for machine in dict.fromkeys(row.machine for row in rows):
        models = list(dict.fromkeys(row.model for row in rows if row.machine == machine))
        columns = [Column("planner", tuple(planners), name=True)]
        for model in models:
            own = [found[model, machine, name] for name in planners]
            columns.append(Column(f"{model}\nus", tuple(_time(row) for row in own)))
            columns.append(Column("bits\noff", tuple(_bits(row) for row in own)))
        precision = next(row.precision for row in rows if row.machine == machine)
        print_sheets(console, [Sheet(f"{machine}, {precision}: simulated", columns)])
    ran = [row for row in rows if not row.error]
    off = sum(row.bit_mismatches or 0 for row in ran)
    console.print(f"{len(ran)} of {len(rows)} combinations ran; {off} bits off in all")
    for row in rows:
        if row.error:
            where = f"{row.model}, {row.machine}, {row.planner}"
            console.print(f"did not run: {where}: {row.error}", soft_wrap=True)


SIZES = ((1e3, "1 k"), (1e4, "10 k"), (1e5, "100 k"), (float("inf"), "more"))
"""Classes of layers: simulated cycles below, and how it is written."""


def print_errors(console: Console, layers: Sequence[LayerRow]) -> None:
    """Mean error of predictions against the simulation by machine and planner (down) and size of
    layers (across); of the layers that have one."""
    asked = [layer for layer in layers if layer.predicted_cycles and layer.simulated_cycles]
    if not asked:
        return
    keys = list(dict.fromkeys((layer.machine, layer.planner) for layer in asked))
    columns = [
        Column("machine", tuple(machine for machine, _ in keys), name=True),
        Column("planner", tuple(name for _, name in keys), name=True),
    ]
    classes = [(0.0, float("inf"), "all layers")]
    lows = [0.0, *(below for below, _ in SIZES)]
    classes += [
        (low, below, f"below {text}\ncycles" if below < float("inf") else text)
        for low, (below, text) in zip(lows, SIZES, strict=False)
    ]
    for low, below, title in classes:
        own = [
            [
                abs((layer.predicted_cycles or 0.0) / layer.simulated_cycles - 1)
                for layer in asked
                if (layer.machine, layer.planner) == key
                and low <= layer.simulated_cycles < below
            ]
            for key in keys
        ]
        columns.append(Column(title, tuple(_mean(errors) for errors in own)))
    print_sheets(console, [Sheet("mean error of predictions, % (layers)", columns)])


def _mean(errors: Sequence[float]) -> str:
    return f"{100 * sum(errors) / len(errors):.1f} ({len(errors)})" if errors else "-"


def _time(row: Row) -> str:
    return "-" if row.simulated_us is None else f"{row.simulated_us:,.1f}"


def _bits(row: Row) -> str:
    return "-" if row.bit_mismatches is None else f"{row.bit_mismatches:,}"
