"""What a comparison is asked for, checked before anything is read, prepared or measured."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tvm_npu.codegen.plan import tuned_planner_names
from tvm_npu.comparison.process import door_of, missing_from
from tvm_npu.comparison.protocol import Runner
from tvm_npu.comparison.runners import runner_called, runner_names
from tvm_npu.door.find import door_name
from tvm_npu.errors import ComparisonError
from tvm_npu.options import NpuOptions, make_options
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import shown
from tvm_npu.sim.whole_files import unwritable_folder


@dataclass(frozen=True)
class Choices:
    """``left_out`` says why others than ``runners`` are not asked; ``npus`` are what those of them
    that have machines run on, each once; ``doors`` are interpreters, this one first, each with the
    name of its door. Runners that tune make ``trials`` and keep their log in a folder of
    ``tuning_log``."""

    runners: tuple[Runner, ...]
    left_out: tuple[str, ...]
    npus: tuple[NpuOptions, ...]
    doors: Mapping[str, str]
    trials: int
    tuning_log: Path


def title_of(model: Any) -> str:
    """The path of a model, or the name of an onnx.ModelProto."""
    return str(model) if isinstance(model, str | Path) else str(model.graph.name or "model")


def choices(
    model: Any,
    runners: Sequence[str] | None,
    machines: Sequence[Any],
    precisions: Sequence[str | None],
    planners: Sequence[str],
    *,
    plan_log: str | Path | None = None,
    trials: int = 0,
    tuning_log: str | Path | None = None,
    pythons: Sequence[str] = (),
) -> Choices:
    """As `tvm_npu.compare` takes them; of ``model`` only the title counts. Raises ComparisonError
    for runners, interpreters and a log of tuning that cannot be kept, for a planner without the log
    of plans that it plans by or a log that no planner takes; TargetError for machines, their
    planners and what is no log of plans."""
    if runners is not None:
        _check_list(runners, "runners")
    for given, name in ((machines, "machines"), (precisions, "precisions"), (planners, "planners")):
        _check_list(given, name)
    _check_list(pythons, "pythons", fewest=0)
    chosen, left_out = _chosen(runners, trials)
    npus: list[NpuOptions] = []
    if any(runner.has_machines for runner in chosen):
        _check_plan_log(planners, plan_log)
        for machine, precision, planner in product(machines, precisions, planners):
            options = make_options(
                machine, precision=precision, planner=planner,  # type: ignore[arg-type]
                tuning_log=plan_log if planner in tuned_planner_names() else None,
            )  # fmt: skip
            if options not in npus:
                npus.append(options)
    if tuning_log is not None:
        tuning_log = as_path(tuning_log, "tuning_log", ComparisonError)
    log = Path(tuning_log or f"{Path(title_of(model)).stem}.tuning").absolute()
    if any(runner.tunes for runner in chosen):
        _check_tuning_log(log)
    doors = {sys.executable: ""}
    if any(runner.has_door for runner in chosen):
        doors = _doors(pythons)
        _check_tuners([python for python in doors if python != sys.executable], chosen)
    return Choices(tuple(chosen), left_out, tuple(npus), doors, trials, log)


def _check_list(given: object, name: str, fewest: int = 1) -> None:
    """A text is no list, though Python takes it for one of letters."""
    if not isinstance(given, list | tuple):
        raise ComparisonError(f"{name} are {shown(given)}; expected a list")
    if len(given) < fewest:
        raise ComparisonError(f"{name} are none; at least {fewest}")
    for one in given if name in ("runners", "planners") else ():
        if not isinstance(one, str):
            raise ComparisonError(f"one of {name} is {shown(one)}; expected a name")


def _chosen(names: Sequence[str] | None, trials: int) -> tuple[list[Runner], tuple[str, ...]]:
    """(runners to ask, why others are left out). Who gives trials asks for runners that tune."""
    if names is not None:
        return [_asked_for(name, trials) for name in dict.fromkeys(names)], ()
    chosen, left_out = [], []
    for runner in map(runner_called, runner_names()):
        missing = "trials" if runner.tunes and trials < 1 else runner.missing()
        if missing is not None and runner.tunes and trials > 0:
            raise ComparisonError(
                f"runner {runner.name!r}, which makes the {trials} trials, needs {missing}; "
                "without trials the other runners measure"
            )
        if missing is None:
            chosen.append(runner)
        else:
            left_out.append(f"{runner.name}: needs {missing}")
    return chosen, tuple(left_out)


def _asked_for(name: str, trials: int) -> Runner:
    if name not in runner_names():
        raise ComparisonError(f"unknown runner {shown(name)}; known: {', '.join(runner_names())}")
    runner = runner_called(name)
    missing = runner.missing()
    if missing is not None:
        raise ComparisonError(f"runner {name!r} needs {missing}")
    if runner.tunes and trials < 1:
        raise ComparisonError(f"runner {name!r} needs trials: at least 1, not {trials}")
    return runner


def _check_plan_log(planners: Sequence[str], plan_log: str | Path | None) -> None:
    takers = [name for name in planners if name in tuned_planner_names()]
    if takers and plan_log is None:
        raise ComparisonError(
            f"planner {takers[0]!r} plans by the log of plans that 'tvm-npu tune' writes, and none "
            "is given (plan_log, --plan-log)"
        )
    if plan_log is not None and not takers:
        known = " and ".join(map(repr, tuned_planner_names()))
        raise ComparisonError(
            f"log of plans {str(plan_log)!r} (plan_log, --plan-log): {known} take one, and "
            f"none of them is among the planners {', '.join(planners)}"
        )


def _doors(pythons: Sequence[str]) -> dict[str, str]:
    """The door of this interpreter and of each other one."""
    found = {sys.executable: door_name()}
    for python in pythons:
        python = str(as_path(python, "an interpreter of pythons", ComparisonError))
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


def _check_tuning_log(log: Path) -> None:
    """ComparisonError where no folder ``log`` can be made or written to."""
    wrong = unwritable_folder(log)
    if wrong is not None:
        raise ComparisonError(
            f"the tuner's log cannot be kept in {str(log)!r}: {wrong}; name another folder "
            "(tuning_log, --tuning-log)"
        )
