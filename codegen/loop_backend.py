"""Kinds whose plans of convolutions are plans of loops on one engine: what their backends share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.backend import Backend, M

if TYPE_CHECKING:
    from tvm_npu.codegen.graph.layer import FixedLayer
    from tvm_npu.codegen.graph.tensors import Shape
    from tvm_npu.codegen.least import LeastNeeds
    from tvm_npu.codegen.ops import FixedConv
    from tvm_npu.codegen.plan.faults import PlanFault
    from tvm_npu.codegen.plan.limits import TileLimits
    from tvm_npu.codegen.plan.loops.machine import LoopMachine
    from tvm_npu.codegen.plan.loops.plan import LoopPlan, Step
    from tvm_npu.codegen.plan.loops.questions import LoopQuestion
    from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
    from tvm_npu.sim.machine_parts import Precision


class LoopBackend(Backend[M, "LoopPlan"]):
    """A kind says which `LoopMachine` its machines are; what such a machine cannot do of a plan is
    refused."""

    @abstractmethod
    def loop_machine(self, machine: M) -> LoopMachine:
        """All that planners of loops may know of ``machine``."""

    @abstractmethod
    def accumulator_bytes(self, machine: M, precision: Precision) -> int:
        """Of a partial sum on chip."""

    def conv_problem(
        self, layer: FixedConv, shapes: Mapping[str, Shape], precision: Precision, machine: M
    ) -> ConvProblem:
        """What a convolution asks; widths are those in the machine's memories."""
        from tvm_npu.codegen.layers import conv_problem

        stored = machine.stored_element_bytes(precision)
        problem = conv_problem(layer, shapes[layer.inputs[0]], shapes[layer.output], stored)
        return replace(problem, accumulator_bytes=self.accumulator_bytes(machine, precision))

    def least_needs(self, machine: M, precision: Precision) -> LeastNeeds:
        from tvm_npu.codegen.plan.loops.least import LoopNeeds

        return LoopNeeds(
            self.loop_machine(machine),
            machine.stored_element_bytes(precision),
            self.accumulator_bytes(machine, precision),
        )

    def check(self, problem: ConvProblem, plan: LoopPlan, machine: M) -> PlanFault | None:
        from tvm_npu.codegen.plan.faults import PlanFault
        from tvm_npu.codegen.plan.loops.plan import trips
        from tvm_npu.codegen.plan.loops.room import check_loop_plan

        loops = self.loop_machine(machine)
        fault = check_loop_plan(problem, plan, loops)
        if fault is not None:
            return fault
        if plan.buffers > loops.most_buffers:
            return PlanFault("buffers", plan.buffers, f"at most {loops.most_buffers}")
        if plan.tile_groups > 1 and not loops.groups_together:
            return PlanFault("tile_groups", plan.tile_groups, 1)
        moving = [loop for loop in plan.order if trips(problem, plan, loop) > 1]
        if "N" in moving[:-1] and not loops.sums_leave:
            return PlanFault("innermost loop", moving[-1], "N: partial sums stay on chip")
        return None

    def predict(self, problem: ConvProblem, plan: LoopPlan, machine: M) -> Prediction:
        from tvm_npu.codegen.plan.loops.cost import predict_loops

        return predict_loops(problem, plan, self.loop_machine(machine))

    def predicted_cycles(
        self, layer: FixedLayer, problem: Any, plan: Any, machine: M
    ) -> float | None:
        return None if plan.prediction is None else float(plan.prediction.cycles)

    def realize(self, problem: ConvProblem, loops: LoopPlan, machine: M) -> LoopPlan | Infeasible:
        """The kind's own plan of ``loops``, predicted, or why it has none. Where partial sums stay
        on chip, channels become the innermost loop; where a tile takes one group, groups come one
        by one."""
        from tvm_npu.codegen.plan.problem import Infeasible

        allowed = self.loop_machine(machine)
        if not allowed.sums_leave:
            order = (*(loop for loop in loops.order if loop != "N"), "N")
            loops = replace(loops, order=order)  # type: ignore[arg-type]
        if not allowed.groups_together:
            loops = replace(loops, tile_groups=1)
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
