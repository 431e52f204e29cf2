"""Layers one after the other: what a layer loads while the one before still runs.

Where W tiles of two buffers are a TLT's own, the biases and the first W tile of a layer are asked
for in front of the barrier behind the layer before it, by each TLT as soon as it is through. Its
engine takes them behind the TLT's own last store and in front of the stores of the TLTs after it,
so that the layer before ends as much later as all TLTs but the last one load, and the layer itself
takes that much less. Where the layer before takes few steps, its walk says how much later it ends,
which may be less: some TLTs are through long before others, and what they load comes meanwhile.

Layers of few steps that load nothing early are walked event by event here, too.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, loads_weights_early
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.few_steps import few_steps_cycles, takes_few_steps
from tvm_npu.codegen.nmp.plan.tle_walk import TleWalk
from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC
from tvm_npu.codegen.nmp.plan.turns import tle_turns
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem, MeasuredPrediction
from tvm_npu.sim.nmp.machine import NmpMachine

BETWEEN_CYCLES = 600.0
"""Of early loads that the layer in front has no time for, what comes before the layer's own time
at most. By simulation of random layers, and of LeNet's."""


def in_sequence(
    layers: tuple[PlannedLayer, ...], machine: NmpMachine
) -> tuple[PlannedLayer, ...]:
    """The layers of a region with predictions that know what comes behind and before, which moves
    time from one to the other, and those of few steps with the times of their walks."""
    found = [_walked(one, machine) for one in layers]
    for at in range(1, len(found)):
        early = early_cycles(found[at - 1], found[at], machine)
        if early:
            found[at - 1] = _later(found[at - 1], early)
            loaded = min(_loaded_before(found[at], machine), early + BETWEEN_CYCLES)
            found[at] = _later(found[at], -max(early, loaded))
    return tuple(found)


def _walked(one: PlannedLayer, machine: NmpMachine) -> PlannedLayer:
    """A layer of few steps that loads nothing early with the time of its walk (`few_steps`). What
    it loads comes in the order in which its TLTs ask, and the closed forms have it all in a
    row."""
    if not _is_plain(one) or one.problem.window is not None:
        return one
    if loads_weights_early(one.problem, one.plan):
        return one
    walks = _walks(one, machine)
    if not walks:
        return one
    said = one.plan.prediction
    shared = said.cycles if said.bound in ("dram", "ring") else 0.0
    slowest = max(map(few_steps_cycles, walks))
    return _later(one, max(slowest, shared) - said.cycles)


def _walks(one: PlannedLayer, machine: NmpMachine) -> list[TleWalk]:
    """Of the kinds of TLEs that a layer has, where it can be walked event by event; else none."""
    if not _is_plain(one):
        return []
    problem, plan = one.problem, one.plan
    kinds = dict.fromkeys(tle_turns(problem, plan, machine))
    walks = [TleWalk(problem, plan, machine, turns) for turns in kinds]
    return walks if all(map(takes_few_steps, walks)) else []


def _is_plain(one: PlannedLayer) -> bool:
    """Whether a layer is a convolution as `few_steps` knows them, with a prediction to mend."""
    problem, plan = one.problem, one.plan
    if not isinstance(problem, ConvProblem) or not isinstance(plan, ConvPlan):
        return False
    if plan.prediction is None or isinstance(plan.prediction, MeasuredPrediction):
        return False
    return problem.groups == 1 and not problem.has_residual and plan.mode == "multicast"


def early_cycles(before: PlannedLayer, one: PlannedLayer, machine: NmpMachine) -> float:
    """How much later the layer ``before`` ends for what ``one`` loads early: the time of a TLE's
    engine for it, or what a walk over a layer of few steps says; 0 for layers that load nothing
    early."""
    walk = _early_walk(one, machine)
    if walk is None:
        return 0.0
    loads = walk.early_loads()
    walks = _walks(before, machine)
    if walks:
        alone = max(map(few_steps_cycles, walks))
        return max(few_steps_cycles(kind, loads) for kind in walks) - alone
    # The TLT that is through last loads when all is stored.
    first_to_last = [load for load in loads if load != NO_TRAFFIC]
    return walk.engine(sum(first_to_last[:-1], NO_TRAFFIC))


def _early_walk(one: PlannedLayer, machine: NmpMachine) -> TleWalk | None:
    """Of the first TLE; None for layers that load nothing early."""
    problem, plan = one.problem, one.plan
    if isinstance(problem, BlockProblem) and isinstance(plan, BlockPlan):
        problem, plan = problem.head, plan.head
    if isinstance(problem, SumProblem):
        problem = problem.whole
    if not isinstance(problem, ConvProblem) or not isinstance(plan, ConvPlan):
        return None
    if not loads_weights_early(problem, plan):
        return None
    return TleWalk(problem, plan, machine, tle_turns(problem, plan, machine)[0])


def early_engine_cycles(one: PlannedLayer, machine: NmpMachine) -> float:
    """What the engine of a TLE takes for all that ``one`` loads early."""
    walk = _early_walk(one, machine)
    return 0.0 if walk is None else walk.engine(sum(walk.early_loads(), NO_TRAFFIC))


def _loaded_before(one: PlannedLayer, machine: NmpMachine) -> float:
    """What the engine of a TLE has loaded of what ``one`` loads early when it begins: all but what
    the TLT that is through last asks for."""
    walk = _early_walk(one, machine)
    if walk is None:
        return 0.0
    loads = [load for load in walk.early_loads() if load != NO_TRAFFIC]
    return walk.engine(sum(loads[:-1], NO_TRAFFIC))


def _later(one: PlannedLayer, cycles: float) -> PlannedLayer:
    if one.predicted_cycles is None:
        return one
    return replace(one, predicted_cycles=one.predicted_cycles + cycles)
