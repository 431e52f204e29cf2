"""Planners by name, on machines of every kind.

A name is a planner of a kind's own plans (`Backend.planners`), a planner of loops, or both: on a
machine the kind's own comes first. Planners of loops plan any machine whose backend asks about
loops; those of literature stand in `_LOOPS`, and kinds may lend theirs (`Backend.loop_planners`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.backends import backend, backend_names, backend_of
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.planner import Planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.texts import did_you_mean

if TYPE_CHECKING:
    from tvm_npu.codegen.plan.loops.questions import LoopPlanner, LoopPlannerFactory

DEFAULT_PLANNER = "exact"


def _exact(name: str, limits: TileLimits) -> LoopPlanner:
    from tvm_npu.codegen.plan.loops.exact import ExactLoops

    return ExactLoops(limits, name, "bytes" if name == "exact-traffic" else "cycles")


def _eplanner(name: str, limits: TileLimits) -> LoopPlanner:
    from tvm_npu.codegen.plan.loops.eplanner import EPlanner

    return EPlanner(limits, name)


def _baseline(name: str, limits: TileLimits) -> LoopPlanner:
    from tvm_npu.codegen.plan.loops import baselines

    if name == "zhang":
        return baselines.zhang(limits)
    return baselines.Ma(limits, name) if name == "ma" else baselines.SmartShuttle(limits, name)


def _double_buffer(name: str, limits: TileLimits) -> LoopPlanner:
    from tvm_npu.codegen.plan.loops.double_buffer import DoubleBuffer

    return DoubleBuffer(limits, name, fills_only=name == "naive")


_LOOPS: dict[str, LoopPlannerFactory] = {
    "exact": _exact,
    "exact-dma": _exact,
    "exact-layers": _exact,
    "exact-traffic": _exact,
    "eplanner": _eplanner,
    "zhang": _baseline,
    "ma": _baseline,
    "smartshuttle": _baseline,
    "double-buffer": _double_buffer,
    "naive": _double_buffer,
}


def loop_planner(name: str, limits: TileLimits = NO_LIMITS) -> LoopPlanner | None:
    """The planner of loops called ``name``; None where there is none."""
    factory = _LOOPS.get(name)
    for isa in backend_names():
        factory = factory or backend(isa).loop_planners().get(name)
    return None if factory is None else factory(name, limits)


@dataclass(frozen=True)
class RegisteredPlanner:
    """A planner by its name, for machines of every kind that it knows."""

    name: str
    limits: TileLimits = NO_LIMITS

    def on(self, machine: MachineDescription) -> Planner:
        """What answers on machines of this kind; PlanningError where nothing does."""
        own = backend_of(machine).planners().get(self.name)
        if own is not None:
            return own(self.name, self.limits)
        loops = loop_planner(self.name, self.limits)
        if loops is None:
            raise PlanningError(_does_not_plan(self.name, machine))
        from tvm_npu.codegen.plan.loops.by_loops import ByLoops

        return ByLoops(loops, self.limits)

    def explained(self) -> str:
        """The first line that the class of what answers says about itself."""
        factories = [backend(isa).planners().get(self.name) for isa in backend_names()]
        own = next((factory for factory in factories if factory is not None), None)
        answering = own(self.name, self.limits) if own else loop_planner(self.name, self.limits)
        return (type(answering).__doc__ or "").strip().split("\n")[0]

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> Any:
        """A plan of the machine's kind, or Infeasible."""
        return self.on(machine).plan(problem, machine)


def planner_on(chosen: Planner, machine: MachineDescription) -> Planner:
    """What of ``chosen`` answers on ``machine``: a planner of a caller's own is that itself."""
    return chosen.on(machine) if isinstance(chosen, RegisteredPlanner) else chosen


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


def planner_names(machine: MachineDescription | None = None) -> tuple[str, ...]:
    """The names of planners that `planner` makes of nothing, those of the kinds first; with
    ``machine`` only of those that plan it."""
    kinds = [backend(isa) for isa in backend_names()]
    own = kinds if machine is None else [backend_of(machine)]
    names = [name for kind in own for name in kind.planners()]
    names += [name for kind in kinds for name in kind.loop_planners()]
    return tuple(dict.fromkeys((*names, *_LOOPS)))


def tuned_planner_names(machine: MachineDescription | None = None) -> tuple[str, ...]:
    """The names of planners that `planner` makes of a tuning log; with ``machine`` only of those
    that plan it."""
    return tuple(_BY_LOG) if machine is None or backend_of(machine).is_tunable else ()


def planner_fault(name: str, machine: MachineDescription) -> str | None:
    """Why the planner ``name`` plans no layer of ``machine``, and which ones do; None where it
    plans them."""
    if name in _planners_of(machine):
        return None
    return _does_not_plan(name, machine)


def _planners_of(machine: MachineDescription) -> tuple[str, ...]:
    return (*planner_names(machine), *tuned_planner_names(machine))


def _does_not_plan(name: str, machine: MachineDescription) -> str:
    return (
        f"planner {name!r} does not plan machine {machine.name!r} of isa {machine.isa!r}; "
        f"{', '.join(_planners_of(machine))} do"
    )


def log_fault(name: str, tuning_log: str | Path | None) -> str | None:
    """What is wrong with asking for the planner ``name`` with this log or without one."""
    if name in _BY_LOG and tuning_log is None:
        return f"planner {name!r} plans by a tuning log, and none is given"
    if name not in _BY_LOG and name in planner_names() and tuning_log is not None:
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
    if name not in planner_names():
        known = ", ".join((*planner_names(), *tuned_planner_names()))
        near = did_you_mean(name, (*planner_names(), *tuned_planner_names()))
        raise PlanningError(f"unknown planner {name!r}; known planners: {known}{near}")
    return RegisteredPlanner(name, limits)
