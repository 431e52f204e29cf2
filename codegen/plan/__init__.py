"""Planners: how a layer is cut into tiles and spread over the cores of a machine."""

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.planner import Planner, plan_all, plans_blocks, plans_windows
from tvm_npu.codegen.plan.registry import (
    DEFAULT_PLANNER,
    RegisteredPlanner,
    log_fault,
    planner,
    planner_fault,
    planner_names,
    planner_on,
    tuned_planner_names,
)

__all__ = [
    "DEFAULT_PLANNER",
    "NO_LIMITS",
    "Planner",
    "RegisteredPlanner",
    "TileLimits",
    "log_fault",
    "plan_all",
    "planner",
    "planner_fault",
    "planner_names",
    "planner_on",
    "plans_blocks",
    "plans_windows",
    "tuned_planner_names",
]
