"""`tvm_npu.compare`: measures a model with every runner that was asked for, judges the answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.comparison.choices import Choices, choices, title_of
from tvm_npu.comparison.judge import Outputs, judge, read_outputs
from tvm_npu.comparison.prepare import prepared
from tvm_npu.comparison.process import measured
from tvm_npu.comparison.protocol import Runner
from tvm_npu.comparison.row import Row, failed_row, measured_row
from tvm_npu.comparison.task import Task
from tvm_npu.door.onnx.model import load_model
from tvm_npu.errors import ComparisonError
from tvm_npu.options import DEFAULT_MACHINE, DEFAULT_PLANNER, NpuOptions
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.numbers import check_whole, is_finite, is_whole
from tvm_npu.sim.texts import shown
from tvm_npu.temporary import temporary_folder

SCHEMA = "tvm-npu compare 1"
REFERENCES = ("onnxruntime", "stock")
"""Whose answers others are compared with: the first of these that ran."""
MOST_THREADS = 1 << 16
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Comparison(Tabular):
    """``rows`` in the order of runners; ``reference`` is the runner whose answers the others' are
    compared with ("" where none ran); ``left_out`` says which runners were left out, and why."""

    model: str
    images: int
    threads: int
    reference: str
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {key: value for key, value in asdict(self).items() if key != "rows"}
        return {"schema": SCHEMA, **values, "rows": [row.to_dict() for row in self.rows]}

    shown_columns = ("name", "latency_us", "simulated", "images_per_s", "sqnr_db", "top1", "error")

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each of `rows`; times of phases are columns ``phase_<name>_s``."""
        return [{"model": self.model, "name": row.name, **row.flat()} for row in self.rows]


def compare(
    model: Any,
    images: Any = None,
    labels: Sequence[int] | None = None,
    *,
    runners: Sequence[str] | None = None,
    machines: Sequence[Any] = (DEFAULT_MACHINE,),
    precisions: Sequence[str | None] = (None,),
    planners: Sequence[str] = (DEFAULT_PLANNER,),
    plan_log: str | Path | None = None,
    calibration: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    trials: int = 0,
    tuning_log: str | Path | None = None,
    threads: int | None = None,
    repeats: int = 10,
    pythons: Sequence[str] = (),
    progress: Progress = lambda _: None,
    limits: Limits = DEFAULT,
) -> Comparison:
    """Measures an ONNX model (a path or an onnx.ModelProto), each runner in a process of its own.

    ``images`` and ``calibration`` as `partition_for_npu` takes calibration; without ``images`` one
    random input, without ``calibration`` ranges come from ``images``, if there are any. ``labels``
    has the right class of every image. ``runners`` are some of "stock", "stock-tuned",
    "onnxruntime", "npu" (default: all that are installed; tuning only with ``trials``, which keeps
    its log in the folder ``tuning_log`` and goes on from there). The NPU runs on every one of
    ``machines`` (names, files or descriptions) with each of ``precisions`` (None: the machine's)
    and ``planners``; those that plan by what was measured do so by ``plan_log``, which ``tvm-npu
    tune`` wrote. ``threads`` is for all that runs on this CPU (default: all cores). ``pythons``
    are other interpreters, in which another TVM is installed: what needs TVM runs there, too.
    ``limits`` bound what each simulated NPU takes; more is an error of its row.

    Times of the NPU are simulated, all others measured. A runner that fails has a row with its
    error. Raises, before anything is measured, ComparisonError for an unknown runner, for one that
    was asked for (``trials`` ask for those that tune) and is not installed, for another number of
    labels, for a log of tuning that cannot be written and a log of plans that is missing or that no
    planner takes, TargetError for machines, for planners that do not plan them and for what is no
    log of plans, CalibrationError for images, CliError and PartitionError for shapes and models.
    """
    _check(labels, trials, threads, repeats, limits)
    if not isinstance(model, str | Path):
        model = load_model(model)
    asked_for = choices(
        model, runners, machines, precisions, planners, plan_log=plan_log, trials=trials,
        tuning_log=tuning_log, pythons=pythons,
    )  # fmt: skip
    return compared(
        asked_for, model, images, labels, calibration=calibration, shapes=shapes,
        threads=threads, repeats=repeats, progress=progress, limits=limits,
    )  # fmt: skip


