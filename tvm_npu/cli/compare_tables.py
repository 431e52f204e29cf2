"""A comparison as a table, and as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tvm_npu.cli.tables import Column, plural, print_tables

if TYPE_CHECKING:
    from rich.console import Console

    from tvm_npu.comparison import Comparison
    from tvm_npu.comparison.row import Row

MEGA = 1e6


def print_comparison(found: Comparison, console: Console) -> None:
    """The table of those that ran, what compilation took, and what failed."""
    ran = [row for row in found.rows if row.error is None]
    console.print(
        f"{found.model}: {plural(found.images, 'image')}; threads of what runs on this CPU: "
        f"{found.threads}",
        soft_wrap=True,
    )
    if ran:
        print_tables(_columns(ran, found.reference), console)
        console.print(
            "latency: of one inference; sim: cycles of the simulated machine; cpu: median measured "
            "on this CPU",
            soft_wrap=True,
        )
        for line in _below(found, ran):
            console.print(line, soft_wrap=True)
    for row in found.rows:
        if row.error is not None:
            console.print(f"failed: {row.name}: {row.error}", soft_wrap=True)
    for text in found.left_out:
        console.print(f"left out: {text}", soft_wrap=True)


def _columns(rows: list[Row], reference: str) -> list[Column]:
    def cells(text: Callable[[Row], str]) -> tuple[str, ...]:
        return tuple(text(row) for row in rows)

    def number(key: str, spec: str, factor: float = 1.0) -> tuple[str, ...]:
        values = [getattr(row, key) for row in rows]
        return tuple("-" if value is None else format(value * factor, spec) for value in values)

    columns = [
        Column("runner", cells(lambda row: row.name), key=True),
        Column("latency\nus", number("latency_us", ",.0f")),
        Column("", cells(lambda row: "sim" if row.simulated else "cpu"), key=True),
        Column("images\n/s", number("images_per_s", ",.1f")),
        Column("energy\nuJ", number("energy_uj", ",.1f")),
        Column("SQNR\ndB", cells(lambda row: _sqnr(row, reference))),
        Column("top-1", number("top1", ".3f")),
        Column("compile\ns", number("compile_s", ".1f")),
        Column("library\nMB", number("library_bytes", ".1f", 1 / MEGA)),
        Column("peak\nMB", number("peak_rss_bytes", ".0f", 1 / MEGA)),
        Column("CPU part\nus", number("rest_us", ",.0f")),
    ]
    return [column for column in columns if set(column.cells) != {"-"}]


def _sqnr(row: Row, reference: str) -> str:
    if row.name == reference:
        return "ref"
    if row.sqnr_db is None:
        return "same" if reference else "-"
    return f"{row.sqnr_db:.1f}"


def _below(found: Comparison, rows: list[Row]) -> Iterator[str]:
    if found.reference:
        yield f"SQNR: against the answers of {found.reference}"
    for row in rows:
        if row.npu_mac_share is not None and row.npu_mac_share < 1:
            yield f"{row.name}: {row.npu_mac_share:.1%} of all MACs in {row.regions} regions"
    for row in rows:
        phases = sorted(row.phases_s.items(), key=lambda item: -item[1])
        if len(phases) > 1:
            listed = ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases)
            yield f"compile s of {row.name}: {listed}"
