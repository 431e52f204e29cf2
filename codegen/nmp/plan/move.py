"""Plans for layers that move elements (`codegen.ops.move`): tiles of pieces, dealt to all cores.

A tile goes from DRAM to MB0, through the MAC unit to MB2, and to DRAM. Where the target keeps the
order of the source's runs that is all (*direct*). Else the ring of the TLE takes it from MB2 to
MB0 once more and puts its elements into the target's order (*turned*): single elements cost bytes
there, in DRAM each costs a burst.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC, Traffic, chip_transfer, linear_transfer
from tvm_npu.codegen.ops.move import Axis, FixedMove, Piece, joined
from tvm_npu.sim.nmp.machine import NmpMachine

WIDEST_GAP = 8
"""Elements from one that is needed to the next, up to which those between are loaded, too."""
STEP_CYCLES = 60
TRANSFER_CYCLES = 16
"""Scalar instructions of a tile, and of each of its transfers: about."""


@dataclass(frozen=True)
class MoveProblem:
    pieces: tuple[Piece, ...]
    element_bytes: int


@dataclass(frozen=True)
class PiecePlan:
    """``tile`` has that many indices of every axis of the piece; the last tile along an axis begins
    earlier where it would reach over its end. Tiles along axis k are dealt to ``slices[k]``
    cores."""

    tile: tuple[int, ...]
    slices: tuple[int, ...]
    turned: bool
    cycles: float = 0.0


@dataclass(frozen=True)
class MovePlan:
    pieces: tuple[PiecePlan, ...]
    cycles: float = 0.0


@dataclass(frozen=True)
class Strided:
    """Transfers of a tile between a place where its elements lie one after the other and one where
    they do not: ``loops`` (number, elements further there) of transfers of ``segments`` runs of
    ``run`` elements, ``stride`` elements apart."""

    loops: tuple[tuple[int, int], ...]
    segments: int
    stride: int
    run: int

    @property
    def transfers(self) -> int:
        return prod(count for count, _ in self.loops)

    @property
    def elements(self) -> int:
        """Of one transfer."""
        return self.segments * self.run


def strided(axes: Iterable[tuple[int, int]]) -> Strided:
    """``axes``: (indices, elements from one to the next), outer ones first."""
    merged = joined(axes)
    run = merged.pop()[0] if merged and merged[-1][1] == 1 else 1
    segments, stride = merged.pop() if merged and merged[-1][1] >= 0 else (1, 0)
    return Strided(tuple(merged), segments, stride, run)


@dataclass(frozen=True)
class MoveTile:
    """How a tile of ``extents`` of a piece is moved. ``load``: from the source to MB0; ``turn``:
    from MB2, where it lies as it came, to MB0, in the target's order (None: it is); ``store``: from
    MB2 to the target; ``again`` (number, elements further in the target): how often the same
    elements are stored."""

    load: Strided
    turn: Strided | None
    store: Strided
    again: tuple[tuple[int, int], ...]

    @property
    def loaded(self) -> int:
        return self.load.transfers * self.load.elements

    @property
    def stored(self) -> int:
        return self.store.transfers * self.store.elements


def move_tile(axes: Sequence[Axis], extents: Sequence[int], turned: bool) -> MoveTile:
    """``axes`` are those of a normalized piece."""
    tile = [(axis, extent) for axis, extent in zip(axes, extents, strict=True) if extent > 1]
    last = axes[-1] if axes else None
    again = [(axis, extent) for axis, extent in tile if axis.source == 0 and axis is not last]
    kept = [(axis, extent) for axis, extent in tile if (axis, extent) not in again]
    store = strided((extent, axis.target) for axis, extent in kept)
    repeats = tuple((extent, axis.target) for axis, extent in again)
    if not turned:
        load = strided((extent, axis.source) for axis, extent in kept)
        return MoveTile(load, None, store, repeats)
    brought = sorted((one for one in kept if one[0].source), key=lambda one: -one[0].source)
    places = [(extent, axis.source) for axis, extent in brought]
    gap = 1
    if places and 1 < places[-1][1] <= WIDEST_GAP:  # what lies between comes along
        extent, gap = places.pop()
        places.append(((extent - 1) * gap + 1, 1))
    load = strided(places)
    on_chip: dict[Axis, int] = {}
    behind = 1
    for (axis, _), (extent, _) in zip(reversed(brought), reversed(places), strict=True):
        on_chip[axis] = behind * gap
        behind, gap = behind * extent, 1
    turn = strided((extent, on_chip.get(axis, 0)) for axis, extent in kept)
    return MoveTile(load, turn, store, repeats)


def move_problem(layer: FixedMove, element_bytes: int) -> MoveProblem:
    return MoveProblem(layer.pieces, element_bytes)


def plan_move(problem: MoveProblem, machine: NmpMachine) -> MovePlan:
    """The plan of least predicted time for every piece; pieces run one after the other."""
    plans = tuple(_plan_piece(one, problem.element_bytes, machine) for one in problem.pieces)
    return MovePlan(plans, sum(plan.cycles for plan in plans))


def _plan_piece(piece: Piece, size: int, machine: NmpMachine) -> PiecePlan:
    room = min(machine.memories.mb0_bytes, machine.memories.mb2_bytes) // size
    ways = (False, True) if machine.ring is not None else (False,)
    plans = (
        _with_time(piece, extents, turned, size, machine)
        for extents in _tiles(piece.axes, room)
        for turned in ways
        if not turned or move_tile(piece.axes, extents, True).loaded <= room
    )
    return min(plans, key=lambda plan: (plan.cycles, plan.turned, plan.tile))


def _tiles(axes: Sequence[Axis], room: int) -> Iterator[tuple[int, ...]]:
    """Tiles that fit: whole innermost axes of the target and of the source, and parts of the next
    ones. Axes that go backwards are walked index by index."""
    by_source = sorted(range(len(axes)), key=lambda k: abs(axes[k].source))
    by_target = sorted(range(len(axes)), key=lambda k: axes[k].target)
    seen = set()
    for inner, outer in product(_inner(axes, by_target, room), _inner(axes, by_source, room)):
        tile = tuple(
            1 if axis.source < 0 else max(extents)
            for axis, extents in zip(axes, zip(inner, outer, strict=True), strict=True)
        )
        if tile not in seen and prod(tile) <= room:
            seen.add(tile)
            yield tile


def _inner(axes: Sequence[Axis], order: Sequence[int], room: int) -> Iterator[list[int]]:
    """Tiles of the first axes of ``order``, only of the last of them a part."""
    tile = [1] * len(axes)
    yield list(tile)
    for k in order:
        extent, parts = axes[k].extent, 1
        while parts < extent:
            tile[k] = -(-extent // parts)
            if prod(tile) <= room:
                yield list(tile)
            parts *= 2
        tile[k] = extent


def _with_time(
    piece: Piece, extents: tuple[int, ...], turned: bool, size: int, machine: NmpMachine
) -> PiecePlan:
    counts = [-(-axis.extent // part) for axis, part in zip(piece.axes, extents, strict=True)]
    slices = _deal(counts, machine.core_count)
    steps = prod(-(-count // parts) for count, parts in zip(counts, slices, strict=True))
    tile = move_tile(piece.axes, extents, turned)
    traffic, transfers = _traffic(tile, size, machine)
    beats = -(-tile.stored // machine.macs_per_cycle(size))
    if tile.turn is not None:
        beats += -(-tile.loaded // machine.macs_per_cycle(size))
    compute = beats / machine.mac.efficiency + 2 * machine.mac.setup_cycles
    compute += STEP_CYCLES + TRANSFER_CYCLES * transfers
    sharing = -(-prod(slices) // machine.cores.tles)
    engine = (traffic * (steps * sharing)).engine_cycles(machine)
    alone = (traffic * steps).engine_cycles(machine) + steps * compute
    everything = (traffic * prod(counts)).dram_cycles(machine)
    return PiecePlan(extents, slices, turned, max(engine + compute, alone, everything))


def _traffic(tile: MoveTile, size: int, machine: NmpMachine) -> tuple[Traffic, int]:
    """Of one tile; (traffic, number of transfers)."""
    burst_bytes = machine.dram.burst_bytes

    def moved(shape: Strided) -> Traffic:
        segments, run = shape.segments, shape.run
        if shape.stride == run:
            segments, run = 1, segments * run
        return linear_transfer(segments, run * size, burst_bytes) * shape.transfers

    stores = prod(count for count, _ in tile.again)
    total = moved(tile.load) + moved(tile.store) * stores
    transfers = tile.load.transfers + tile.store.transfers * stores
    if tile.turn is not None:
        turns = _forwards(tile.turn)
        each = tile.stored // turns
        total += chip_transfer(each, size) * turns if each else NO_TRAFFIC
        transfers += turns
    return total, transfers


def _forwards(turn: Strided) -> int:
    """A forward takes one loop more than a transfer to DRAM: it moves boxes."""
    return prod(count for count, _ in turn.loops[:-1])


def _deal(counts: Sequence[int], cores: int) -> tuple[int, ...]:
    """How many cores share the tiles along each axis: along two at most, so that the busiest core
    has the fewest; ties: fewer cores."""
    best = [1] * len(counts)
    if not counts:
        return ()
    order = sorted(range(len(counts)), key=lambda k: -counts[k])
    first, second = order[0], order[1] if len(order) > 1 else None
    most = None
    for parts in range(1, min(counts[first], cores) + 1):
        others = 1 if second is None else min(counts[second], cores // parts)
        busiest = -(-counts[first] // parts)
        if second is not None:
            busiest *= -(-counts[second] // others)
        if most is None or (busiest, parts * others) < most:
            most = (busiest, parts * others)
            best = [1] * len(counts)
            best[first] = parts
            if second is not None:
                best[second] = others
    return tuple(best)
