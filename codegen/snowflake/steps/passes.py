"""Passes over the list of compute steps (the compiler's paper, section 6, algorithms 1 and 2):
group by load, remove redundant loads, double buffer. Each can be left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm_npu.codegen.snowflake.steps.objects import Bases, Kind, Load, Move, Rooms, Step


@dataclass(frozen=True)
class StepPasses:
    """Which passes run."""

    group: bool = True
    drop_redundant: bool = True
    double_buffer: bool = True


def grouped(steps: Sequence[Step], kind: Kind) -> list[Step]:
    """Steps whose loads of a kind bring the same, one after the other; in the order of the first
    of each."""
    order: dict[tuple[int, ...], int] = {}
    for step in steps:
        load = step.load(kind)
        if load is not None:
            order.setdefault(load.key, len(order))

    def place(step: Step) -> int:
        load = step.load(kind)
        return -1 if load is None else order[load.key]

    return sorted(steps, key=place)


@dataclass(frozen=True)
class PlacedLoad:
    """A load's moves with its place."""

    load: Load
    moves: tuple[Move, ...]

    @property
    def is_shared(self) -> bool:
        """It comes to all clusters at once."""
        return any(move.shared for move in self.moves)


@dataclass
class PlacedStep:
    """A step whose objects have places. ``loads`` come before it can begin, maps from step
    ``maps_from`` of the region on at the earliest (-1: from the layer's first)."""

    step: Step
    bases: Bases
    loads: tuple[PlacedLoad, ...]
    in_place: tuple[Move, ...]
    stores: tuple[Move, ...]
    during: list[tuple[int, Move]] = field(default_factory=list)
    """(layer, move) of loads of the step behind that come while this one runs."""
    maps_from: int = -1


class _Buffer:
    """Places of one kind of load and what lies in them."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = tuple(places)
        self.held: dict[int, tuple[int, ...]] = {}
        self.used: list[int] = []

    def find(self, key: tuple[int, ...]) -> int | None:
        return next((place for place, held in self.held.items() if held == key), None)

    def use(self, place: int) -> None:
        if place in self.used:
            self.used.remove(place)
        self.used.append(place)

    def take(self, key: tuple[int, ...]) -> int:
        """A place that nothing uses, else the one that was used longest ago."""
        free = [place for place in self.places if place not in self.used]
        place = free[0] if free else next(one for one in self.used if one in self.places)
        self.held[place] = key
        return place


class Placer:
    """Gives the objects of a region's steps their places, layer by layer."""

    def __init__(self, passes: StepPasses) -> None:
        self._passes = passes
        self._last: dict[Kind, tuple[int, int]] = {kind: (0, 0) for kind in Kind}
        """(first word, end) of what the last step used."""
        self._turn = -1

    def layer(self, steps: Sequence[Step], rooms: Rooms) -> list[PlacedStep]:
        """``rooms`` are the layer's."""
        single = not self._passes.double_buffer
        buffers = {}
        for kind, places in ((Kind.MAPS, rooms.maps), (Kind.KERNELS, rooms.kernels)):
            buffers[kind] = _Buffer(places[:1] if single else places)
            # What is used at the moment is taken last.
            words = max(
                (one.words for step in steps for one in step.loads if one.kind is kind), default=0
            )
            begin, end = self._last[kind]
            buffers[kind].used = [one for one in places if one < end and begin < one + words]
        found = []
        stored = True
        for step in steps:
            if stored:
                self._turn += 1
            target, out = rooms.out[0 if single else self._turn % len(rooms.out)]
            at: dict[Kind, int] = {}
            loads = []
            for load in step.loads:
                buffer = buffers[load.kind]
                place = buffer.find(load.key) if self._passes.drop_redundant else None
                if place is None:
                    place = buffer.take(load.key)
                    moves = tuple(move.at(place) for move in load.moves)
                    loads.append(PlacedLoad(load, moves))
                buffer.use(place)
                at[load.kind] = place
                self._last[load.kind] = place, place + load.words
            bases = Bases(at.get(Kind.MAPS, 0), at.get(Kind.KERNELS, 0), out, target)
            stores = step.stores(bases)
            stored = bool(stores)
            found.append(PlacedStep(step, bases, tuple(loads), step.in_place(bases), stores))
        return found

    def follow(self, other: Placer) -> None:
        """Goes on as ``other`` does: loads that two clusters share need the same places."""
        self._last = dict(other._last)
        self._turn = other._turn


