"""Layers one after the other: what a layer loads while the one before still runs.

Where W tiles of two buffers are a TLT's own, the biases and the first W tile of a layer are asked
for in front of the barrier behind the layer before it, by each TLT as soon as it is through. Its
engine takes them behind the TLT's own last store and in front of the stores of the TLTs after it,
so that the layer before ends as much later as all TLTs but the last one load, and the layer itself
takes that much less.

Layers of few steps that load nothing early are walked event by event here.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, loads_weights_early
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.few_steps import few_steps_cycles, takes_few_steps
from tvm_npu.codegen.nmp.plan.tle_walk import TleWalk
from tvm_npu.codegen.nmp.plan.turns import tle_turns
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem, MeasuredPrediction
from tvm_npu.sim.nmp.machine import NmpMachine


def in_sequence(
    layers: tuple[PlannedLayer, ...], machine: NmpMachine
) -> tuple[PlannedLayer, ...]:
    """The layers of a region with predictions that know what comes behind and before, which moves
    time from one to the other, and those of few steps with the times of their walks."""
    found = [_walked(one, machine) for one in layers]
    for at in range(1, len(found)):
        early = early_cycles(found[at].problem, found[at].plan, machine)
        if early:
            found[at - 1] = _later(found[at - 1], early)
            found[at] = _later(found[at], -early)
    return tuple(found)


def _walked(one: PlannedLayer, machine: NmpMachine) -> PlannedLayer:
    """A layer of few steps that loads nothing early with the time of its walk (`few_steps`). What
    it loads comes in the order in which its TLTs ask, and the closed forms have it all in a
    row."""
    problem, plan = one.problem, one.plan
    if not isinstance(problem, ConvProblem) or not isinstance(plan, ConvPlan):
        return one
    if plan.prediction is None or isinstance(plan.prediction, MeasuredPrediction):
        return one
    is_plain = problem.groups == 1 and problem.window is None and not problem.has_residual
    if not is_plain or plan.mode != "multicast" or loads_weights_early(problem, plan):
        return one
    walks = [
        TleWalk(problem, plan, machine, turns)
        for turns in dict.fromkeys(tle_turns(problem, plan, machine))
    ]
    if not all(map(takes_few_steps, walks)):
        return one
    said = plan.prediction
    shared = said.cycles if said.bound in ("dram", "ring") else 0.0
    slowest = max(map(few_steps_cycles, walks))
    return _later(one, max(slowest, shared) - said.cycles)


def early_cycles(problem: object, plan: object, machine: NmpMachine) -> float:
    """Time of a TLE's engine for what a layer loads before the one in front of it can end; 0 for
    layers that load nothing early."""
    if isinstance(problem, BlockProblem) and isinstance(plan, BlockPlan):
        problem, plan = problem.head, plan.head
    if isinstance(problem, SumProblem):
        problem = problem.whole
    if not isinstance(problem, ConvProblem) or not isinstance(plan, ConvPlan):
        return 0.0
    if not loads_weights_early(problem, plan):
        return 0.0
    walk = TleWalk(problem, plan, machine, tle_turns(problem, plan, machine)[0])
    return walk.engine(walk.early_loads())


def _later(one: PlannedLayer, cycles: float) -> PlannedLayer:
    if one.predicted_cycles is None:
        return one
    return replace(one, predicted_cycles=one.predicted_cycles + cycles)
