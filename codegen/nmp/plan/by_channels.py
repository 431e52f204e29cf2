"""Where IN tiles that are no whole rows may move as 1-D transfers (`ConvPlan.in_by_channels`).

A burst of a 1-D transfer need not wait for the one before. So one for each channel, which has a
segment a row, often takes less time than one box for all, though an engine sets up each of them.
Padding can only be read as a box; and code with a window behind it has no registers for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import ConvProblem


def may_load_by_channels(problem: ConvProblem, plan: ConvPlan) -> bool:
    """IN tiles of ``plan`` are boxes, and need not be."""
    if plan.mode != "multicast" or any(problem.padding) or problem.window is not None:
        return False
    columns = min(plan.tile_c, problem.columns)
    return not plan.linear_maps or problem.in_tile_columns(columns) < problem.in_columns


def both_ways(problem: ConvProblem, plans: Iterable[ConvPlan]) -> Iterator[ConvPlan]:
    """``plans``, and each of them with IN tiles by channels, where it may have them."""
    for plan in plans:
        yield plan
        if may_load_by_channels(problem, plan):
            yield replace(plan, in_by_channels=True)
