"""Steps of a layer between those of the one before, so that the memory serves the one while the
MACs work for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm_npu.codegen.plan.problem import share
from tvm_npu.codegen.snowflake.emit.clusters import Lockstep, Memory, touches
from tvm_npu.codegen.snowflake.steps.objects import Chunk
from tvm_npu.codegen.snowflake.steps.passes import PlacedStep

BEHIND = 2
"""Steps from the one that makes something to the one in which it can be loaded without a wait: its
stores are issued with the next one."""


def merged(before: Lockstep, others: Lockstep, begin: int) -> Lockstep | None:
    """The steps of ``others`` between those of ``before``, the first of which is step ``begin`` of
    the region, and between their chunks: evenly, but behind what makes what they load. None where
    a step of ``others`` stores to what one of ``before`` touches."""
    before = _chunk_by_chunk(before)
    made = [_touched(steps) for steps in zip(*before, strict=True)]
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
        go_on(min(count, max(ready + 1, (number + 1) * count // (total + 1))))
        for one in steps:
            one.maps_from = begin + (places[ready] if ready < count else places[-1] + 1)
        _append(found, steps)
    go_on(count)
    return found


def _chunk_by_chunk(clusters: Lockstep) -> Lockstep:
    """The same with as many steps for a step as a cluster has chunks for it."""
    found: Lockstep = tuple([] for _ in clusters)
    for together in zip(*clusters, strict=True):
        chunks = [step.step.compute(step.bases) for step in together]
        count = max(1, *map(len, chunks))
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
