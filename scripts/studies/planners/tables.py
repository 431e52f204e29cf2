"""The benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.planners.measuring import Row
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


def _time(row: Row) -> str:
    return "-" if row.simulated_us is None else f"{row.simulated_us:,.1f}"


def _bits(row: Row) -> str:
    return "-" if row.bit_mismatches is None else f"{row.bit_mismatches:,}"
