"""Planners of a Snowflake machine's own plans."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.plan.divide import divided_plan
from tvm_npu.codegen.snowflake.plan.greedy import greedy
from tvm_npu.codegen.snowflake.plan.refused import refusal
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, conv_shape
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class GreedyPlanner:
    """The compiler's paper's own choices."""

    name: str = "snowflake"
    limits: TileLimits = NO_LIMITS

    def plan(self, problem: ConvProblem, machine: SnowflakeMachine) -> SnowflakePlan | Infeasible:
        return divided_plan(problem, machine, self._of_cluster)

    def _of_cluster(
        self, problem: ConvProblem, machine: SnowflakeMachine, most_filters: int | None
    ) -> SnowflakePlan | Infeasible:
        refused = refusal(problem, machine, self.limits)
        if refused is not None:
            return refused
        limits = self.limits
        if most_filters is not None:
            most = min(most_filters, limits.max_tile_m or most_filters)
            limits = replace(limits, max_tile_m=most)
        plan = greedy(conv_shape(problem), machine, limits)
        assert plan is not None, "a layer that is not refused has a plan"
        return replace(plan, planner=self.name)
