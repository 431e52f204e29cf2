"""The main benchmark as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from tvm_npu.cli.tables import Column

SOURCE = "source"
"""The precision of a model that says its own scales."""
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("bit_mismatches", "bits\noff", "d"),
    ("npu_mac_share", "NPU\nMACs", ".2%"),
    ("regions", "regions", "d"),
    ("sqnr_db", "SQNR\ndB", ".1f"),
    ("top1_float", "top-1\nfloat", ".2%"),
    ("top1_npu", "top-1\nNPU", ".2%"),
    ("within_one_step", "within\n1 step", ".3%"),
    ("source_within_one_step", "source\nitself", ".3%"),
    ("top1_source", "top-1\nsource", ".2%"),
    ("agreement", "agree", ".2%"),
    ("images", "images", "d"),
    ("compile_s", "compile\ns", ".1f"),
    ("stock_compile_s", "stock\ns", ".1f"),
    ("simulate_s", "simulate\ns", ".3f"),
    ("cycles", "cycles", ",.0f"),
    ("code_bytes", "code B", ",d"),
    ("peak_rss_bytes", "peak RSS", ",d"),
)
"""Key, heading and format of each figure."""


def print_rows(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    columns = [
        Column("model", tuple(row["model"] for row in rows), name=True),
        Column("machine", tuple(row["machine"] for row in rows), name=True),
        Column("numbers", tuple(row["precision"] for row in rows), name=True),
    ]
    for key, heading, spec in COLUMNS:
        texts = ("-" if row.get(key) is None else format(row[key], spec) for row in rows)
        columns.append(Column(heading, tuple(texts)))
    print_sheets(console, [Sheet("Main benchmark", columns)])
    for row in rows:
        if row.get("error"):
            where = f"{row['model']}, {row['machine']}, {row['precision']}"
            console.print(f"failed: {where}: {row['error']}", soft_wrap=True)
