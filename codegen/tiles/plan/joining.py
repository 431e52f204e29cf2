"""Which chains, and runs of chains, a graph has on a tile machine.

It takes one where it is better than its layers, each under its own best plan, by dynamic
programming (`passes.joined`).
"""

from __future__ import annotations

from typing import Any

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedRun
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.chain import ChainPlan
from tvm_npu.codegen.tiles.plan.chains import GOALS, members_of, possible_chains
from tvm_npu.codegen.tiles.plan.run import RunPlan
from tvm_npu.codegen.tiles.plan.runs import possible_runs
from tvm_npu.sim.tiles.machine import TileMachine


def with_chains(fixed: FixedGraph, planner: LayerPlanner, machine: TileMachine) -> FixedGraph:
    """The graph with the chains and runs that are better than their layers, for planners that take
    any."""
    goal = GOALS.get(planner.chosen.name)
    if goal is None:
        return fixed
    chains = possible_chains(fixed, machine)
    if not chains:
        return fixed

    def answer(layer: FixedLayer) -> Any:
        return planner.answer(layer, fixed.shapes, fixed.precision_of(layer))[1]

    def fits(run: FixedRun) -> bool:
        return not isinstance(answer(run), Infeasible)

    def cost(layer: FixedLayer) -> float:
        if goal == "cycles":
            return planner.cycles(layer, fixed.shapes, fixed.precision_of(layer))
        return _bytes(answer(layer))

    found = [Joined(one, members_of(one)) for one in chains]
    found += [
        Joined(run, tuple(tensor for block in run.blocks for tensor in members_of(block)))
        for run in possible_runs(fixed, chains, fits)
    ]
    return with_joined(fixed, found, cost)


def _bytes(answer: Any) -> float:
    """That a plan moves; infinite where there is none."""
    if isinstance(answer, ChainPlan | RunPlan):
        return float(answer.moved_bytes)
    said = getattr(answer, "prediction", None)
    if said is None:
        return float("inf")
    return float(said.moved_bytes)
