"""Moves of elements as compute steps: transfers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tvm_npu.codegen.snowflake.plan.move import PieceTiles, loads_of, stores_of
from tvm_npu.codegen.snowflake.plan.pixels import At, PixelPiece
from tvm_npu.codegen.snowflake.plan.transfers import Strided
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Bases, Kind, Load, Move, Place, Rooms, Step
from tvm_npu.codegen.snowflake.steps.pads import FIRST_CU
from tvm_npu.codegen.snowflake.steps.windows import cut
from tvm_npu.sim.snowflake.isa import WORD_BYTES, SnowflakeStream

Range = tuple[int, int]


@dataclass(frozen=True)
class MoveLayer:
    """A piece for one cluster, which has indices ``part_of`` of the first axis; ``number`` is the
    piece's in its layer."""

    layer: int
    number: int
    piece: PixelPiece
    tiles: PieceTiles
    mbuf_words: int
    source: Map
    target: Map
    part_of: Range

    @property
    def rooms(self) -> Rooms:
        return Rooms((0, self.mbuf_words // 2), (0,), ((0, 0),))

    def steps(self) -> list[Step]:
        extents = [(0, axis.extent) for axis in self.piece.axes]
        extents[:1] = [self.part_of] if extents else []
        parts = (cut(*own, size) for own, size in zip(extents, self.tiles.tile, strict=True))
        return [self._step(ranges) for ranges in product(*parts)]

    def _step(self, ranges: Sequence[Range]) -> Step:
        begins, counts = [begin for begin, _ in ranges], [count for _, count in ranges]
        piece, tiles = self.piece, self.tiles
        loads = loads_of(piece, tiles, counts, self.source.pitch)
        stored = stores_of(piece, tiles, counts, self.target.pitch)
        read = _at(piece.source_at, [axis.source for axis in piece.axes], begins)
        written = _at(piece.target_at, [axis.target for axis in piece.axes], begins)

        def stores(bases: Bases) -> tuple[Move, ...]:
            return tuple(_moves(self.target, written, stored, bases.maps, SnowflakeStream.OUT))

        found = tuple(_moves(self.source, read, loads, 0, SnowflakeStream.IN))
        key = (self.layer, self.number, *begins)
        load = Load(Kind.MAPS, key, self.mbuf_words // 2, found)
        return Step(self.layer, (load,), lambda bases: (), stores)


def _at(begin: At, steps: Sequence[At], indices: Sequence[int]) -> At:
    ways = list(zip(steps, indices, strict=True))
    return At(
        begin.pixels + sum(step.pixels * index for step, index in ways),
        begin.planes + sum(step.planes * index for step, index in ways),
    )


def _moves(
    tensor: Map, at: At, shape: Strided, place: int, stream: SnowflakeStream
) -> Iterator[Move]:
    runs = shape.runs
    for indices in product(*(range(one.extent) for one in shape.loops)):
        ways = list(zip(shape.loops, indices, strict=True))
        words = at.words(tensor.pitch) + sum(one.there * index for one, index in ways)
        yield Move(
            Place.MBUF, FIRST_CU, tensor.segment, tensor.offset + WORD_BYTES * words,
            place + sum(one.here * index for one, index in ways), shape.words, stream,
            runs=runs.extent, memory_step=WORD_BYTES * runs.there, buffer_step=runs.here,
        )  # fmt: skip
