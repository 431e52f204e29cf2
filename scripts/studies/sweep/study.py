"""``scripts/bench_sweep``: how fast sweeps are, and whether engines and workers change anything."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from studies.sweep.designs import NETWORKS, sweep
from studies.sweep.measuring import RunRow, point_row, run, run_empty, run_killed, with_models
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.tables import Column
from tvm_npu.sweep import SweepSpec

MACHINES = 1000
COMPARED = MACHINES
ENGINES = (("joblib", 1), ("joblib", 2), ("dask", 1), ("dask", 2))
KILLS = 2
QUICK = (6, ["lenet"])


@dataclass(frozen=True)
class Found:
    """A run, and its rows where they are the benchmark's points."""

    run: RunRow
    rows: list[dict[str, Any]]


class SweepStudy(Study[list[Found]]):
    name = "bench_sweep"
    texts = Texts(
        "Sweeps over variations of one NMP: all machines predicted under exact, layer by layer,\n"
        "the front simulated and checked; a smaller sweep with each engine and number of workers,\n"
        "one that is killed and continued, and the large one without evaluating its points. All\n"
        "runs of a sweep must give the same rows.",
        files={"json": "write the points, and an object for each run"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--models", "network", NETWORKS)
        parser.add_argument(
            "--machines", type=positive, default=MACHINES, metavar="N",
            help=f"variations of the large sweep (default: {MACHINES})",
        )  # fmt: skip
        parser.add_argument(
            "--compared", type=positive, default=COMPARED, metavar="N",
            help=f"variations of the sweeps that are compared (default: {COMPARED})",
        )  # fmt: skip
        parser.add_argument(
            "--workers", type=positive, default=2, metavar="N",
            help="processes of the large sweep (default: 2)",
        )  # fmt: skip
        parser.add_argument("--quick", action="store_true", help="6 machines, LeNet alone")

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        machines, compared, models = options.machines, options.compared, list(options.models)
        if options.quick:
            machines, models = QUICK
            compared = machines
        small = sweep(compared, models, ["predicted"])
        large = sweep(machines, models, ["predicted", "checked"])
        parts: list[Part[Any]] = [Part((MODELS,), type(None), partial(_prepare, small))]
        parts += [
            Part((name, str(workers)), Found, partial(_whole, small, name, workers))
            for name, workers in ENGINES
        ]
        parts.append(Part(("joblib", "killed"), Found, partial(_killed, small)))
        without = large.model_copy(update={"fidelity": ["predicted"]})
        parts += [
            Part((name, str(workers), "empty"), Found, partial(_empty, without, name, workers))
            for name, workers in ENGINES
        ]
        parts.append(Part(("points",), Found, partial(_points, large, options.workers)))
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Found]:
        return [one for one in found.values() if one is not None]

    def rows(self, result: list[Found]) -> Mapping[str, Sequence[Any]]:
        points = [row for one in result for row in one.rows]
        return {"json": [*points, *(asdict(one.run) for one in result)]}

    def show(self, console: Console, result: list[Found]) -> None:
        runs = [one.run for one in result]
        columns = [
            Column("engine", tuple(run.engine for run in runs), key=True),
            Column("workers", tuple(str(run.workers) for run in runs)),
            Column("killed", tuple(str(run.killed) for run in runs)),
            Column("empty", tuple("yes" if run.is_empty else "" for run in runs)),
            Column("points", tuple(f"{run.points:,}" for run in runs)),
            Column("seconds", tuple(f"{run.seconds:.1f}" for run in runs)),
            Column("ms a\npoint", tuple(f"{run.seconds / run.points * 1e3:.1f}" for run in runs)),
            Column("bytes a\npoint", tuple(f"{run.store_bytes / run.points:.0f}" for run in runs)),
            Column("rows", tuple(run.rows_sha256[:8] for run in runs), key=True),
        ]
        print_sheets(console, [Sheet("Runs", columns)])
        front = {row["machine"] for one in result for row in one.rows if row["on_front"]}
        wrong = sum(row["wrong_elements"] or 0 for one in result for row in one.rows)
        last, rows = runs[-1], result[-1].rows
        predicted = sum(row["fidelity"] == "predicted" for row in rows)
        seconds = last.predicted_seconds or 0.0
        whole = {(run.engine, run.workers): run.seconds for run in compared_runs(result)[::-1]}
        for name in dict.fromkeys(name for name, _ in ENGINES):
            console.print(f"two workers of {name}: {whole[name, 1] / whole[name, 2]:.2f} times one")
        console.print(f"{len(front)} machines on the front, checked; elements off: {wrong}")
        console.print(f"{predicted:,} points predicted in {seconds:.1f} s")
        hours, megabytes = (each * 1e5 for each in (
            seconds / predicted / 3600, last.store_bytes / last.points / 1e6))  # fmt: skip
        console.print(
            f"100,000 points predicted: {hours:.1f} h with {last.workers} workers, "
            f"{megabytes:.0f} MB of results"
        )

    def check(self, result: list[Found]) -> None:
        for runs in (compared_runs(result), [one.run for one in result if one.run.is_empty]):
            if len({run.rows_sha256 for run in runs}) > 1:
                raise StudyError("engines or numbers of workers change the rows of a sweep")
        wrong = sum(row["wrong_elements"] or 0 for one in result for row in one.rows)
        if wrong:
            raise StudyError(f"{wrong} elements differ from the reference; the limit is 0")


STUDY = SweepStudy()


def compared_runs(result: list[Found]) -> list[RunRow]:
    """Those of the smaller sweep."""
    return [one.run for one in result[:-1] if not one.run.is_empty]


MODELS = "models"


def _prepare(spec: SweepSpec, bench: Bench) -> None:
    """One design of the sweep, in the folder from which all runs take their models."""
    one = spec.model_copy(update={"search": spec.search.model_copy(update={"designs": 1})})
    run(one, bench.scratch / MODELS, "joblib", 1)


def _store(bench: Bench, name: str) -> Path:
    return with_models(bench.scratch / name, bench.scratch / MODELS)


def _whole(spec: SweepSpec, name: str, workers: int, bench: Bench) -> Found:
    return Found(run(spec, _store(bench, f"{name}-{workers}"), name, workers)[0], [])


def _empty(spec: SweepSpec, name: str, workers: int, bench: Bench) -> Found:
    return Found(run_empty(spec, _store(bench, f"{name}-{workers}-empty"), name, workers), [])


def _killed(spec: SweepSpec, bench: Bench) -> Found:
    return Found(run_killed(spec, _store(bench, "killed"), "joblib", 2, KILLS)[0], [])


def _points(spec: SweepSpec, workers: int, bench: Bench) -> Found:
    found, result = run(spec, _store(bench, "points"), "joblib", workers)
    return Found(found, [point_row(row) for row in result.rows])
