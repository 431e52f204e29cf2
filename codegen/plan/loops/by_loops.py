"""A planner of loops on machines of every kind: the kind asks, and realizes the answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.questions import LoopPlanner, Measure
from tvm_npu.codegen.plan.planner import Goal, goal
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.sim.description import MachineDescription


@dataclass(frozen=True)
class ByLoops:
    """``planner`` for any machine: of the plans that its answers to `Backend.loop_questions`
    become, the best by its measure; of equals the first."""

    planner: LoopPlanner
    limits: TileLimits = NO_LIMITS

    @property
    def name(self) -> str:
        return self.planner.name

    @property
    def goal(self) -> Goal:
        return goal(self.planner)

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> Any:
        """A plan of the machine's kind, or Infeasible."""
        kind, planner = backend_of(machine), self.planner
        best: Any = None
        most = -float("inf")
        unplanned: Infeasible | None = None
        unrealized: Infeasible | None = None
        for question in kind.loop_questions(problem, machine, self.limits, planner.splits_memory):
            loops = planner.plan(question.problem, question.machine)
            if isinstance(loops, Infeasible):
                unplanned = loops
                continue
            plan = question.realize(loops)
            if isinstance(plan, Infeasible):
                unrealized = plan
                continue
            rate = question.machine.outside_bytes_per_cycle
            value = merit(problem, plan.prediction, planner.measure, rate)
            if best is None or value > most:
                best, most = plan, value
        if best is None:
            best = kind.otherwise(problem, machine, self.limits)
        if best is None:
            best = unplanned or unrealized or _not_for(machine)
        return best if isinstance(best, Infeasible) else replace(best, planner=self.name)


def merit(
    problem: ConvProblem, prediction: Prediction, measure: Measure, bytes_per_cycle: float
) -> float:
    """Of a plan; larger is better."""
    moved = prediction.moved_bytes
    if measure == "cycles":
        return -prediction.cycles
    if measure == "transfers":
        return -(prediction.load_cycles + prediction.store_cycles)
    if measure == "bytes":
        return -moved
    used = problem.macs / max(prediction.mac_cycles, 1e-9)
    return min(used, bytes_per_cycle * problem.macs / moved) / moved


def _not_for(machine: MachineDescription) -> Infeasible:
    return Infeasible(
        "loops", 0, 0, f"machine {machine.name!r} takes no plans of loops",
        "choose a planner of its own kind",
    )  # fmt: skip
