"""What a backend asks planners of loops about a layer, and how their answers become its own plans.

A layer on one engine is one question. A machine that spreads a layer over cores asks about the
share of a core, once for every way to spread it; a shared memory may be divided in several ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)

Measure = Literal["metric", "transfers", "bytes", "cycles"]
"""What a planner of loops compares answers by, where a backend asks several questions: e-PlaNNer's
performance / bytes, transfer time, bytes, or time; all of the backend's own prediction."""


class LoopPlanner(Protocol):
    """Anything that plans the loops of a `ConvProblem` on a `LoopMachine`. Deterministic."""

    @property
    def name(self) -> str: ...

    @property
    def measure(self) -> Measure: ...

    @property
    def splits_memory(self) -> bool:
        """It plans for memories of their own only (`SplitMemories`): a shared one is divided."""

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible: ...


LoopPlannerFactory = Callable[[str, TileLimits], LoopPlanner]
"""Makes the planner of a name, which keeps to the limits."""


@dataclass(frozen=True)
class LoopQuestion(Generic[P_co]):
    """``problem`` on ``machine``; ``realize`` makes the backend's own plan of an answer, for the
    whole layer and with its prediction, or says why the machine cannot run it."""

    problem: ConvProblem
    machine: LoopMachine
    realize: Callable[[LoopPlan], P_co | Infeasible]
