"""Plans for blocks: the fastest by the cost model of all spreads, tiles, rounds and buffers
(`exact_blocks`), or what they lack."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import SEMAPHORES, block_needs
from tvm_npu.codegen.nmp.plan.check import Deal, Need, most_lacking
from tvm_npu.codegen.nmp.plan.exact_blocks.planner import fastest_block, plan_of, spreads_of
from tvm_npu.codegen.nmp.plan.exact_blocks.search import FOUND_WIDTH
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

_REMEDY = "run its layers one after the other"


def plan_block(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits, name: str
) -> BlockPlan | Infeasible:
    """The fastest plan by `predict_block`, called ``name``; Infeasible where none fits."""
    if machine.ring is None or machine.dme.semaphores < SEMAPHORES:
        return Infeasible(
            "semaphores", 0, 0, f"a block needs rings and {SEMAPHORES} semaphores", _REMEDY
        )
    proof = fastest_block(problem, machine, limits, name)
    if proof is not None:
        return proof.plan
    if next(spreads_of(problem, machine), None) is None:
        return Infeasible("TLTs", 0, 0, "no grid of all TLTs has work of a block for each", _REMEDY)
    memory, _, needed, available = _least_need(problem, machine)
    return Infeasible(memory, needed, available, "no tile of a block fits", _REMEDY)


def _least_need(problem: BlockProblem, machine: NmpMachine) -> Need:
    """What the smallest tiles of a spread lack most, of the spread that lacks least."""
    needs = []
    for spread in spreads_of(problem, machine):
        smallest = np.ones(FOUND_WIDTH, np.int64)
        plan = plan_of(spread, smallest, keeps_rows=False, keeps_in=False, on_chip=False)
        deal = Deal.of(problem.head, plan.head, machine)
        needs.append(max(block_needs(problem, plan, machine, deal), key=most_lacking))
    return min(needs, key=most_lacking)
