"""Whether a plan is sound for a layer."""

from __future__ import annotations

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.divide import fits
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, conv_shape
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def plan_fault(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> PlanFault | None:
    """The first fault."""
    shape = conv_shape(problem)
    extents = (
        ("tile_m", plan.tile_m, shape.filters), ("tile_r", plan.tile_r, shape.rows.out),
        ("tile_c", plan.tile_c, shape.columns.out),
    )  # fmt: skip
    for name, size, most in extents:
        if not 1 <= size <= most:
            return PlanFault(name, size, f"from 1 to {most}")
    if not fits(problem, plan, machine):
        return PlanFault("tiles", plan, "tiles that fit MBuf and WBuf")
    return None
