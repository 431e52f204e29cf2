"""Every model on NPUs, on stock TVM and on onnxruntime, through both doors; tuners by trials."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_machines, add_number, add_several, check_distinct_names
from studies.harness.study import Key, Part, Study, Texts
from studies.vs_tvm.measuring import Figures, Place, Setting, measure
from studies.vs_tvm.searches import (
    EXACT,
    Exact,
    SearchRow,
    best_so_far_us,
    of_exact,
    search_rows,
)
from studies.vs_tvm.tables import print_rows, print_same, print_searches, print_times
from tvm_npu.cli.arguments import non_negative, positive
from tvm_npu.codegen.tune.tuners import tuner_names
from tvm_npu.comparison.process import door_of
from tvm_npu.comparison.runners import runner_called

MACHINES = ("nmp-4x8", "nmp-4x8-int8", "setup-a", "snowflake-1cc")
GROUPS = ("pretrained", "light", "built", "modern")
OTHER = Path(__file__).parents[3] / ".venv-relax" / "bin" / "python"
SEARCH = "search"
SMALL = ("digits_lenet", "lenet", "mnist_cntk", "resnet8_cifar10", "resnet20_cifar10")
"""Models whose tuning takes minutes."""
SMALL_TRIALS = 64


@dataclass(frozen=True)
class Compared:
    """All rows; ``same`` counts those of the NPU that are bit for bit the same through both doors,
    ``differing`` names others."""

    rows: list[Figures]
    same: int
    differing: list[str]
    searches: list[SearchRow]


class VsTvmStudy(Study[Compared]):
    name = "bench_vs_tvm"
    texts = Texts(
        "Every model on simulated NPUs, on stock TVM on this CPU and on onnxruntime; what needs\n"
        "TVM through both doors, each measurement in a process of its own.",
        "The other door's interpreter is --other-python, or .venv-relax of this checkout, which\n"
        "scripts/demo --relax makes; without it there are rows of one door. The log of stock\n"
        "TVM's tuner stays in --logs. An NPU row that fails, or differs between doors, makes the\n"
        "exit code 1.",
        {"json": "write the rows as JSON", "searches": "write tuners' best by trials as JSON"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--models", nargs="+", metavar="NAME", help="models of bench_main (default: all)"
        )
        parser.add_argument("--groups", nargs="+", choices=GROUPS)
        add_machines(parser, MACHINES)
        add_several(
            parser, "--runners", "runner", ("onnxruntime", "stock", "npu"), nargs="+"
        )
        parser.add_argument("--other-python", metavar="PYTHON", help="with the other TVM")
        parser.add_argument(
            "--trials", type=non_negative, metavar="N",
            help="of stock TVM's tuner for each model; 0: not tuned (default: "
            f"{SMALL_TRIALS} for {', '.join(SMALL)}; 0 for others)",
        )  # fmt: skip
        parser.add_argument(
            "--logs", type=Path, metavar="DIR", default=Path("vs_tvm.tuning"),
            help="folder of the tuner's logs (default: vs_tvm.tuning)",
        )  # fmt: skip
        cores = len(os.sched_getaffinity(0))
        add_number(parser, "--threads", cores, "threads of what runs on this CPU", positive)
        add_number(parser, "--repeats", 10, "measurements on this CPU, whose median counts",
                   positive)  # fmt: skip
        parser.add_argument(
            "--search-models", nargs="*", default=[], metavar="NAME",
            help="models whose layers our own tuners plan, beside exact (default: none)",
        )  # fmt: skip
        add_number(parser, "--search-trials", 64, "trials for each distinct layer", positive)

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        from studies.shared.bench_models import cases, chosen_names

        wanted = chosen_names(options.models)
        chosen_names(options.search_models)
        check_distinct_names(options.machines)
        places = _places(options.other_python)
        parts: list[Part[Any]] = []
        for case in cases().values():
            left_out = wanted and case.name not in wanted
            if left_out or (options.groups and case.group not in options.groups):
                continue
            for setting in _settings(case.name, places, options):
                compute = partial(
                    measure, setting, options.threads, options.repeats, options.logs
                )
                parts.append(Part(setting.key, Figures, compute))
        return parts + _search_parts(options)

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Compared:
        rows = [row for key, row in found.items() if key[0] != SEARCH]
        same, differing = through_both_doors(rows)
        searches: list[SearchRow] = []
        for model in options.search_models:
            for machine in options.machines:
                exact = found[SEARCH, model, machine.name, EXACT]
                best = {n: found[SEARCH, model, machine.name, n] for n in tuner_names()}
                searches += search_rows(model, machine, exact, best)
        return Compared(rows, same, differing, searches)

    def rows(self, result: Compared) -> Mapping[str, Sequence[Any]]:
        return {"json": result.rows, "searches": result.searches}

    def show(self, console: Console, result: Compared) -> None:
        print_rows(console, result.rows)
        print_same(console, result.same, result.differing)
        print_searches(console, result.searches)
        print_times(console, result.rows)

    def check(self, result: Compared) -> None:
        failed = sum(row["runner"] == "npu" and row["error"] is not None for row in result.rows)
        if failed or result.differing:
            raise StudyError(
                f"{failed} rows of the NPU failed, {len(result.differing)} differ between doors"
            )


STUDY = VsTvmStudy()


def through_both_doors(rows: Sequence[Figures]) -> tuple[int, list[str]]:
    """(NPU rows that have the same program and output through two doors, names of others)."""
    known: dict[tuple[str, ...], Figures] = {}
    same, differing = 0, []
    for row in rows:
        if row["runner"] != "npu" or row["error"] is not None:
            continue
        key = (row["model"], row["machine"], row["precision"])
        other = known.setdefault(key, row)
        if other is row:
            continue
        unequal = [
            what for what in ("program", "output")
            if row[f"{what}_sha256"] != other[f"{what}_sha256"]
        ]  # fmt: skip
        same += not unequal
        differing += [f"{what} of {', '.join(key)}" for what in unequal]
    return same, differing


def _places(other: str | None) -> list[Place]:
    """This interpreter, and the other one where there is one."""
    pythons = [sys.executable]
    if other is not None:
        pythons.append(other)
    elif OTHER.exists():
        pythons.append(str(OTHER))
    places = [Place(door_of(python), python) for python in pythons]
    if len({place.door for place in places}) < len(places):
        raise StudyError(f"both interpreters have the door {places[0].door!r}")
    return places


def _settings(model: str, places: Sequence[Place], options: argparse.Namespace) -> list[Setting]:
    """In the order in which they are measured: the reference first."""
    settings = []
    if "onnxruntime" in options.runners and runner_called("onnxruntime").missing() is None:
        settings.append(Setting(model, Place("", places[0].python), "onnxruntime"))
    if "stock" in options.runners:
        settings += [Setting(model, place, "stock") for place in places]
        trials = options.trials
        if trials is None:
            trials = SMALL_TRIALS if model in SMALL else 0
        if trials:
            settings += [Setting(model, place, "stock-tuned", trials=trials) for place in places]
    if "npu" in options.runners:
        settings += [
            Setting(model, place, "npu", machine) for machine in options.machines
            for place in places
        ]  # fmt: skip
    return settings


def _search_parts(options: argparse.Namespace) -> list[Part[Any]]:
    parts: list[Part[Any]] = []
    times = list[float | None]
    for model in options.search_models:
        for machine in options.machines:
            place = (SEARCH, model, machine.name)
            parts.append(Part((*place, EXACT), Exact, partial(of_exact, model, machine)))
            for tuner in tuner_names():
                compute = partial(best_so_far_us, model, machine, tuner, options.search_trials)
                parts.append(Part((*place, tuner), times, compute))
    return parts