def _check(
    labels: object, trials: object, threads: object, repeats: object, limits: object
) -> None:
    """ComparisonError, and LimitError."""
    check_whole(trials, "trials", ComparisonError)
    if threads is not None:
        check_whole(threads, "threads", ComparisonError, 1, MOST_THREADS)
    check_whole(repeats, "repeats", ComparisonError, 1)
    check_limits(limits)
    if labels is None:
        return
    if not isinstance(labels, np.ndarray | Sequence) or isinstance(labels, str | bytes):
        raise ComparisonError(f"labels are {shown(labels)}; a list of whole numbers, one an image")
    for number, label in enumerate(labels):
        if not (is_whole(label) or is_finite(label) and label >= 0 and label == int(label)):
            raise ComparisonError(
                f"label {number} is {shown(label)}; the number of a class, from 0 on"
            )


def compared(
    asked_for: Choices,
    model: Any,
    images: Any = None,
    labels: Sequence[int] | None = None,
    *,
    calibration: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    threads: int | None = None,
    repeats: int = 10,
    progress: Progress = lambda _: None,
    limits: Limits = DEFAULT,
) -> Comparison:
    """`compare`, of what was chosen and checked already."""
    threads = threads or len(os.sched_getaffinity(0))
    with temporary_folder("tvm-npu-compare-") as folder:
        asked = prepared(folder, model, images, calibration, shapes, threads, repeats, limits)
        if labels is not None and len(labels) != asked.images:
            raise ComparisonError(f"{len(labels)} labels for {asked.images} images")
        rows = []
        for python, door in asked_for.doors.items():
            for runner in asked_for.runners:
                if not (python == sys.executable or runner.has_door):
                    continue
                for task in _tasks(asked.task, runner, asked_for.npus):
                    if runner.tunes:
                        kept = asked_for.tuning_log / f"{asked.digest}-{door}"
                        task = replace(task, trials=asked_for.trials, log=str(kept))
                    progress(_label(task))
                    rows.append(row_of(task, door if runner.has_door else "", python))
        reference, judged = _judged(rows, labels)
    title = title_of(model)
    return Comparison(title, asked.images, threads, reference, judged, asked_for.left_out)


def _tasks(task: Task, runner: Runner, npus: Sequence[NpuOptions]) -> list[Task]:
    """One, or one for each of ``npus`` where the runner has machines."""
    task = replace(task, runner=runner.name)
    if not runner.has_machines:
        return [task]
    return [
        replace(
            task,
            machine=options.machine.model_dump(),
            precision=options.precision,
            planner=options.planner,
            plan_log=options.tuning_log,
        )
        for options in npus
    ]


def _label(task: Task) -> str:
    machine = task.machine["name"] if task.machine else None
    parts = (task.runner, machine, task.precision, task.planner)
    return ", ".join(part for part in parts if part)


def row_of(task: Task, door: str, python: str) -> tuple[Row, Outputs | None]:
    """The row, not judged yet, and the answers for all samples."""
    try:
        found = measured(task, python)
    except ComparisonError as error:
        return failed_row(task, door, str(error)), None
    return measured_row(task, door, found), read_outputs(Path(task.outputs))


def _judged(
    rows: Sequence[tuple[Row, Outputs | None]], labels: Sequence[int] | None
) -> tuple[str, tuple[Row, ...]]:
    """(the reference's name, rows with accuracies)."""
    ran = {row.runner: (row, outputs) for row, outputs in reversed(rows) if outputs is not None}
    first = next((name for name in REFERENCES if name in ran), "")
    reference, answers = ran.get(first, (None, None))
    judged = []
    for row, outputs in rows:
        if outputs is not None:
            wanted = None if row is reference else answers
            try:
                row = replace(row, **asdict(judge(outputs, wanted, labels)))
            except ComparisonError as error:
                row = replace(row, error=str(error))
        judged.append(row)
    return "" if reference is None else reference.name, tuple(judged)
