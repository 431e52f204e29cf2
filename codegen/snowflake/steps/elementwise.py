"""Sums, products, maxima, copies, activations and tables of tensors as compute steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.snowflake.plan.spread import FlatTiles
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.codegen.snowflake.steps.maps import Box, Map, moves
from tvm_npu.codegen.snowflake.steps.objects import (
    Bases,
    Chunk,
    Kind,
    Load,
    Move,
    Rooms,
    Specials,
    Step,
)
from tvm_npu.codegen.snowflake.steps.streams import StreamOp, stream_chunk
from tvm_npu.codegen.snowflake.steps.tables import PlacedTable
from tvm_npu.codegen.snowflake.steps.windows import cut, dealt
from tvm_npu.sim.snowflake.isa import MacMode, SnowflakeStream, Special

Range = tuple[int, int]
Operation = MacMode | Literal["move", "max"]
"""A stream of `mac`, `max`, or a move: results lie where the input came to."""


@dataclass(frozen=True)
class FlatLayer:
    """One operation on all words of the pixels ``pixels_of`` (begin, count); tensors are seen as
    one row of pixels. ``table`` is what a stream in mode table looks up."""

    layer: int
    tiles: FlatTiles
    cus: int
    mbuf_words: int
    sources: tuple[Map, ...]
    target: Map
    operation: Operation
    specials: Specials
    pixels_of: Range
    table: PlacedTable | None = None

    @property
    def _words(self) -> int:
        """Of one operand of one CU."""
        share = -(-self.tiles.tile_pixels // self.cus)
        return line(share * self.tiles.tile_planes)

    @property
    def rooms(self) -> Rooms:
        words = self._words * len(self.sources)
        return Rooms((0, words), (0,), ((0, 0),))

    def steps(self) -> list[Step]:
        return [
            self._step(pixels, planes)
            for planes in cut(0, self.target.planes, self.tiles.tile_planes)
            for pixels in cut(*self.pixels_of, self.tiles.tile_pixels)
        ]

    def _step(self, pixels: Range, planes: Range) -> Step:
        found: list[Move] = []
        for number, source in enumerate(self.sources):
            stream = SnowflakeStream.IN if number == 0 else SnowflakeStream.RESIDUAL
            found += self._moves(source, pixels, planes, number * self._words, stream)

        def compute(bases: Bases) -> tuple[Chunk, ...]:
            return tuple(self._chunks(pixels, planes, bases.maps))

        def stores(bases: Bases) -> tuple[Move, ...]:
            return tuple(
                self._moves(self.target, pixels, planes, bases.maps, SnowflakeStream.OUT)
            )

        words = self._words * len(self.sources)
        loads = [Load(Kind.MAPS, (self.layer, pixels[0], planes[0]), words, tuple(found))]
        if self.table is not None:
            move = self.table.load(0, (1 << self.cus) - 1)
            loads.append(Load(Kind.KERNELS, (self.layer,), self.table.words, (move,)))
        return Step(self.layer, tuple(loads), compute, stores)

    def _moves(
        self, tensor: Map, pixels: Range, planes: Range, place: int, stream: SnowflakeStream
    ) -> Iterator[Move]:
        for cu, (begin, count) in enumerate(dealt(pixels[1], self.cus)):
            box = Box((0, 1), (pixels[0] + begin, count), planes)
            yield from moves(tensor, box, 1 << cu, place, stream)

    def _chunks(self, pixels: Range, planes: Range, base: int) -> Iterator[Chunk]:
        if self.operation == "move":
            return
        # All CUs take as many words as the first: what the last ones have no pixels for is never
        # stored.
        share = -(-pixels[1] // self.cus)
        active = sum(1 << cu for cu, part in enumerate(dealt(pixels[1], self.cus)) if part[1])
        second = base + (self._words if len(self.sources) > 1 else 0)
        op = StreamOp(
            rows=1, columns=1, words=share * planes[1], a=base, b=second, out=base, a_row=0,
            b_row=0, out_row=0, a_column=0, b_column=0, out_column=0,
        )  # fmt: skip
        mode = None if self.operation == "max" else self.operation
        specials = {**self.specials, Special.CUS: active}
        if self.table is None:
            yield stream_chunk(op, mode, specials, active)
            return
        specials = {**specials, **self.table.specials}
        yield stream_chunk(op, mode, specials, active, self.table.read(0, active))
