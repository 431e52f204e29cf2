"""Kinds whose plans of convolutions are plans of loops on one engine: what their backends share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.backend import Backend, M

if TYPE_CHECKING:
    from tvm_npu.codegen.graph.layer import FixedLayer
    from tvm_npu.codegen.least import LeastNeeds
    from tvm_npu.codegen.plan.faults import PlanFault
    from tvm_npu.codegen.plan.limits import TileLimits
    from tvm_npu.codegen.plan.loops.machine import LoopMachine
    from tvm_npu.codegen.plan.loops.plan import LoopPlan, Step
    from tvm_npu.codegen.plan.loops.questions import LoopQuestion
    from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
    from tvm_npu.sim.machine_parts import Precision


class LoopBackend(Backend[M, "LoopPlan"]):
    """A kind says which `LoopMachine` its machines are, and what they cannot do of the plans."""

    @abstractmethod
    def loop_machine(self, machine: M) -> LoopMachine:
        """All that planners of loops may know of ``machine``."""

    @abstractmethod
    def accumulator_bytes(self, machine: M, precision: Precision) -> int:
        """Of a partial sum on chip."""

    def own_fault(self, problem: ConvProblem, plan: LoopPlan, machine: M) -> PlanFault | None:
        """What this kind cannot do of a plan, whatever its tiles take."""
        return None

    def least_needs(self, machine: M, precision: Precision) -> LeastNeeds:
        from tvm_npu.codegen.plan.loops.least import LoopNeeds

        return LoopNeeds(
            self.loop_machine(machine),
            machine.stored_element_bytes(precision),
            self.accumulator_bytes(machine, precision),
        )

    def check(self, problem: ConvProblem, plan: LoopPlan, machine: M) -> PlanFault | None:
        from tvm_npu.codegen.plan.loops.room import check_loop_plan

        fault = check_loop_plan(problem, plan, self.loop_machine(machine))
        return fault or self.own_fault(problem, plan, machine)

    def predict(self, problem: ConvProblem, plan: LoopPlan, machine: M) -> Prediction:
        from tvm_npu.codegen.plan.loops.cost import predict_loops

        return predict_loops(problem, plan, self.loop_machine(machine))

    def predicted_cycles(
        self, layer: FixedLayer, problem: Any, plan: Any, machine: M
    ) -> float | None:
        return None if plan.prediction is None else float(plan.prediction.cycles)

    def realize(self, problem: ConvProblem, loops: LoopPlan, machine: M) -> LoopPlan | Infeasible:
        """The kind's own plan of ``loops``, predicted, or why it has none."""
        from tvm_npu.codegen.plan.problem import Infeasible

        fault = self.check(problem, loops, machine)
        if fault is not None:
            return Infeasible(
                "loops", 0, 0, f"machine {machine.name!r} cannot run the plan: {fault}",
                "choose another planner",
            )  # fmt: skip
        return replace(loops, prediction=self.predict(problem, loops, machine))

    def loop_questions(
        self, problem: ConvProblem, machine: M, limits: TileLimits, splits_memory: bool
    ) -> Iterator[LoopQuestion[LoopPlan]]:
        """The layer on the machine as it is."""
        from tvm_npu.codegen.plan.loops.questions import LoopQuestion

        yield LoopQuestion(
            problem, self.loop_machine(machine), lambda loops: self.realize(problem, loops, machine)
        )

    def steps(self, problem: ConvProblem, plan: LoopPlan, machine: M) -> Iterator[Step]:
        from tvm_npu.codegen.plan.loops.plan import steps

        return steps(problem, plan)
