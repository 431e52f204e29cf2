"""Tiles of layers that move elements: resizes, slices, transposes, concatenations along any axis.

A tile goes from memory to an MBuf and from there to memory. Elements that the target has several
times come once and are stored as often, or come as often and are stored in longer runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.ops.move import FixedMove
from tvm_npu.codegen.plan.problem import Prediction, share
from tvm_npu.codegen.snowflake.plan.pixels import PixelPiece, pixel_pieces
from tvm_npu.codegen.snowflake.plan.transfers import Stride, Strided, strided
from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

MOST_STORED = 1 << 12
"""Times that a tile is stored."""
TRANSFER_CYCLES = 13
"""Of the core, for a transfer."""
TILE_CYCLES = 110
"""Around a tile: its last words come, its results leave."""

Range = tuple[int, int]


@dataclass(frozen=True)
class MoveShape:
    """``pieces`` of tensors with so many planes."""

    pieces: tuple[PixelPiece, ...]
    source_planes: tuple[int, ...]
    target_planes: int


@dataclass(frozen=True)
class PieceTiles:
    """``tile`` has that many indices of every axis of the piece. Axes in ``stored_again`` show the
    same elements at all indices, of which a tile has one."""

    tile: tuple[int, ...]
    stored_again: tuple[int, ...] = ()

    def here(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Words of the MBuf from one index to the next of a tile with ``counts`` indices."""
        found: list[int] = []
        words = 1
        for number in reversed(range(len(counts))):
            is_again = number in self.stored_again
            found.append(0 if is_again else words)
            words *= 1 if is_again else counts[number]
        return tuple(reversed(found))


@dataclass(frozen=True)
class MoveTiles:
    """Of every piece."""

    pieces: tuple[PieceTiles, ...]
    prediction: Prediction


def move_shape(layer: FixedMove) -> MoveShape:
    *sources, target = (chw(shape) for shape in layer.shapes)
    pieces = (
        piece
        for one in layer.pieces
        for piece in pixel_pieces(one, prod(sources[one.source][1:]), prod(target[1:]))
    )
    return MoveShape(tuple(pieces), tuple(shape[0] for shape in sources), target[0])


@lru_cache(maxsize=256)
def move_tiles(shape: MoveShape, machine: SnowflakeMachine) -> MoveTiles:
    """Tiles of half an MBuf."""
    room, rate = machine.mbuf_words // 2, machine.memory_bytes_per_cycle
    found = []
    total, loaded, stored = 0.0, 0.0, 0.0
    for piece in shape.pieces:
        costs = [(_cost(shape, piece, tiles), tiles) for tiles in _ways(piece, room)]
        cost, tiles = min(costs, key=lambda one: one[0].cycles(machine))
        found.append(tiles)
        total += cost.cycles(machine)
        loaded += MEMORY_UNIT_BYTES * cost.loaded
        stored += MEMORY_UNIT_BYTES * cost.stored
    words = sum(prod(axis.extent for axis in piece.axes) for piece in shape.pieces)
    prediction = Prediction(
        total, 0.0, loaded / rate, stored / rate, round(loaded), 0, WORD_BYTES * words,
        bound="dram",
    )  # fmt: skip
    return MoveTiles(tuple(found), prediction)


def clusters_parts(piece: PixelPiece, pitch: int, clusters: int) -> list[Range]:
    """(begin, count) of the first axis that each cluster has; the first cluster has everything
    where parts would not lie one behind the other, ``pitch`` words a pixel."""
    if not piece.axes:
        return [(0, 1)]
    first, *others = piece.axes
    reach = sum((axis.extent - 1) * axis.target.words(pitch) for axis in others)
    parts = min(clusters, first.extent) if reach < first.target.words(pitch) else 1
    return [share(first.extent, parts, part) for part in range(parts)]


def loads_of(piece: PixelPiece, tiles: PieceTiles, counts: Sequence[int], pitch: int) -> Strided:
    """The loads of a tile with ``counts`` indices."""
    here = tiles.here(counts)
    return strided(
        Stride(count, axis.source.words(pitch), words)
        for number, (axis, count, words) in enumerate(zip(piece.axes, counts, here, strict=True))
        if number not in tiles.stored_again
    )


def stores_of(piece: PixelPiece, tiles: PieceTiles, counts: Sequence[int], pitch: int) -> Strided:
    here = tiles.here(counts)
    return strided(
        Stride(count, axis.target.words(pitch), words)
        for axis, count, words in zip(piece.axes, counts, here, strict=True)
    )


def _ways(piece: PixelPiece, room: int) -> Iterator[PieceTiles]:
    """With the innermost repeats in the MBuf, from none to all of them."""
    repeats = [number for number, axis in enumerate(piece.axes) if axis.is_repeat]
    for count in range(len(repeats) + 1):
        yield _largest(piece, tuple(repeats[:count]), room)


def _largest(piece: PixelPiece, stored_again: tuple[int, ...], room: int) -> PieceTiles:
    """The tile that fits; it is cut along one axis, and has single indices of those outside."""
    tile = []
    for number in reversed(range(len(piece.axes))):
        extent = piece.axes[number].extent
        most = MOST_STORED if number in stored_again else room
        parts = -(-extent // max(1, most))
        tile.append(-(-extent // parts))
        if number not in stored_again:
            room = room // tile[-1] if tile[-1] == extent else 1
    return PieceTiles(tuple(reversed(tile)), stored_again)


@dataclass(frozen=True)
class _Cost:
    """Of a piece: units of memory, transfers, tiles."""

    loaded: float
    stored: float
    transfers: int
    tiles: int

    def cycles(self, machine: SnowflakeMachine) -> float:
        clusters = machine.clusters.count
        moved = MEMORY_UNIT_BYTES * (self.loaded + self.stored) / machine.memory_bytes_per_cycle
        issued = TRANSFER_CYCLES * self.transfers / clusters
        return max(moved, issued) + TILE_CYCLES * self.tiles / clusters


def _cost(shape: MoveShape, piece: PixelPiece, tiles: PieceTiles) -> _Cost:
    """Of whole tiles, as many as the elements fill."""
    load = loads_of(piece, tiles, tiles.tile, shape.source_planes[piece.source])
    store = stores_of(piece, tiles, tiles.tile, shape.target_planes)
    count = prod(
        axis.extent / size for axis, size in zip(piece.axes, tiles.tile, strict=True)
    )
    return _Cost(
        count * load.units, count * store.units,
        round(count * (load.transfers + store.transfers)), max(1, round(count)),
    )  # fmt: skip
