"""How much CPU time commands take to start."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from studies.startup.measuring import PROFILE, QUICK, Row, measure
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.tables import Column

QUICK_LIMIT_S, WARM_LIMIT_S, FIRST_LIMIT_S = 0.35, 2.0, 35.0


class StartupStudy(Study[list[Row]]):
    name = "bench_startup"
    texts = Texts(
        "CPU time (user and system) of commands that list and refuse, of a profile of the digits\n"
        "LeNet with bytecode and machine code on disk, and with --first of one without machine\n"
        "code.",
        "CPU times grow when other work shares the computer's cores.",
        {"json": "write one object a command"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--runs", type=positive, default=10, metavar="N", help="of each command (default: 10)"
        )
        parser.add_argument(
            "--first", action="store_true", help="a profile with an empty cache, too: a minute"
        )

    def parts(self, options: argparse.Namespace) -> list[Part[Row]]:
        asked = [(what, words, QUICK_LIMIT_S) for what, words in QUICK.items()]
        asked.append(("profile", PROFILE, WARM_LIMIT_S))
        parts = [
            Part((what,), Row, partial(_warm, what, words, options.runs, limit))
            for what, words, limit in asked
        ]
        if options.first:
            parts.append(Part(("first profile",), Row, _first))
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Row]:
        return list(found.values())

    def rows(self, result: list[Row]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def show(self, console: Console, result: list[Row]) -> None:
        columns = [
            Column("tvm-npu", tuple(row.what for row in result), name=True),
            Column("runs", tuple(str(row.runs) for row in result)),
            Column("median\nCPU s", tuple(f"{row.median_cpu_s:.2f}" for row in result)),
            Column("least\nCPU s", tuple(f"{row.least_cpu_s:.2f}" for row in result)),
            Column("limit\nCPU s", tuple(f"{row.limit_cpu_s:.2f}" for row in result)),
        ]
        print_sheets(console, [Sheet("Start-up", columns)])


STUDY = StartupStudy()


def _warm(what: str, words: list[str], runs: int, limit_s: float, bench: Bench) -> Row:
    return measure(what, words, runs, limit_s, None)


def _first(bench: Bench) -> Row:
    folder = bench.scratch / "machine-code"
    folder.mkdir(parents=True, exist_ok=True)
    return measure("first profile", PROFILE, 1, FIRST_LIMIT_S, folder)
