"""How much CPU time reports and traces take, and how large they are."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_models
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from studies.report.measuring import Row, measure
from tvm_npu.cli.tables import Column

MODELS = ("resnet50", "unet")
MACHINES = ("nmp-4x8", "nmp-4x8-dual", "setup-a", "snowflake-1cc")
LIMIT_S, LIMIT_BYTES = 3.0, 5_000_000
"""What the project allows itself beyond a profile: both files' CPU time, the page's size."""


class ReportStudy(Study[list[Row]]):
    name = "bench_report"
    texts = Texts(
        "CPU time that the page and the trace of `tvm-npu profile --html --trace` take beyond the\n"
        "profile, their sizes, and whether the trace is as the Trace Event Format says.",
        "CPU times grow when other work shares the computer's cores.",
        {"json": "write one object a model and machine"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_models(parser, MODELS)
        parser.add_argument(
            "--machines", nargs="+", metavar="FILE|NAME", default=list(MACHINES),
            help=f"machine files or names (default: {' '.join(MACHINES)})",
        )  # fmt: skip
        parser.add_argument(
            "--keep", type=Path, metavar="FOLDER", help="leave pages and traces there"
        )

    def parts(self, options: argparse.Namespace) -> list[Part[Row]]:
        return [
            Part((model, machine), Row, partial(_measured, model, machine, options.keep))
            for model in options.models
            for machine in options.machines
        ]

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Row]:
        return list(found.values())

    def rows(self, result: list[Row]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def show(self, console: Console, result: list[Row]) -> None:
        def column(title: str, texts: Sequence[str], name: bool = False) -> Column:
            return Column(title, tuple(texts), name=name)

        columns = [
            column("model", [row.model for row in result], name=True),
            column("machine", [row.machine for row in result], name=True),
            column("layers", [str(row.layers) for row in result]),
            column("profile\nCPU s", [f"{row.profile_cpu_s:.1f}" for row in result]),
            column("report\nCPU s", [f"{row.report_cpu_s:.2f}" for row in result]),
            column("trace\nCPU s", [f"{row.trace_cpu_s:.2f}" for row in result]),
            column("page\nMB", [f"{row.report_bytes / 1e6:.2f}" for row in result]),
            column("trace\nMB", [f"{row.trace_bytes / 1e6:.1f}" for row in result]),
            column("slices", [f"{row.slices:,}" for row in result]),
            column("layers\ncoarse", [str(row.coarse_layers) for row in result]),
        ]
        print_sheets(console, [Sheet("Reports and traces", columns)])
        over = [row for row in result if row.beyond_cpu_s > LIMIT_S]
        for row in over:
            console.print(
                f"{row.model} on {row.machine}: {row.beyond_cpu_s:.2f} CPU s beyond the profile; "
                f"the project allows itself {LIMIT_S:g}"
            )

    def check(self, result: list[Row]) -> None:
        for row in result:
            what = f"{row.model} on {row.machine}"
            if row.trace_faults:
                raise StudyError(f"{what}: the trace is wrong: {'; '.join(row.trace_faults)}")
            if row.report_bytes > LIMIT_BYTES:
                raise StudyError(
                    f"{what}: the page has {row.report_bytes:,} bytes, more than {LIMIT_BYTES:,}"
                )


STUDY = ReportStudy()


def _measured(model: str, machine: str, keep: Path | None, bench: Bench) -> Row:
    return measure(model, machine, keep or bench.scratch / "files")
