"""Passes over the list of compute steps (the compiler's paper, section 6, algorithms 1 and 2):
group by load, remove redundant loads, double buffer. Each can be left out."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
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
    """A step whose objects have places. ``loads`` come before it can begin."""

    step: Step
    bases: Bases
    loads: tuple[PlacedLoad, ...]
    in_place: tuple[Move, ...]
    stores: tuple[Move, ...]
    during: list[tuple[int, Move]] = field(default_factory=list)
    """(layer, move) of loads of the step behind that come while this one runs."""


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
        self._last: dict[Kind, list[int]] = {Kind.MAPS: [], Kind.KERNELS: []}
        self._turn = -1

    def layer(self, steps: Sequence[Step], rooms: Rooms) -> list[PlacedStep]:
        """``rooms`` are the layer's."""
        single = not self._passes.double_buffer
        buffers = {}
        for kind, places in ((Kind.MAPS, rooms.maps), (Kind.KERNELS, rooms.kernels)):
            buffers[kind] = _Buffer(places[:1] if single else places)
            # What is used at the moment is taken last.
            buffers[kind].used = [one for one in self._last[kind] if one in places]
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
            bases = Bases(at.get(Kind.MAPS, 0), at.get(Kind.KERNELS, 0), out, target)
            stores = step.stores(bases)
            stored = bool(stores)
            found.append(PlacedStep(step, bases, tuple(loads), step.in_place(bases), stores))
        for kind, buffer in buffers.items():
            self._last[kind] = buffer.used[-1:]
        return found


def prefetched(clusters: Sequence[Sequence[PlacedStep]], passes: StepPasses) -> None:
    """Loads that can come while the step before runs: of another layer only kernels, since maps
    are what that layer makes. ``clusters`` have as many steps each; what they share comes early in
    all of them, or in none."""
    if not passes.double_buffer:
        return
    rows = list(zip(*clusters, strict=True))
    for befores, steps in zip(rows, rows[1:], strict=False):
        early = [
            {load.load.kind for load in step.loads if _comes_early(load, step, before)}
            for before, step in zip(befores, steps, strict=True)
        ]
        everywhere = set.intersection(*early)
        for before, step, kinds in zip(befores, steps, early, strict=True):
            shared = {load.load.kind for load in step.loads if load.is_shared}
            _move_forward(before, step, kinds - (shared - everywhere))


def _comes_early(load: PlacedLoad, step: PlacedStep, before: PlacedStep) -> bool:
    same = before.step.layer == step.step.layer
    return (same or load.load.kind is Kind.KERNELS) and not _in_use(load, before)


def _move_forward(before: PlacedStep, step: PlacedStep, kinds: AbstractSet[Kind]) -> None:
    """Loads of the kinds to the step before, residuals too where results have another place."""
    layer = step.step.layer
    for load in step.loads:
        if load.load.kind in kinds:
            before.during.extend((layer, move) for move in load.moves)
    step.loads = tuple(load for load in step.loads if load.load.kind not in kinds)
    mine, other = step.bases, before.bases
    if before.step.layer == layer and (mine.out, mine.target) != (other.out, other.target):
        before.during.extend((layer, move) for move in step.in_place)
        step.in_place = ()


def _in_use(load: PlacedLoad, before: PlacedStep) -> bool:
    """The step before reads what lies in the place."""
    bases = before.bases
    place = bases.maps if load.load.kind is Kind.MAPS else bases.kernels
    mine = min((move.place for move in load.moves), default=0)
    other = before.step.load(load.load.kind)
    return other is not None and place <= mine < place + max(1, other.words)
