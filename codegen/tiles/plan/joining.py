"""Which chains, and runs of chains, a graph has on a tile machine.

It takes one where it is better than its layers, each under its own best plan, by dynamic
programming (`passes.joined`).
"""

from __future__ import annotations

from math import inf
from typing import Any

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedRun
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.planner import goal
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.chain import ChainPlan
from tvm_npu.codegen.tiles.plan.chains import (
    CHAIN_PLANNERS,
    chain_problem,
    members_of,
    possible_chains,
)
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem
from tvm_npu.codegen.tiles.plan.runs import Blocks, possible_runs, run_of, run_plans
from tvm_npu.sim.tiles.machine import TileMachine


def with_chains(fixed: FixedGraph, planner: LayerPlanner, machine: TileMachine) -> FixedGraph:
    """The graph with the chains and runs that are better than their layers, for planners that take
    any."""
    if planner.chosen.name not in CHAIN_PLANNERS:
        return fixed
    wanted = goal(planner.chosen)
    chains = possible_chains(fixed, machine)
    if not chains:
        return fixed

    asked = {
        one: chain_problem(one, fixed.shapes, fixed.precision_of(one), machine) for one in chains
    }

    def question(blocks: Blocks) -> RunProblem:
        return RunProblem(tuple(asked[one] for one in blocks))

    def extends(blocks: Blocks) -> bool:
        name = planner.chosen.name
        found = run_plans(question(blocks), machine, name, wanted, planner.limits)
        return not isinstance(found, Infeasible)

    def cost(layer: FixedLayer) -> float:
        """A run asks about chains that are known."""
        if isinstance(layer, FixedRun):
            problem = question(layer.blocks)
            found = planner.backend.plan(problem, machine, planner.chosen, planner.limits)
            if wanted == "bytes":
                return _bytes(found)
            return planner.backend.predicted_cycles(layer, problem, found, machine) or inf
        precision = fixed.precision_of(layer)
        if wanted == "cycles":
            return planner.cycles(layer, fixed.shapes, precision)
        return _bytes(planner.answer(layer, fixed.shapes, precision)[1])

    found = [Joined(one, members_of(one)) for one in chains]
    found += [
        Joined(run_of(blocks), tuple(tensor for one in blocks for tensor in members_of(one)))
        for blocks in possible_runs(fixed, chains, extends)
    ]
    return with_joined(fixed, found, cost)


def _bytes(answer: Any) -> float:
    """That a plan moves; infinite where there is none."""
    if isinstance(answer, ChainPlan | RunPlan):
        return float(answer.moved_bytes)
    said = getattr(answer, "prediction", None)
    if said is None:
        return inf
    return float(said.moved_bytes)
