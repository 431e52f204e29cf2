"""`tvm_npu.compare`: measures a model with every runner that was asked for, judges the answers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tvm_npu.comparison.choices import choices
from tvm_npu.comparison.judge import Outputs, judge, read_outputs
from tvm_npu.comparison.prepare import prepared
from tvm_npu.comparison.process import door_of, measured, missing_from
from tvm_npu.comparison.protocol import Runner
from tvm_npu.comparison.row import Row, failed_row, measured_row
from tvm_npu.comparison.task import Task
from tvm_npu.door.find import door_name
from tvm_npu.errors import ComparisonError
from tvm_npu.options import DEFAULT_MACHINE, DEFAULT_PLANNER, NpuOptions
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.temporary import temporary_folder

SCHEMA = "tvm-npu compare 1"
REFERENCES = ("onnxruntime", "stock")
"""Whose answers others are compared with: the first of these that ran."""
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
    log of plans, CalibrationError for images, CliError for shapes.
    """
    threads = threads or len(os.sched_getaffinity(0))
    asked_for = choices(runners, machines, precisions, planners, trials, plan_log)
    chosen = asked_for.runners
    doors = {sys.executable: ""}
    if any(runner.has_door for runner in chosen):
        doors = _doors(pythons)
        _check_tuners([python for python in doors if python != sys.executable], chosen)
    with temporary_folder("tvm-npu-compare-") as folder:
        asked = prepared(folder, model, images, calibration, shapes, threads, repeats, limits)
        if labels is not None and len(labels) != asked.images:
            raise ComparisonError(f"{len(labels)} labels for {asked.images} images")
        tasks = {runner.name: _tasks(asked.task, runner, asked_for.npus) for runner in chosen}
        log = Path(tuning_log or f"{Path(asked.title).stem}.tuning").absolute()
        if any(runner.tunes for runner in chosen):
            _check_log(log)
        rows = []
        for python, door in doors.items():
            for runner in chosen:
                if not (python == sys.executable or runner.has_door):
                    continue
                for task in tasks[runner.name]:
                    if runner.tunes:
                        kept = log / f"{asked.digest}-{door}"
                        task = replace(task, trials=trials, log=str(kept))
                    progress(_label(task))
                    rows.append(row_of(task, door if runner.has_door else "", python))
        reference, judged = _judged(rows, labels)
    return Comparison(asked.title, asked.images, threads, reference, judged, asked_for.left_out)


def _doors(pythons: Sequence[str]) -> dict[str, str]:
    """The door of this interpreter and of each other one."""
    found = {sys.executable: door_name()}
    for python in pythons:
        at = shutil.which(python)
        python = python if at is None else os.path.abspath(at)
        if python not in found:
            found[python] = door_of(python)
    return found


def _check_tuners(pythons: Sequence[str], chosen: Sequence[Runner]) -> None:
    """ComparisonError where one of ``pythons`` lacks what a tuner imports."""
    for runner in chosen:
        for python in pythons if runner.tunes else ():
            missing = missing_from(python, runner.name)
            if missing is not None:
                raise ComparisonError(f"{python!r}: runner {runner.name!r} needs {missing}")


def _check_log(log: Path) -> None:
    """ComparisonError where no folder ``log`` can be made or written to."""
    there = next(path for path in (log, *log.parents) if os.path.lexists(path))
    wrong = None if there.is_dir() else f"{str(there)!r} is no folder"
    if wrong is None and not os.access(there, os.W_OK | os.X_OK):
        wrong = f"permission denied in {str(there)!r}"
    if wrong is not None:
        raise ComparisonError(
            f"the tuner's log cannot be kept in {str(log)!r}: {wrong}; name another folder "
            "(tuning_log, --tuning-log)"
        )


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
