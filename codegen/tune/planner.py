"""Planners that plan by a tuning log.

`learned`, as stock TVM's ApplyHistoryBest, answers with the fastest measured plan of a layer. A
layer without any is planned by `exact`, and a warning says so: the analytic model is within a few
percent of the simulator on every layer, while a cost model trained on other layers knows less.

`exact-tuned` is `exact` that consults measurements: of the best plans by the analytic model
(`Backend.shortlist`) and the log's, it takes the one of least time, where time is measured if the
log has it and else predicted and corrected by `ResidualModel`. On a kind of machines that has no
shortlist it answers as `learned` does.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, MeasuredPrediction
from tvm_npu.codegen.plan.registry import planner
from tvm_npu.codegen.tune.errors import UntunedWarning
from tvm_npu.codegen.tune.history import Measured, history
from tvm_npu.codegen.tune.residual import cautious, residual_model
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.sim.description import MachineDescription

CANDIDATES = 12
"""Plans of the analytic model that `exact-tuned` looks at."""


def log_plans(
    path: Path, problem: ConvProblem, machine: MachineDescription, limits: TileLimits
) -> list[Measured]:
    """The log's plans of a layer that keep to ``limits``, the fastest first. Raises
    TuningLogError."""
    measured = history(path).of(space_of(problem, machine))
    return [one for one in measured if _within(one.plan, limits)]


def _within(plan: Any, limits: TileLimits) -> bool:
    """What ``plan`` calls ``tile_m`` and so on is no larger than ``max_tile_m``."""
    return all(
        most is None or getattr(plan, field.name.removeprefix("max_"), 0) <= most
        for field in fields(limits)
        for most in (getattr(limits, field.name),)
    )


def _expecting(
    plan: Any, cycles: float, problem: ConvProblem, machine: MachineDescription, name: str
) -> Any:
    """``plan`` with the analytic model's prediction, but of ``cycles``."""
    prediction = plan.prediction or backend_of(machine).predict(problem, plan, machine)
    measured = MeasuredPrediction(**{**vars(prediction), "cycles": cycles})
    return replace(plan, planner=name, prediction=measured)


@dataclass(frozen=True)
class LearnedPlanner:
    """The fastest plan of a tuning log for every layer; `exact` for layers that it does not hold,
    with an UntunedWarning."""

    tuning_log: Path
    limits: TileLimits = NO_LIMITS
    name: str = "learned"
    plans_windows: bool = True

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> Any:
        """Raises TuningLogError for a log that is none."""
        measured = log_plans(self.tuning_log, problem, machine, self.limits)
        if measured:
            best = measured[0]
            return _expecting(best.plan, best.cycles, problem, machine, self.name)
        plan = planner("exact", self.limits).plan(problem, machine)
        if not isinstance(plan, Infeasible):
            warnings.warn(
                f"tuning log {str(self.tuning_log)!r} has no trial of {described(problem)} on "
                f"machine {machine.name!r}; it is planned by 'exact'",
                UntunedWarning,
                stacklevel=2,
            )
        return plan


@dataclass(frozen=True)
class ExactTunedPlanner:
    """`exact`, whose best plans are ranked anew by what a tuning log has measured."""

    tuning_log: Path
    limits: TileLimits = NO_LIMITS
    name: str = "exact-tuned"
    candidates: int = CANDIDATES
    plans_windows: bool = True

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> Any:
        """Raises TuningLogError for a log that is none, MissingPackageError without xgboost."""
        listed = backend_of(machine).shortlist(problem, machine, self.candidates, self.limits)
        if listed is None:
            learned = LearnedPlanner(self.tuning_log, self.limits, self.name)
            return learned.plan(problem, machine)
        if isinstance(listed, Infeasible):
            return listed
        bare = [replace(plan, prediction=None, planner="") for plan in listed]
        cycles = self._corrected(problem, listed, machine)
        expected = dict(zip(bare, cycles.tolist(), strict=True))
        price = dict(zip(bare, cautious(cycles).tolist(), strict=True))
        for one in log_plans(self.tuning_log, problem, machine, self.limits):
            expected[one.plan] = price[one.plan] = one.cycles  # whatever was expected
        plan = min(price, key=lambda known: price[known])
        return _expecting(plan, expected[plan], problem, machine, self.name)

    def _corrected(
        self, problem: ConvProblem, listed: tuple[Any, ...], machine: MachineDescription
    ) -> NDArray[np.float64]:
        """Expected cycles of plans."""
        model = residual_model(history(self.tuning_log), machine)
        if model is None:
            warnings.warn(
                f"tuning log {str(self.tuning_log)!r} has too few trials on machine "
                f"{machine.name!r} to correct predictions by",
                UntunedWarning,
                stacklevel=3,
            )
            return np.array([plan.prediction.cycles for plan in listed if plan.prediction])
        return model.cycles(problem, listed)


def described(problem: ConvProblem) -> str:
    """A layer in few words, as ``convolution 64x64x3x3 of 64x56x56``."""
    depth = problem.channels // problem.groups
    if problem.is_dense:
        text = f"fully connected layer {problem.filters}x{depth}"
    else:
        kernel = "x".join(map(str, problem.kernel))
        text = f"convolution {problem.filters}x{depth}x{kernel} of "
        text += f"{problem.channels}x{problem.in_rows}x{problem.in_columns}"
        if problem.stride != (1, 1):
            text += f", stride {'x'.join(map(str, problem.stride))}"
    if problem.has_residual:
        text += " with residual"
    if problem.window is not None:
        kind = "depthwise convolution" if problem.window.has_weights else "pool"
        text += f" and the {kind} behind it"
    return text