def prefetched(clusters: Sequence[Sequence[PlacedStep]], passes: StepPasses) -> None:
    """Loads come while earlier steps run: from the step behind the last one that needs their place,
    in even shares. Of another layer only kernels come early, since maps are what that layer makes;
    beside a layer that has none (a pool, a sum: memory binds it) only those of the first step.
    ``clusters`` have as many steps each; what they share comes in the same steps of all."""
    if not passes.double_buffer:
        return
    last: list[LastUses] = [{} for _ in clusters]
    layers: dict[int, int] = {}
    with_kernels = {
        one.step.layer for steps in clusters for one in steps if one.step.load(Kind.KERNELS)
    }
    for number, steps in enumerate(zip(*clusters, strict=True)):
        begin = layers.setdefault(steps[0].step.layer, number)
        before = clusters[0][begin - 1].step.layer if begin else -1
        kernels_from = 0 if number == begin or before in with_kernels else begin
        firsts = [
            {
                one.load.kind: _first(one, step, uses, number, begin, kernels_from)
                for one in step.loads
            }
            for step, uses in zip(steps, last, strict=True)
        ]
        shared = {one.load.kind for one in steps[0].loads if one.is_shared}
        for kind in shared:
            together = max(found[kind] for found in firsts)
            for found in firsts:
                found[kind] = together
        for cluster, found, uses in zip(clusters, firsts, last, strict=True):
            _come_early(cluster, number, found, begin)
            for load in cluster[number].step.loads:
                uses[(load.kind, *_span(load, cluster[number].bases))] = number


MOST_AHEAD = 24
"""Steps over which a load is spread, at most."""

LastUses = dict[tuple[Kind, int, int], int]
"""The last step so far that uses a place: (kind, first word, end)."""


def _first(
    one: PlacedLoad, step: PlacedStep, last: LastUses, number: int, begin: int, kernels_from: int
) -> int:
    """From which step on a load of step ``number``, whose layer begins at ``begin``, can come."""
    earliest = kernels_from
    if one.load.kind is not Kind.KERNELS:
        earliest = begin if step.maps_from < 0 else step.maps_from
    return max(_free_from(one, step, last), earliest, number - MOST_AHEAD)


def _come_early(
    steps: Sequence[PlacedStep], number: int, firsts: Mapping[Kind, int], begin: int
) -> None:
    """Deals the loads of step ``number`` to those from which on they can come; residuals come with
    the step before, where results have another place there."""
    step = steps[number]
    layer = step.step.layer
    for one in step.loads:
        first = firsts[one.load.kind]
        _share(steps[first : min(number, max(first + 1, number - 1))], layer, one.moves)
    step.loads = tuple(one for one in step.loads if firsts[one.load.kind] >= number)
    if number and step.in_place and number > begin:
        before = steps[number - 1].bases
        if (before.out, before.target) != (step.bases.out, step.bases.target):
            steps[number - 1].during.extend((layer, one) for one in step.in_place)
            step.in_place = ()


def _span(load: Load, bases: Bases) -> tuple[int, int]:
    """The words of its buffer that a load takes: first, end."""
    begin = bases.maps if load.kind is Kind.MAPS else bases.kernels
    return begin, begin + max(1, load.words)


def _free_from(one: PlacedLoad, step: PlacedStep, last: LastUses) -> int:
    """The first step in which nothing needs the place any more."""
    first, end = _span(one.load, step.bases)
    used = [
        number
        for (kind, begin, until), number in last.items()
        if kind is one.load.kind and begin < end and first < until
    ]
    return max(used, default=-1) + 1


def _share(steps: Sequence[PlacedStep], layer: int, moves: Sequence[Move]) -> None:
    """Deals ``moves`` to steps, in order."""
    total, count = len(moves), len(steps)
    for number, step in enumerate(steps):
        begin, end = number * total // count, (number + 1) * total // count
        step.during.extend((layer, move) for move in moves[begin:end])
