"""Runs the main benchmark: a table on screen and, with --json, the same for programs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from studies.main.cases import cases
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_writable, write_json

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("bit_mismatches", "bits off", "d"),
    ("npu_mac_share", "NPU MACs", ".2%"),
    ("regions", "regions", "d"),
    ("sqnr_db", "SQNR dB", ".1f"),
    ("top1_float", "top-1 float", ".2%"),
    ("top1_npu", "top-1 NPU", ".2%"),
    ("agreement", "agree", ".2%"),
    ("images", "images", "d"),
    ("compile_s", "compile s", ".1f"),
    ("stock_compile_s", "stock s", ".1f"),
    ("simulate_s", "simulate s", ".3f"),
    ("cycles", "cycles", ",.0f"),
    ("code_bytes", "code B", ",d"),
    ("peak_rss_bytes", "peak RSS", ",d"),
)


def _measure(case: str, mode: str, folder: Path, extra: list[str]) -> dict[str, Any]:
    """Runs a worker; a failed one gives {"error": its last line}."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "studies.main.worker", case, mode]
    done = subprocess.run(
        [*command, str(folder), str(result), *extra],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode or not result.exists():
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"error": lines[-1]}
    return dict(json.loads(result.read_text()))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Main benchmark, nmp-4x8")
    table.add_column("model")
    table.add_column("precision")
    for _, title, _ in COLUMNS:
        table.add_column(title, justify="right")
    for row in rows:
        cells = [
            "-" if row.get(key) is None else format(row[key], spec) for key, _, spec in COLUMNS
        ]
        table.add_row(row["model"], row["precision"], *cells)
        if row.get("error"):
            table.add_row("", "", f"failed: {row['error']}")
    return table


def _parse(arguments: list[str] | None, known: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench_main",
        description="Every model through relay.build on nmp-4x8, beside stock TVM for the CPU.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--models", nargs="+", metavar="NAME", help=f"of: {', '.join(known)}")
    parser.add_argument("--groups", nargs="+", choices=["pretrained", "light", "built"])
    parser.add_argument("--precision", nargs="+", choices=["int16", "int8"], default=["int16"])
    parser.add_argument("--tles", type=int, help="another number of TLEs than the machine's 4")
    parser.add_argument("--small-tiles", action="store_true", help="force small tiles")
    parser.add_argument("--no-stock", action="store_true", help="leave stock TVM out")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.models or ()) - set(known))
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known: {', '.join(known)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    available = cases()
    options = _parse(arguments, tuple(available))
    if options.json:
        try:
            check_writable(options.json)
        except CliError as error:
            print(f"bench_main: error: {error}", file=sys.stderr)
            return 1
    chosen = [
        case
        for case in available.values()
        if (not options.models or case.name in options.models)
        and (not options.groups or case.group in options.groups)
    ]
    extra = ["--small-tiles"] if options.small_tiles else []
    if options.tles:
        extra += ["--tles", str(options.tles)]
    console = Console(width=None if sys.stdout.isatty() else 220)
    if not any(case.group == "pretrained" for case in available.values()):
        console.print("No folder of pretrained models: their rows are left out.")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, Progress(
        console=Console(stderr=True), disable=not sys.stderr.isatty()
    ) as progress:
        folder = Path(name)
        steps = len(chosen) * (len(options.precision) + (not options.no_stock))
        task = progress.add_task("benchmark", total=steps)
        for case in chosen:
            stock: dict[str, Any] = {}
            if not options.no_stock:
                progress.update(task, description=f"{case.name} stock")
                stock = _measure(case.name, "stock", folder, [])
                progress.advance(task)
            for precision in options.precision:
                progress.update(task, description=f"{case.name} {precision}")
                figures = _measure(case.name, precision, folder, extra)
                keys = [key for key, _, _ in COLUMNS]
                empty = dict.fromkeys(keys)
                rows.append(
                    {"model": case.name, "precision": precision, **empty, **stock, **figures}
                )
                progress.advance(task)
                if options.json:
                    write_json(options.json, rows)
            (folder / f"{case.name}.npz").unlink(missing_ok=True)
    console.print(_table(rows))
    return 1 if any(row.get("error") or row.get("bit_mismatches") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
