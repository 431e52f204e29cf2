"""Our planners, asked as the peers are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import metadata

from studies.harness.errors import StudyError
from studies.mappers.layers import Case, Layer, problem_of
from studies.mappers.question import Goal, Totals
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.codegen.tiles.emit.runs import chain_cycles
from tvm_npu.codegen.tiles.plan.chain import ChainProblem
from tvm_npu.codegen.tiles.plan.chains import plan_chain
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import TileMachine

PLANNERS: dict[Goal, str] = {"bytes": "exact-traffic", "cycles": "exact"}
NOTES = (
    "halos of rows kept, IN or W tiles of all channels stay while others come, ragged tiles; "
    "counts as simulated"
)
FUSED_NOTES = (
    "a chain in strips of rows and rounds of channels, the last ones ragged; halos of its input "
    "kept, those between its layers made twice; counts as simulated"
)
WARM_UP = Layer("warm", 4, 4, 1, 4, 4, (1, 1), (1, 1))


def own(case: Case, machine: TileMachine, goal: Goal) -> Totals:
    """All layers of a case, one after another. Raises StudyError where one has no plan."""
    _predicted(problem_of(WARM_UP, machine), machine, goal)
    problems = [problem_of(layer, machine) for layer in case.layers]
    if case.fused:
        return _fused(case, problems, machine, goal)
    begin = time.process_time()
    found = [_predicted(problem, machine, goal) for problem in problems]
    used = time.process_time() - begin
    moved = sum(one.in_bytes + one.weight_bytes + one.out_bytes for one in found)
    moved -= BIAS_BYTES * sum(layer.filters for layer in case.layers)
    cycles = sum(one.cycles for one in found)
    return Totals(metadata.version("tvm-npu"), used, cycles, moved)


def _fused(case: Case, problems: Sequence[ConvProblem], machine: TileMachine, goal: Goal) -> Totals:
    """The layers as one chain."""
    head, *middle, point = problems
    chain = ChainProblem(head, middle[0] if middle else None, point)
    begin = time.process_time()
    plan = plan_chain(chain, machine, PLANNERS[goal], chain_cycles, goal=goal)
    used = time.process_time() - begin
    if isinstance(plan, Infeasible):
        raise StudyError(f"planner {PLANNERS[goal]!r}, chain {case.name}: {plan}")
    biases = BIAS_BYTES * sum(layer.filters for layer in case.layers)
    cycles = chain_cycles(chain, plan, machine)
    return Totals(metadata.version("tvm-npu"), used, cycles, plan.moved_bytes - biases)


def _predicted(problem: ConvProblem, machine: TileMachine, goal: Goal) -> Prediction:
    plan = planner(PLANNERS[goal]).plan(problem, machine)
    prediction = getattr(plan, "prediction", None)
    if prediction is None:
        raise StudyError(f"planner {PLANNERS[goal]!r}, layer {problem}: {plan}")
    assert isinstance(prediction, Prediction)
    return prediction
