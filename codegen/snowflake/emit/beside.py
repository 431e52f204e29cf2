"""Steps of a layer between those of the one before, so that the memory serves the one while the
MACs work for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm_npu.codegen.plan.problem import share
from tvm_npu.codegen.snowflake.emit.clusters import Lockstep, Memory, Touched, touches
from tvm_npu.codegen.snowflake.steps.objects import Chunk, Step
from tvm_npu.codegen.snowflake.steps.passes import PlacedStep
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

BEHIND = 2
"""Steps from the one that makes something to the one in which it can be loaded without a wait: its
stores are issued with the next one."""

LONG = 4000
"""Cycles of steps that are taken apart: the loads of shorter ones come early enough only when they
stay whole."""
AHEAD = 3
"""Times what the memory takes for a load: so much earlier it is asked for, since the convolution
has loads and stores of its own."""
APART = 1.5
"""The same, from one step beside the layer to the next: several that are ready at once would wait
for each other's loads."""


def as_made(before: Lockstep, clusters: Sequence[list[Step]]) -> list[list[Step]]:
    """The steps of a layer (of each cluster) in the order in which those of ``before`` make what
    they load; the order of all that are ready at once stays."""
    made = [_stored(steps) for steps in zip(*before, strict=True)]
    if not made:
        return list(clusters)

    def ready(number: int) -> int:
        """Behind the last step that makes something."""
        loads = Touched()
        for steps in clusters:
            for load in steps[number].loads if number < len(steps) else ():
                loads.add([move.in_memory for move in load.moves])
        return max((step + 1 for step, one in enumerate(made) if one.meet(loads)), default=0)

    order = sorted(range(max(map(len, clusters))), key=ready)
    return [[steps[number] for number in order if number < len(steps)] for steps in clusters]


def _stored(steps: Sequence[PlacedStep]) -> Touched:
    found = Touched()
    for step in steps:
        found.add([move.in_memory for move in step.stores])
    return found


def merged(
    before: Lockstep, others: Lockstep, begin: int, machine: SnowflakeMachine
) -> Lockstep | None:
    """The steps of ``others`` between those of ``before``, the first of which is step ``begin`` of
    the region, and between their chunks: evenly, but behind what makes what they load. None where
    a step of ``others`` stores to what one of ``before`` touches."""
    before = _chunk_by_chunk(before)
    made = [_touched(steps) for steps in zip(*before, strict=True)]
    cycles = [max(map(_vector_cycles, steps)) for steps in zip(*before, strict=True)]
    count, total = len(before[0]), len(others[0])
    found: Lockstep = tuple([] for _ in before)
    places: list[int] = []
    """Where steps of ``before`` lie in ``found``."""

    def go_on(until: int) -> None:
        for step in range(len(places), until):
            places.append(len(found[0]))
            _append(found, [steps[step] for steps in before])

    for number, steps in enumerate(zip(*others, strict=True)):
        mine = _touched(steps)
        if any(mine.stores_to(one) for one in made):
            return None
        needed = [step for step, one in enumerate(made) if one.stores.meet(mine.loads)]
        ready = needed[-1] + BEHIND if needed else 0
        comes = _load_cycles(steps, machine)
        behind = _behind(cycles, ready, AHEAD * comes)
        if number:
            behind = max(behind, _behind(cycles, len(places), APART * comes))
        go_on(min(count, max(behind, (number + 1) * count // (total + 1))))
        for one in steps:
            one.maps_from = begin + (places[ready] if ready < count else places[-1] + 1)
        _append(found, steps)
    go_on(count)
    return found


def _behind(steps: Sequence[int], first: int, cycles: float) -> int:
    """The first step that begins when steps from ``first`` on have taken ``cycles``; ``steps`` are
    the cycles of each."""
    taken, step = 0, first
    while step < len(steps) and (taken < cycles or step == first):
        taken += steps[step]
        step += 1
    return step


def _vector_cycles(step: PlacedStep) -> int:
    return sum(chunk.cycles for chunk in step.step.compute(step.bases))


def _load_cycles(steps: Sequence[PlacedStep], machine: SnowflakeMachine) -> float:
    """Of the memory, for what all clusters load."""
    moves = [move for step in steps for load in step.loads for move in load.moves]
    words = sum(move.runs * move.words for move in moves)
    return WORD_BYTES * words / machine.memory_bytes_per_cycle


def _chunk_by_chunk(clusters: Lockstep) -> Lockstep:
    """The same with as many steps for a long step as a cluster has chunks for it."""
    found: Lockstep = tuple([] for _ in clusters)
    for together in zip(*clusters, strict=True):
        chunks = [step.step.compute(step.bases) for step in together]
        count = max(1, *map(len, chunks))
        if max(sum(chunk.cycles for chunk in mine) for mine in chunks) < LONG:
            count = 1
        for steps, step, mine in zip(found, together, chunks, strict=True):
            steps += (_part(step, mine, part, count) for part in range(count))
    return found


def _part(step: PlacedStep, chunks: tuple[Chunk, ...], part: int, parts: int) -> PlacedStep:
    """Loads come before the first part, and the last part's results are stored."""
    begin, count = share(len(chunks), parts, part)
    mine = chunks[begin : begin + count]
    is_first, is_last = part == 0, part == parts - 1
    return replace(
        step, step=replace(step.step, compute=lambda bases: mine),
        loads=step.loads if is_first else (), in_place=step.in_place if is_first else (),
        stores=step.stores if is_last else (), during=[],
    )  # fmt: skip


def _append(found: Lockstep, more: Sequence[PlacedStep]) -> None:
    for steps, step in zip(found, more, strict=True):
        steps.append(step)


def _touched(steps: Sequence[PlacedStep]) -> Memory:
    found = Memory()
    for step in steps:
        found.add(touches(step))
    return found
