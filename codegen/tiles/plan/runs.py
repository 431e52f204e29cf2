"""Which runs of chains there are in a graph, and how each is planned.

Every chain of a run has its own best plan among those that leave room for the maps that stay,
whatever the other chains' plans: what they share are the buffers. So a chain is planned once for
all runs that have it at their begin, inside, or at their end. By time, clocks that go through
the run choose between one buffer and two, and tiles of least bounds and of least bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isqrt

from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.ops import FixedBlock, FixedRun
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.planner import Goal
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.chain import ChainProblem, ChainTiles, Seat, least_need
from tvm_npu.codegen.tiles.plan.chain_space import Place
from tvm_npu.codegen.tiles.plan.chains import (
    BUFFERS,
    Value,
    all_tries,
    beyond_limits,
    chain_problem,
    no_room,
    plan_of,
    smallest_tiles,
)
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES, Precision
from tvm_npu.sim.tiles.machine import TileMachine

Blocks = tuple[FixedBlock, ...]
LONGEST_RUN = 32
"""Chains."""
MOST_TRIED = 5_000
"""Chains of all runs together that a graph tries, about, before it leaves out all but the longest
of the long ones."""
Best = tuple[Value, ChainTiles] | None
"""None where no tiles fit."""
RunClock = Callable[[RunProblem, RunPlan, TileMachine], float]
"""Predicts the cycles of a plan without a fault."""


def run_problem(
    layer: FixedRun, shapes: Mapping[str, Shape], precision: Precision, machine: TileMachine
) -> RunProblem:
    """What is asked about ``layer``."""
    return RunProblem(
        tuple(chain_problem(block, shapes, precision, machine) for block in layer.blocks)
    )


def plan_run(
    problem: RunProblem,
    machine: TileMachine,
    planner: str,
    clock: RunClock,
    limits: TileLimits = NO_LIMITS,
    goal: Goal = "cycles",
) -> RunPlan | Infeasible:
    """The best plan within ``limits`` by ``goal``, with one buffer or with two; of equals
    the one with one. By time, the fastest by ``clock`` of `run_plans` by both goals: what a chain
    loads comes beside the work of the one before, which no bound of its own time knows."""
    found = run_plans(problem, machine, planner, goal, limits)
    if isinstance(found, Infeasible):
        return found
    if goal == "bytes":
        return min(found, key=lambda one: one[0])[1]
    others = run_plans(problem, machine, planner, "bytes", limits)
    assert not isinstance(others, Infeasible)
    plans = dict.fromkeys(plan for _, plan in (*found, *others))
    return min(plans, key=lambda plan: clock(problem, plan, machine))


def run_plans(
    problem: RunProblem,
    machine: TileMachine,
    planner: str,
    goal: Goal,
    limits: TileLimits = NO_LIMITS,
) -> list[tuple[Value, RunPlan]] | Infeasible:
    """The best plan with one buffer, and with two, where they fit: each chain by itself, whose time
    is taken to be its bound."""
    last = len(problem.chains) - 1
    biases, room = sum(map(bias_bytes, problem.chains)), machine.memories.bias_bytes
    if biases > room:
        return Infeasible(
            "bias_bytes", biases, room, "biases of all chains of a run lie in their memory",
            "run its chains one by one",
        )  # fmt: skip
    chains = [
        chain_in_run(chain, machine, goal, at > 0, at < last, limits)
        for at, chain in enumerate(problem.chains)
    ]
    plans: list[tuple[Value, RunPlan]] = []
    for buffers, found in zip(BUFFERS, zip(*chains, strict=True), strict=True):
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            continue
        value = sum(one[0][0] for one in known), sum(one[0][1] for one in known)
        own = tuple(plan_of(tiles, buffers, planner) for _, tiles in known)
        plans.append((value, RunPlan(own, sum(one.moved_bytes for one in own), planner)))
    if plans:
        return plans
    # What fits with two buffers fits with one, so there is a chain that does not fit at all.
    at = next(at for at, (one, _) in enumerate(chains) if one is None)
    place = Place(True, at > 0, at < last)
    if limits != NO_LIMITS and all_tries(problem.chains[at], machine, place):
        return beyond_limits(f"strips and rounds of chain {at} of the run", limits)
    need = least_need(smallest_tiles(problem.chains[at], place), machine, Seat(0, 0))
    return no_room(
        need, f"chain {at} of the run, and the maps beside it, do not fit", "run them one by one"
    )


def bias_bytes(chain: ChainProblem) -> int:
    return BIAS_BYTES * sum(one.filters for one in chain.convolutions)


@lru_cache(maxsize=1 << 12)
def chain_in_run(
    problem: ChainProblem, machine: TileMachine, goal: Goal, held: bool, kept: bool,
    limits: TileLimits = NO_LIMITS,
) -> tuple[Best, Best]:  # fmt: skip
    """The best tiles with one buffer, and with two; their time is taken to be its bound."""
    tries = all_tries(problem, machine, Place(True, held, kept), limits)
    one, two = (
        min((tried.best(goal)[:2] for tried in tries if tried.buffers == buffers),
            key=lambda best: best[0], default=None)
        for buffers in BUFFERS
    )  # fmt: skip
    return one, two


def possible_runs(
    fixed: FixedGraph, chains: Sequence[FixedBlock], extends: Callable[[Blocks], bool]
) -> Iterator[Blocks]:
    """Runs of ``chains``, up to `LONGEST_RUN`: of graphs with many chains the short ones, and the
    longest that begins at each chain. ``extends`` says whether a run that fits still does with its
    last chain; one that does not is at the begin of none that does."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    behind: dict[str, list[FixedBlock]] = {}
    for one in chains:
        tensor = one.inputs[0]
        alone = uses[tensor] == 1 + one.inputs[1:].count(tensor)
        if alone and tensor not in fixed.outputs:
            behind.setdefault(tensor, []).append(one)
    short = isqrt(2 * MOST_TRIED // max(1, len(chains)))
    begun: list[Blocks] = [(one,) for one in chains]
    while begun:
        blocks = begun.pop()
        longer = [
            (*blocks, one)
            for one in behind.get(blocks[-1].output, ())
            if len(blocks) < LONGEST_RUN
            and fixed.width_of(one.inputs[0]) == fixed.width_of(blocks[0].inputs[0])
            and extends((*blocks, one))
        ]
        begun += longer
        if len(blocks) > 1 and (len(blocks) <= short or not longer):
            yield blocks


def run_of(blocks: Blocks) -> FixedRun:
    """``blocks`` as one layer."""
    first, last = blocks[0], blocks[-1]
    later = (tensor for block in blocks[1:] for tensor in block.inputs[1:])
    made = {block.output for block in blocks}
    added = dict.fromkeys(tensor for tensor in later if tensor not in made)
    return FixedRun(
        f"{first.name}..{last.name}", (*first.inputs, *(t for t in added if t not in first.inputs)),
        last.outputs, source=tuple(name for block in blocks for name in block.source),
        blocks=blocks,
    )  # fmt: skip
