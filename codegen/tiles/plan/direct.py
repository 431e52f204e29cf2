"""No tiles at all: a core that works on whole feature maps where they lie.

The double-buffer paper compares with this: the core fetches everything from the memory outside of
the chip by itself. Only a core can do it, and only where an accumulator takes no more room than an
element, because the sums stand where the results will.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class DirectPlan:
    """Nothing to choose."""

    prediction: Prediction | None = None
    planner: str = "direct"


@dataclass(frozen=True)
class DirectPlanner:
    """Answers a `DirectPlan` wherever the machine can run it."""

    name: str = "direct"

    def plan(self, problem: ConvProblem, machine: TileMachine) -> DirectPlan | Infeasible:
        if machine.core is None:
            return Infeasible("core", 1, 0, "the machine has no core", "take a machine with one")
        if problem.accumulator_bytes > problem.element_bytes:
            return Infeasible(
                "words", problem.accumulator_bytes, problem.element_bytes,
                "accumulators take more room than elements", "store elements as wide as sums",
            )  # fmt: skip
        needed, room = problem.filters * BIAS_BYTES, machine.memories.bias_bytes
        if needed > room:
            return Infeasible(
                "bias memory", needed, room, "the biases do not fit",
                "give the machine a larger one",
            )  # fmt: skip
        return DirectPlan(planner=self.name)
