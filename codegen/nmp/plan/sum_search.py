"""Plans for the sum of two convolutions: a part of the space.

The fastest plans of some families (`shortlist`) for the whole as one convolution, with a residual
tile, in whose place what the first makes waits. Their tiles of channels are cut so that none has
some of both. The best by the cost model is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from tvm_npu.codegen.nmp.plan.by_channels import both_ways
from tvm_npu.codegen.nmp.plan.check import Deal, Need, most_lacking
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.sum_check import check_sum, sum_needs
from tvm_npu.codegen.nmp.plan.sum_cost import predict_sum
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine


def with_room(problem: SumProblem) -> ConvProblem:
    """The question to whose answers `plan_sum` looks."""
    return replace(problem.whole, has_residual=True)


def plan_sum(
    problem: SumProblem, machine: NmpMachine, name: str, plans: Sequence[ConvPlan]
) -> ConvPlan | Infeasible:
    """The best plan that comes of ``plans``; ties go to the earlier one."""
    best: ConvPlan | None = None
    for plan in plans:
        for own in _cut(problem, plan):
            if check_sum(problem, own, machine) is not None:
                continue
            own = replace(own, prediction=predict_sum(problem, own, machine))
            if best is None or _cycles(own) < _cycles(best):
                best = own
    if best is not None:
        return replace(best, planner=name)
    remedy = "run its layers one after the other"
    if not plans:
        return Infeasible(
            "rings", 0, 0, "a sum needs rings and pointwise convolutions, not dense layers", remedy
        )
    needs = (_least_need(problem, plan, machine) for plan in plans)
    memory, _, needed, available = min(needs, key=most_lacking)
    return Infeasible(
        memory, needed, available, "no tile of a sum of convolutions fits", remedy
    )


def _least_need(problem: SumProblem, plan: ConvPlan, machine: NmpMachine) -> Need:
    """What the smallest tiles lack most, spread as ``plan`` is."""
    smallest = replace(plan, tile_m=1, tile_n=1, tile_r=1, tile_c=1, buffers=1, keeps_in=False)
    deal = Deal.of(problem.whole, smallest, machine)
    return max(sum_needs(problem, smallest, machine, deal), key=most_lacking)


def _cut(problem: SumProblem, plan: ConvPlan) -> Iterator[ConvPlan]:
    """``plan`` with about as many channels in a tile that cut those of the first in whole tiles,
    with loads in front of products or behind their start."""
    channels = problem.first.channels
    least = max(1, min(plan.tile_n, channels) // 2)
    sizes = [one for one in range(least, channels + 1) if channels % one == 0]
    for tile_n, macs_first in product(sizes, (False, True)[: plan.buffers]):
        own = replace(
            plan, tile_n=tile_n, keeps_in=False, prediction=None, macs_first=macs_first
        )
        yield from both_ways(problem.second, (own,))


def _cycles(plan: ConvPlan) -> float:
    assert plan.prediction is not None
    return plan.prediction.cycles
