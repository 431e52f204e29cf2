"""A planner that answers blocks with one plan."""

from __future__ import annotations

from dataclasses import dataclass

from tests.codegen.nmp.test_cascades import predicted
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem, with_prediction
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.sim.nmp.machine import NmpMachine

NEVER = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 1, 1, 1, prediction=predicted(1e12))


@dataclass(frozen=True)
class Forced:
    """Finds all else very slow."""

    answer: BlockPlan
    name: str = "forced"
    plans_windows: bool = True
    plans_blocks: bool = True

    def plan(self, problem: object, machine: NmpMachine) -> BlockPlan | ConvPlan:
        if not isinstance(problem, BlockProblem):
            return NEVER
        prediction = predict_block(problem, self.answer, machine)
        return with_prediction(self.answer, prediction, self.name)
