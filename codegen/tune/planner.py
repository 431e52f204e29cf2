"""Planners that plan by a tuning log.

`learned`, as stock TVM's ApplyHistoryBest, answers with the fastest measured plan of a layer. A
layer without any is planned by `exact`, and a warning says so: the analytic model is within a few
percent of the simulator on every layer, while a cost model trained on other layers knows less.

`exact-tuned` is `exact` that consults measurements: of the best plans by the analytic model
(`shortlist`) and the log's, it takes the one of least time, where time is measured if the log has
it and else predicted and corrected by `ResidualModel`. On tile machines, of which there is no
shortlist, it answers as `learned` does.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.exact import ExactPlanner
from tvm_npu.codegen.nmp.plan.shortlist import shortlist
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.cost import predict_tiles
from tvm_npu.codegen.plan.loops.exact import ExactTilePlanner
from tvm_npu.codegen.plan.loops.plan import TilePlan
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible
from tvm_npu.codegen.tune.errors import UntunedWarning
from tvm_npu.codegen.tune.history import Measured, history
from tvm_npu.codegen.tune.residual import cautious, residual_model
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import TileMachine

CANDIDATES = 12
"""Plans of the analytic model that `exact-tuned` looks at."""


def log_plans(
    path: Path, problem: ConvProblem, machine: MachineDescription, limits: TileLimits
) -> list[Measured]:
    """The log's plans of a layer that keep to ``limits``, the fastest first. Raises
    TuningLogError."""
    measured = history(path).of(space_of(problem, machine))
    return [one for one in measured if _within(one.plan, limits)]


def _within(plan: ConvPlan | TilePlan, limits: TileLimits) -> bool:
    pairs = (
        (plan.tile_m, limits.max_tile_m),
        (plan.tile_n, limits.max_tile_n),
        (plan.tile_r, limits.max_tile_r),
        (plan.tile_c, limits.max_tile_c),
    )
    return all(most is None or extent <= most for extent, most in pairs)


def _expecting(
    plan: ConvPlan, cycles: float, problem: ConvProblem, machine: NmpMachine, name: str
) -> ConvPlan:
    """``plan`` with the analytic model's prediction, but of ``cycles``."""
    prediction = plan.prediction or predict(problem, plan, machine)
    return replace(plan, planner=name, prediction=replace(prediction, cycles=cycles))


def tile_answer(
    path: Path, problem: ConvProblem, machine: TileMachine, limits: TileLimits, name: str
) -> TilePlan | Infeasible:
    """The fastest plan that the log has of a layer on a tile machine; `exact`'s without one, with
    an UntunedWarning. Raises TuningLogError."""
    measured = log_plans(path, problem, machine, limits)
    if measured:
        best: TilePlan = measured[0].plan
        prediction = replace(predict_tiles(problem, best, machine), cycles=measured[0].cycles)
        return replace(best, planner=name, prediction=prediction)
    plan = ExactTilePlanner(limits).plan(problem, machine)
    if isinstance(plan, TilePlan):
        _warn_untuned(path, problem, machine)
    return plan


def _warn_untuned(path: Path, problem: ConvProblem, machine: MachineDescription) -> None:
    warnings.warn(
        f"tuning log {str(path)!r} has no trial of {described(problem)} on "
        f"machine {machine.name!r}; it is planned by 'exact'",
        UntunedWarning,
        stacklevel=3,
    )


@dataclass(frozen=True)
class LearnedPlanner:
    """The fastest plan of a tuning log for every layer; `exact` for layers that it does not hold,
    with an UntunedWarning."""

    tuning_log: Path
    limits: TileLimits = NO_LIMITS
    name: str = "learned"

    @property
    def plans_windows(self) -> bool:
        return True

    @overload
    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible: ...

    @overload
    def plan(self, problem: ConvProblem, machine: TileMachine) -> TilePlan | Infeasible: ...

    def plan(
        self, problem: ConvProblem, machine: NmpMachine | TileMachine
    ) -> ConvPlan | TilePlan | Infeasible:
        """Raises TuningLogError for a log that is none."""
        if isinstance(machine, TileMachine):
            return tile_answer(self.tuning_log, problem, machine, self.limits, self.name)
        measured = log_plans(self.tuning_log, problem, machine, self.limits)
        if measured:
            best = measured[0]
            return _expecting(best.plan, best.cycles, problem, machine, self.name)
        plan = ExactPlanner(self.limits).plan(problem, machine)
        if isinstance(plan, ConvPlan):
            _warn_untuned(self.tuning_log, problem, machine)
        return plan


@dataclass(frozen=True)
class ExactTunedPlanner:
    """`exact`, whose best plans are ranked anew by what a tuning log has measured."""

    tuning_log: Path
    limits: TileLimits = NO_LIMITS
    name: str = "exact-tuned"
    candidates: int = CANDIDATES

    @property
    def plans_windows(self) -> bool:
        return True

    @overload
    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible: ...

    @overload
    def plan(self, problem: ConvProblem, machine: TileMachine) -> TilePlan | Infeasible: ...

    def plan(
        self, problem: ConvProblem, machine: NmpMachine | TileMachine
    ) -> ConvPlan | TilePlan | Infeasible:
        """Raises TuningLogError for a log that is none, MissingPackageError without xgboost."""
        if isinstance(machine, TileMachine):
            return tile_answer(self.tuning_log, problem, machine, self.limits, self.name)
        listed = shortlist(problem, machine, self.candidates, self.limits)
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
        self, problem: ConvProblem, listed: tuple[ConvPlan, ...], machine: NmpMachine
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
