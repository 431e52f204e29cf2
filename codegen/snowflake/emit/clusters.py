"""What the clusters of a device do together: steps in lockstep, loads that are read once for all,
and the barriers between a store and what another cluster does at the same place.

Clusters have as many steps each, so that a load or a barrier that one of them issues in a step has
its counterparts in the same step of the others: that makes the sequences of both alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.steps.objects import Access, Bases, Kind, Move, Step
from tvm_npu.codegen.snowflake.steps.passes import PlacedLoad, PlacedStep

Lockstep = tuple[list[PlacedStep], ...]
"""The steps of each cluster; all have the same number."""


def aligned(clusters: Sequence[list[PlacedStep]], layer: int) -> None:
    """Fills up with steps that do nothing."""
    most = max(len(steps) for steps in clusters)
    for steps in clusters:
        while len(steps) < most:
            idle = Step(layer, (), lambda bases: (), lambda bases: ())
            steps.append(PlacedStep(idle, Bases(), (), (), ()))


def share_loads(clusters: Lockstep) -> None:
    """Loads that are the same in a step of every cluster are marked: memory is read once."""
    if len(clusters) == 1:
        return
    for steps in zip(*clusters, strict=True):
        for kind in Kind:
            loads = [_of_kind(step, kind) for step in steps]
            first = loads[0]
            if first is None or not first.moves:
                continue
            if all(load is not None and load.moves == first.moves for load in loads[1:]):
                moves = tuple(replace(move, shared=True) for move in first.moves)
                for step in steps:
                    step.loads = tuple(
                        PlacedLoad(load.load, moves) if load.load.kind is kind else load
                        for load in step.loads
                    )


def share_constants(steps: Sequence[PlacedStep]) -> None:
    """Where every cluster does these steps with an image of its own, constants are the same for
    all."""
    for step in steps:
        step.loads = tuple(
            PlacedLoad(
                load.load,
                tuple(
                    replace(move, shared=True) if move.segment is Segment.CONSTANTS else move
                    for move in load.moves
                ),
            )
            for load in step.loads
        )


def _of_kind(step: PlacedStep, kind: Kind) -> PlacedLoad | None:
    return next((load for load in step.loads if load.load.kind is kind), None)


@dataclass
class Touched:
    """Bytes of memory that are touched, and where they begin and end."""

    accesses: list[Access] = field(default_factory=list)
    begin: int = 1 << 62
    end: int = 0

    def add(self, others: Sequence[Access]) -> None:
        self.accesses += others
        self.begin = min([self.begin, *(one.begin for one in others)])
        self.end = max([self.end, *(one.end for one in others)])

    def meet(self, other: Touched) -> bool:
        if self.begin >= other.end or other.begin >= self.end:
            return False
        near = [one for one in self.accesses if one.begin < other.end and other.begin < one.end]
        return any(one.meets(access) for one in near for access in other.accesses)


@dataclass
class Memory:
    """Loads and stores, of a cluster since the last barrier or of a step."""

    loads: Touched = field(default_factory=Touched)
    stores: Touched = field(default_factory=Touched)

    def add(self, other: Memory) -> None:
        self.loads.add(other.loads.accesses)
        self.stores.add(other.stores.accesses)

    def stores_to(self, other: Memory) -> bool:
        """It stores to what the other touches."""
        return self.stores.meet(other.loads) or self.stores.meet(other.stores)

    def conflicts(self, other: Memory) -> bool:
        """What one stores the other touches."""
        return self.stores_to(other) or other.stores.meet(self.loads)


def barriers(clusters: Lockstep) -> frozenset[int]:
    """The steps in front of which all clusters wait for each other: what one of them touches there
    another one has stored since the last barrier, or the other way round."""
    if len(clusters) == 1:
        return frozenset()
    found = set()
    since = [Memory() for _ in clusters]
    for number, steps in enumerate(zip(*clusters, strict=True)):
        now = [touches(step) for step in steps]
        if _any_conflict(since, now):
            found.add(number)
            since = [Memory() for _ in clusters]
        if _any_conflict(now, now):
            raise EmitError(
                f"layer {steps[0].step.layer}: clusters touch in one step what others store in it"
            )
        for memory, touched in zip(since, now, strict=True):
            memory.add(touched)
    return frozenset(found)


def _any_conflict(before: Sequence[Memory], now: Sequence[Memory]) -> bool:
    return any(
        mine.conflicts(other)
        for cluster, mine in enumerate(now)
        for number, other in enumerate(before)
        if number != cluster
    )


def touches(step: PlacedStep) -> Memory:
    """Constants are never stored."""
    found = Memory()
    found.loads.add(list(_accesses(_loads(step))))
    found.stores.add(list(_accesses(step.stores)))
    return found


def _accesses(moves: Iterator[Move] | Sequence[Move]) -> Iterator[Access]:
    return (move.in_memory for move in moves if move.segment is not Segment.CONSTANTS)


def _loads(step: PlacedStep) -> Iterator[Move]:
    for load in step.loads:
        yield from load.moves
    yield from step.in_place
    for _, move in step.during:
        yield move
