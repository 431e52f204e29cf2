"""The comparison as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.vs_tvm.searches import SearchRow
from tvm_npu.cli.tables import Column, plural

Figures = dict[str, Any]
COLUMNS: tuple[tuple[str, str, str, float], ...] = (
    ("latency_us", "latency\nus", ",.0f", 1.0),
    ("compile_s", "compile\ns", ".1f", 1.0),
    ("library_bytes", "library\nMB", ".1f", 1e-6),
    ("peak_rss_bytes", "peak\nMB", ",.0f", 1e-6),
    ("sqnr_db", "SQNR\ndB", ".1f", 1.0),
)
"""Key, heading, format and factor."""
SHOWN_TRIALS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def print_rows(console: Console, rows: Sequence[Figures]) -> None:
    ran = [row for row in rows if row["error"] is None]
    columns = [
        Column("model", tuple(row["model"] for row in ran), name=True),
        Column("runner", tuple(row["machine"] or row["runner"] for row in ran), name=True),
        Column("door", tuple(row["door"] or "-" for row in ran), name=True),
        Column("time", tuple("sim" if row["simulated"] else "cpu" for row in ran), name=True),
    ]
    for key, heading, spec, factor in COLUMNS:
        cells = ("-" if row[key] is None else format(row[key] * factor, spec) for row in ran)
        columns.append(Column(heading, tuple(cells)))
    if ran:
        print_sheets(console, [Sheet("NPU (simulated) beside what runs on this CPU", columns)])
    for row in rows:
        if row["error"] is not None:
            where = ", ".join(filter(None, (row["model"], row["runner"], row["door"])))
            console.print(f"failed: {where}: {row['error']}", soft_wrap=True)


def print_same(console: Console, same: int, differing: Sequence[str]) -> None:
    """Programs and outputs through both doors."""
    rows = plural(same, "row")
    console.print(f"the same program and the same output bits through both doors: {rows}")
    for text in differing:
        console.print(f"different through the two doors: {text}", soft_wrap=True)


def print_searches(console: Console, rows: Sequence[SearchRow]) -> None:
    shown = [row for row in rows if row.trials in SHOWN_TRIALS]
    if not shown:
        return

    def ratio(row: SearchRow) -> str:
        known = row.best_us is not None and row.exact_us
        return f"{row.best_us / row.exact_us:.3f}" if known else "-"  # type: ignore[operator]

    columns = [
        Column("model", tuple(row.model for row in shown), name=True),
        Column("machine", tuple(row.machine for row in shown), name=True),
        Column("tuner", tuple(row.tuner for row in shown), name=True),
        Column("trials\na layer", tuple(str(row.trials) for row in shown)),
        Column("best us", tuple("-" if r.best_us is None else f"{r.best_us:,.1f}" for r in shown)),
        Column("/ exact", tuple(map(ratio, shown))),
    ]
    print_sheets(console, [Sheet("Tuners by trials, and the planner exact", columns)])


def print_times(console: Console, rows: Sequence[Figures]) -> None:
    """What measuring took, by model and runner: for who plans the next run."""
    runners = list(dict.fromkeys(row["runner"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))

    def seconds(model: str | None, runner: str | None) -> str:
        spent = sum(
            row["whole_s"] for row in rows
            if model in (None, row["model"]) and runner in (None, row["runner"])
        )  # fmt: skip
        return f"{spent:,.0f}"

    lines: list[str | None] = [*models, None]
    columns = [Column("model", tuple(line or "all" for line in lines), name=True)]
    for runner in (*runners, None):
        values = tuple(seconds(line, runner) for line in lines)
        columns.append(Column(runner or "all", values))
    if rows:
        print_sheets(console, [Sheet("Seconds that measuring took", columns)])
