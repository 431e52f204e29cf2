"""Planners: how a layer is cut into tiles and spread over the cores of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible, Schedule, Split
from tvm_npu.sim.machine import Machine

__all__ = [
    "DEFAULT_PLANNER",
    "NO_LIMITS",
    "Planner",
    "TileLimits",
    "plan_all",
    "planner",
    "planner_names",
    "tuned_planner_names",
]


DEFAULT_PLANNER = "exact"


class Planner(Protocol):
    """Anything that answers a `ConvProblem` for a machine. Deterministic."""

    @property
    def name(self) -> str: ...

    def plan(self, problem: ConvProblem, machine: Machine) -> ConvPlan | Infeasible: ...


def _tso(
    name: str, by_volume: bool = False, split: Split | None = None, schedule: Schedule | None = None
) -> Callable[[TileLimits], Planner]:
    def make(limits: TileLimits) -> Planner:
        from tvm_npu.codegen.plan.tso import SCHEDULES, SPLITS, TsoPlanner

        return TsoPlanner(
            name,
            by_volume,
            (split,) if split else SPLITS,
            (schedule,) if schedule else SCHEDULES,
            limits,
        )

    return make


def _exact(name: str, uses_ring: bool = True) -> Callable[[TileLimits], Planner]:
    def make(limits: TileLimits) -> Planner:
        from tvm_npu.codegen.plan.exact import ExactPlanner

        return ExactPlanner(limits, name, uses_ring)

    return make


_FACTORIES: dict[str, Callable[[TileLimits], Planner]] = {
    "tso": _tso("tso"),
    "tso-noburst": _tso("tso-noburst", by_volume=True),
    "fixed-ks": _tso("fixed-ks", split="KS"),
    "fixed-ks-ofm": _tso("fixed-ks-ofm", split="KS&OFM"),
    "fixed-ofm": _tso("fixed-ofm", split="OFM"),
    "fixed-is": _tso("fixed-is", schedule="IS"),
    "fixed-os": _tso("fixed-os", schedule="OS"),
    "fixed-ws": _tso("fixed-ws", schedule="WS"),
    "exact": _exact("exact"),
    "exact-dma": _exact("exact-dma", uses_ring=False),
}


def _learned(limits: TileLimits, tuning_log: Path) -> Planner:
    from tvm_npu.codegen.learn.planner import LearnedPlanner

    return LearnedPlanner(tuning_log, limits)


def _exact_tuned(limits: TileLimits, tuning_log: Path) -> Planner:
    from tvm_npu.codegen.learn.planner import ExactTunedPlanner

    return ExactTunedPlanner(tuning_log, limits)


_BY_LOG: dict[str, Callable[[TileLimits, Path], Planner]] = {
    "learned": _learned,
    "exact-tuned": _exact_tuned,
}


def planner_names() -> tuple[str, ...]:
    """The names of planners that `planner` makes of nothing."""
    return tuple(_FACTORIES)


def tuned_planner_names() -> tuple[str, ...]:
    """The names of planners that `planner` makes of a tuning log."""
    return tuple(_BY_LOG)


def log_fault(name: str, tuning_log: str | Path | None) -> str | None:
    """What is wrong with asking for the planner ``name`` with this log or without one."""
    if name in _BY_LOG and tuning_log is None:
        return f"planner {name!r} plans by a tuning log, and none is given"
    if name in _FACTORIES and tuning_log is not None:
        takers = " and ".join(map(repr, _BY_LOG))
        return f"planner {name!r} takes no tuning log; {takers} do"
    return None


def planner(
    name: str, limits: TileLimits = NO_LIMITS, tuning_log: str | Path | None = None
) -> Planner:
    """The planner called ``name``; raises PlanningError for an unknown name, and for a tuning log
    that is missing or given to a planner that takes none."""
    fault = log_fault(name, tuning_log)
    if fault is not None:
        raise PlanningError(fault)
    if name in _BY_LOG and tuning_log is not None:
        return _BY_LOG[name](limits, Path(tuning_log))
    factory = _FACTORIES.get(name)
    if factory is None:
        known = ", ".join((*planner_names(), *tuned_planner_names()))
        raise PlanningError(f"unknown planner {name!r}; known planners: {known}")
    return factory(limits)


def plan_all(
    problems: Iterable[ConvProblem], planner: Planner, machine: Machine
) -> tuple[ConvPlan | Infeasible, ...]:
    """One answer a problem, in order; equal problems are planned once."""
    answers: dict[ConvProblem, ConvPlan | Infeasible] = {}
    listed = tuple(problems)
    for problem in listed:
        if problem not in answers:
            answers[problem] = planner.plan(problem, machine)
    return tuple(answers[problem] for problem in listed)
