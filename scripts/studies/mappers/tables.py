"""The comparison as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.mappers.question import Row
from tvm_npu.cli.tables import Column

FIGURES = {"bytes": "dram_bytes", "cycles": "cycles"}
"""What a goal makes least."""


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """A table for each network and goal, fused and not: layers down, mappers across; then sums."""
    for model, goal, fused in dict.fromkeys((row.model, row.goal, row.fused) for row in rows):
        own = [row for row in rows if (row.model, row.goal, row.fused) == (model, goal, fused)]
        mappers = list(dict.fromkeys(row.mapper for row in own))
        layers = list(dict.fromkeys(row.layer for row in own))
        found = {(row.layer, row.mapper): row for row in own}
        compulsory = {row.layer: row.compulsory_bytes for row in own}
        columns = [Column("layer", (*layers, "all"), name=True)]
        columns.append(Column("every tensor\nonce, bytes", _with_sum(list(compulsory.values()))))
        for mapper in mappers:
            figures = [_figure(found.get((layer, mapper))) for layer in layers]
            times = [_time(found.get((layer, mapper))) for layer in layers]
            columns.append(Column(f"{mapper}\n{goal}", _with_sum(figures)))
            columns.append(Column("CPU s", _with_sum(times, ".3f")))
        title = f"{model}{', fused' if fused else ''}, least {goal}"
        print_sheets(console, [Sheet(title, columns)])
        for mapper in mappers:
            one = next(row for row in own if row.mapper == mapper)
            console.print(f"{mapper} {one.version}: {one.notes}", soft_wrap=True)
        console.print()


def _figure(row: Row | None) -> float | None:
    if row is None:
        return None
    value: float | None = getattr(row, FIGURES[row.goal])
    return value


def _time(row: Row | None) -> float | None:
    return None if row is None else row.cpu_s


def _with_sum(values: Sequence[float | None], form: str = ",.0f") -> tuple[str, ...]:
    """The sum only where no value is missing."""
    known = [value for value in values if value is not None]
    total = format(sum(known), form) if len(known) == len(values) else "-"
    return (*("-" if value is None else format(value, form) for value in values), total)
