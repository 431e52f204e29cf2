"""Planners: how a layer is cut into tiles and spread over the cores of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, overload

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.plan import TilePlan
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible, Schedule, Split
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import TileMachine

__all__ = [
    "DEFAULT_PLANNER",
    "NO_LIMITS",
    "Planner",
    "RegisteredPlanner",
    "TileLimits",
    "plan_all",
    "planner",
    "planner_names",
    "tuned_planner_names",
]


DEFAULT_PLANNER = "exact"


class Planner(Protocol):
    """Anything that answers a `ConvProblem` for an NMP. Deterministic."""

    @property
    def name(self) -> str: ...

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible: ...


@dataclass(frozen=True)
class RegisteredPlanner:
    """One planner for machines of every kind: ``make_nmp`` and ``make_tiles`` make what answers for
    each; one of the two may be an adapter around the other (`as_nmp`, `tiles.from_nmp`)."""

    name: str
    make_nmp: Callable[[], Any]
    make_tiles: Callable[[], Any]

    @cached_property
    def on_nmp(self) -> Any:
        return self.make_nmp()

    @cached_property
    def on_tiles(self) -> Any:
        return self.make_tiles()

    @property
    def plans_windows(self) -> bool:
        """On an NMP, plans of `ConvProblem.window`."""
        return bool(getattr(self.on_nmp, "plans_windows", False))

    @overload
    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible: ...

    @overload
    def plan(self, problem: ConvProblem, machine: TileMachine) -> TilePlan | Infeasible: ...

    def plan(
        self, problem: ConvProblem, machine: MachineDescription
    ) -> ConvPlan | TilePlan | Infeasible:
        chosen = self.on_tiles if isinstance(machine, TileMachine) else self.on_nmp
        answer: ConvPlan | TilePlan | Infeasible = chosen.plan(problem, machine)
        return answer


_Factory = Callable[[str, TileLimits], RegisteredPlanner]


def _for_nmp(
    name: str,
    limits: TileLimits,
    make: Callable[[], Any],
    tiles: Callable[[], Any] | None = None,
) -> RegisteredPlanner:
    """A planner of NMPs, on tile machines by an adapter unless ``tiles`` says otherwise."""

    def adapted() -> Any:
        from tvm_npu.codegen.tiles.plan.from_nmp import OnTiles

        return OnTiles(make(), limits)

    return RegisteredPlanner(name, make, tiles or adapted)


def _tso(
    by_volume: bool = False, split: Split | None = None, schedule: Schedule | None = None
) -> _Factory:
    def register(name: str, limits: TileLimits) -> RegisteredPlanner:
        def make() -> Any:
            from tvm_npu.codegen.nmp.plan.tso import SCHEDULES, SPLITS, TsoPlanner

            return TsoPlanner(
                name,
                by_volume,
                (split,) if split else SPLITS,
                (schedule,) if schedule else SCHEDULES,
                limits,
            )

        return _for_nmp(name, limits, make)

    return register


def _exact(name: str, limits: TileLimits) -> RegisteredPlanner:
    def make() -> Any:
        from tvm_npu.codegen.nmp.plan.exact import ExactPlanner

        return ExactPlanner(limits, name, uses_ring=name == "exact")

    def tiles() -> Any:
        from tvm_npu.codegen.plan.loops.exact import ExactTilePlanner

        return ExactTilePlanner(limits, name)

    # A tile machine has no ring: both are the same search.
    return _for_nmp(name, limits, make, tiles)


def _for_tiles(make: Callable[[str, TileLimits, bool], Any], measure: str = "metric") -> _Factory:
    """A planner of tile machines, on NMPs by an adapter; there partial sums stay on chip."""

    def register(name: str, limits: TileLimits) -> RegisteredPlanner:
        def adapted() -> Any:
            from tvm_npu.codegen.nmp.plan.as_nmp import OnNmp

            return OnNmp(make(name, limits, True), measure, limits)  # type: ignore[arg-type]

        return RegisteredPlanner(name, adapted, lambda: make(name, limits, False))

    return register


def _eplanner(name: str, limits: TileLimits, sums_stay: bool) -> Any:
    from tvm_npu.codegen.plan.loops.eplanner import EPlanner

    return EPlanner(limits, name, sums_stay=sums_stay)


def _baseline(name: str, limits: TileLimits, sums_stay: bool) -> Any:
    from tvm_npu.codegen.plan.loops import baselines

    if name == "zhang":
        return baselines.zhang(limits, sums_stay)
    kind = {"ma": baselines.Ma, "smartshuttle": baselines.SmartShuttle}[name]
    return kind(limits, name, sums_stay)


def _double_buffer(name: str, limits: TileLimits, sums_stay: bool) -> Any:
    from tvm_npu.codegen.plan.loops.double_buffer import DoubleBuffer

    return DoubleBuffer(limits, name, fills_only=name == "naive")


def _exact_traffic(name: str, limits: TileLimits, sums_stay: bool) -> Any:
    from tvm_npu.codegen.plan.loops.exact import ExactTilePlanner

    return ExactTilePlanner(limits, name, "bytes")


_FACTORIES: dict[str, _Factory] = {
    "tso": _tso(),
    "tso-noburst": _tso(by_volume=True),
    "fixed-ks": _tso(split="KS"),
    "fixed-ks-ofm": _tso(split="KS&OFM"),
    "fixed-ofm": _tso(split="OFM"),
    "fixed-is": _tso(schedule="IS"),
    "fixed-os": _tso(schedule="OS"),
    "fixed-ws": _tso(schedule="WS"),
    "exact": _exact,
    "exact-dma": _exact,
    "exact-traffic": _for_tiles(_exact_traffic, "bytes"),
    "eplanner": _for_tiles(_eplanner),
    "zhang": _for_tiles(_baseline),
    "ma": _for_tiles(_baseline),
    "smartshuttle": _for_tiles(_baseline),
    "double-buffer": _for_tiles(_double_buffer, "transfers"),
    "naive": _for_tiles(_double_buffer, "transfers"),
}


def _learned(limits: TileLimits, tuning_log: Path) -> Planner:
    from tvm_npu.codegen.tune.planner import LearnedPlanner

    return LearnedPlanner(tuning_log, limits)


def _exact_tuned(limits: TileLimits, tuning_log: Path) -> Planner:
    from tvm_npu.codegen.tune.planner import ExactTunedPlanner

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
    return factory(name, limits)


def plan_all(
    problems: Iterable[ConvProblem], planner: Planner, machine: NmpMachine
) -> tuple[ConvPlan | Infeasible, ...]:
    """One answer a problem, in order; equal problems are planned once."""
    answers: dict[ConvProblem, ConvPlan | Infeasible] = {}
    listed = tuple(problems)
    for problem in listed:
        if problem not in answers:
            answers[problem] = planner.plan(problem, machine)
    return tuple(answers[problem] for problem in listed)
