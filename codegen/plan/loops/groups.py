"""Grouped convolutions: several groups in one step."""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LoopPlan, extent
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.problem import ConvProblem, tile_sizes


def with_groups(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> LoopPlan:
    """``plan``, where its tiles take whole groups, with as many groups in a step as fit: the same
    bytes in fewer transfers."""
    whole = plan.tile_m == extent(problem, "M") and plan.tile_n == extent(problem, "N")
    if not whole or problem.groups == 1:
        return plan
    best = plan
    for groups in tile_sizes(problem.groups):
        grown = replace(plan, tile_groups=groups)
        if check_loop_plan(problem, grown, machine) is not None:
            break
        best = grown
    return best
