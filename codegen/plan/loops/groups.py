"""Grouped convolutions: several groups in one step."""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.plan.loops.plan import TilePlan, extent
from tvm_npu.codegen.plan.loops.room import check_tile_plan
from tvm_npu.codegen.plan.problem import ConvProblem, tile_sizes
from tvm_npu.sim.tiles.machine import TileMachine


def with_groups(problem: ConvProblem, plan: TilePlan, machine: TileMachine) -> TilePlan:
    """``plan``, where its tiles take whole groups, with as many groups in a step as fit: the same
    bytes in fewer transfers."""
    whole = plan.tile_m == extent(problem, "M") and plan.tile_n == extent(problem, "N")
    if not whole or problem.groups == 1:
        return plan
    best = plan
    for groups in tile_sizes(problem.groups):
        grown = replace(plan, tile_groups=groups)
        if check_tile_plan(problem, grown, machine) is not None:
            break
        best = grown
    return best
