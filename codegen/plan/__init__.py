"""Planners: how a layer is cut into tiles and spread over the cores of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def planner_names() -> tuple[str, ...]:
    """The names that `planner` knows."""
    return tuple(_FACTORIES)


def planner(name: str, limits: TileLimits = NO_LIMITS) -> Planner:
    """The planner called ``name``; raises PlanningError for an unknown name."""
    factory = _FACTORIES.get(name)
    if factory is None:
        known = ", ".join(planner_names())
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
