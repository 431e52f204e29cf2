"""onnx's backend cases and random graphs, on the NPU beside stock TVM."""

from __future__ import annotations

import argparse
import atexit
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.conformance.page import page
from studies.conformance.process import Worker
from studies.conformance.rows import Row, read_rows
from studies.harness.errors import StudyError
from studies.harness.study import Bench, Key, Part, Study, Texts
from tvm_npu.cli.arguments import non_negative, positive

GROUPS = ("node", "simple", "pytorch-converted", "pytorch-operator")
BATCH = 20
"""Cases of a part."""


@dataclass(frozen=True)
class Result:
    """``page`` is where the page goes."""

    rows: list[Row]
    page: Path | None


class ConformanceStudy(Study[Result]):
    name = "conformance"
    texts = Texts(
        "Runs onnx's backend cases and random graphs on the NPU and on stock TVM, in processes\n"
        "with a limit of time, and says which are right.",
        "A case that stock TVM gets right and the NPU does not, or a bit that is off, makes the\n"
        "exit code 1. An interrupted run with an output file goes on where it stopped.",
        {"json": "write one object a case"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of the docs")
        parser.add_argument(
            "--earlier", nargs="+", type=Path, default=[], metavar="FILE",
            help="what earlier slices wrote with --json, to join these cases or give way to them",
        )  # fmt: skip
        parser.add_argument("--groups", nargs="*", choices=GROUPS, default=list(GROUPS))
        parser.add_argument(
            "--random", type=non_negative, default=2000, metavar="N",
            help="random graphs (default: 2000)",
        )  # fmt: skip
        parser.add_argument(
            "--first", type=non_negative, default=0, metavar="SEED", help="of the random graphs"
        )
        parser.add_argument(
            "--every", type=positive, default=1, metavar="N", help="every N-th backend case only"
        )
        parser.add_argument(
            "--limit", type=positive, default=60, metavar="S", help="seconds a case (default: 60)"
        )

    def parts(self, options: argparse.Namespace) -> list[Part[list[Row]]]:
        worker = Worker(float(options.limit))
        atexit.register(worker.close)
        named = [*_backend(options), *_random(options)]
        return [
            Part(
                (f"cases {begin} to {min(begin + BATCH, len(named)) - 1}",), list[Row],
                partial(_run, worker, named[begin : begin + BATCH]),
            )
            for begin in range(0, len(named), BATCH)
        ]  # fmt: skip

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Result:
        rows = [row for path in options.earlier for row in read_rows(path)]
        rows += [row for part in found.values() for row in part]
        newest = {row.name: row for row in rows}
        return Result(list(newest.values()), options.page)

    def rows(self, result: Result) -> Mapping[str, Sequence[Any]]:
        return {"json": result.rows}

    def show(self, console: Console, result: Result) -> None:
        text = page(result.rows, available())
        if result.page is not None:
            result.page.write_text(text, "utf-8")
        console.print(text.partition("## Other")[0], soft_wrap=True, markup=False)

    def check(self, result: Result) -> None:
        faults = sum(row.fault for row in result.rows)
        if faults:
            raise StudyError(f"{faults} of {len(result.rows)} cases are faults")


STUDY = ConformanceStudy()


def available() -> Counter[str]:
    """How many backend cases there are, by group."""
    from studies.conformance.backend_cases import backend_cases

    return Counter(group for group, _ in backend_cases().values())


def _backend(options: argparse.Namespace) -> list[tuple[str, str]]:
    if not options.groups:
        return []
    from studies.conformance.backend_cases import backend_cases

    found = [(n, group) for n, (group, _) in backend_cases().items() if group in options.groups]
    return found[:: options.every]


def _random(options: argparse.Namespace) -> list[tuple[str, str]]:
    seeds = range(options.first, options.first + options.random)
    return [(f"random-{seed}", "random") for seed in seeds]


def _run(worker: Worker, named: Sequence[tuple[str, str]], bench: Bench) -> list[Row]:
    rows = []
    for name, group in named:
        bench.say(name)
        rows.append(worker.run(name, group))
    return rows
