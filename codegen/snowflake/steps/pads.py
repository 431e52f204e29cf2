"""Paddings, crops, strided slices and reorderings: transfers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.plan.spread import OrderTiles, PadTiles
from tvm_npu.codegen.snowflake.steps.maps import Box, Map, moves
from tvm_npu.codegen.snowflake.steps.objects import Bases, Kind, Load, Move, Place, Rooms, Step
from tvm_npu.codegen.snowflake.steps.windows import cut
from tvm_npu.sim.snowflake.isa import WORD_BYTES, SnowflakeStream

Range = tuple[int, int]
FIRST_CU = 1
"""Everything goes through the MBuf of the first CU."""


@dataclass(frozen=True)
class PadLayer:
    """Rows ``rows_of`` of a padded map. ``before`` (planes, rows, columns) as in `FixedPad`;
    ``fill_at`` is where ``fill_words`` words of the fill value lie in CONSTANTS."""

    layer: int
    tiles: PadTiles
    mbuf_words: int
    source: Map
    target: Map
    before: tuple[int, int, int]
    stride: tuple[int, int]
    fill_at: int
    fill_words: int
    rows_of: Range

    @property
    def rooms(self) -> Rooms:
        half = self.mbuf_words // 2
        return Rooms((0, half), (0,), ((0, 0),))

    def steps(self) -> list[Step]:
        return [
            self._step(rows, columns)
            for rows in cut(*self.rows_of, self.tiles.tile_r)
            for columns in cut(0, self.target.columns, self.tiles.tile_c)
        ]

    def _step(self, rows: Range, columns: Range) -> Step:
        found = (*self._fill(rows, columns), *self._inside(rows, columns))

        def stores(bases: Bases) -> tuple[Move, ...]:
            box = Box(rows, columns, (0, self.target.planes))
            return tuple(moves(self.target, box, FIRST_CU, bases.maps, SnowflakeStream.OUT))

        key = (self.layer, rows[0], columns[0])
        load = Load(Kind.MAPS, key, self.mbuf_words // 2, found)
        return Step(self.layer, (load,), lambda bases: (), stores)

    def _inside_of(self, axis: int, results: Range, size: int) -> tuple[int, int, int]:
        """(first result that is an input, how many, the first's input) along rows (0), columns."""
        before, stride = self.before[axis + 1], self.stride[axis]
        inside = [at for at in range(results[0], sum(results)) if 0 <= at * stride - before < size]
        if not inside:
            return results[0], 0, 0
        return inside[0], len(inside), inside[0] * stride - before

    def _fill(self, rows: Range, columns: Range) -> Iterator[Move]:
        """The fill value everywhere, unless the inputs cover the tile."""
        target = self.target
        down = self._inside_of(0, rows, self.source.rows)[1]
        across = self._inside_of(1, columns, self.source.columns)[1]
        covered = self.before[0] <= 0 and target.planes - self.before[0] <= self.source.planes
        if (down, across) == (rows[1], columns[1]) and covered:
            return
        words = rows[1] * columns[1] * target.planes
        size = min(self.fill_words, words)
        whole, rest = divmod(words, size)
        yield Move(
            Place.MBUF, FIRST_CU, Segment.CONSTANTS, self.fill_at, 0, size, SnowflakeStream.OTHER,
            runs=whole, buffer_step=size if whole > 1 else 0,
        )  # fmt: skip
        if rest:
            yield Move(
                Place.MBUF, FIRST_CU, Segment.CONSTANTS, self.fill_at, whole * size, rest,
                SnowflakeStream.OTHER,
            )  # fmt: skip

    def _inside(self, rows: Range, columns: Range) -> Iterator[Move]:
        source, target = self.source, self.target
        row, row_count, from_row = self._inside_of(0, rows, source.rows)
        column, count, from_column = self._inside_of(1, columns, source.columns)
        plane, first = max(0, self.before[0]), max(0, -self.before[0])
        planes = min(source.planes - first, target.planes - plane)
        if not row_count or not count or planes < 1:
            return
        pixel = WORD_BYTES * source.pitch
        for r in range(row_count):
            to = ((row - rows[0] + r) * columns[1] + column - columns[0]) * target.planes + plane
            at = source.byte(from_row + r * self.stride[0], from_column, first)
            step = self.stride[1] * pixel
            if planes == source.pitch == target.planes and self.stride[1] == 1:
                yield Move(
                    Place.MBUF, FIRST_CU, source.segment, at, to, count * planes,
                    SnowflakeStream.IN,
                )  # fmt: skip
            else:
                several = count > 1
                yield Move(
                    Place.MBUF, FIRST_CU, source.segment, at, to, planes, SnowflakeStream.IN,
                    runs=count, memory_step=step if several else 0,
                    buffer_step=target.planes if several else 0,
                )  # fmt: skip


@dataclass(frozen=True)
class OrderLayer:
    """Elements in the order of ``source``'s shape to that of ``target``: in a tile they lie one
    after the other, channels outside."""

    layer: int
    tiles: OrderTiles
    mbuf_words: int
    source: Map
    target: Map
    words_of: Range
    """(begin, count) of the elements, counted with channels outside."""

    @property
    def rooms(self) -> Rooms:
        half = self.mbuf_words // 2
        return Rooms((0, half), (0,), ((0, 0),))

    def steps(self) -> list[Step]:
        return [self._step(part) for part in cut(*self.words_of, self.tiles.tile_words)]

    def _step(self, part: Range) -> Step:
        found = tuple(_ordered(self.source, part, 0, SnowflakeStream.IN))

        def stores(bases: Bases) -> tuple[Move, ...]:
            return tuple(_ordered(self.target, part, bases.maps, SnowflakeStream.OUT))

        load = Load(Kind.MAPS, (self.layer, part[0]), self.tiles.tile_words, found)
        return Step(self.layer, (load,), lambda bases: (), stores)


def _ordered(tensor: Map, part: Range, place: int, stream: SnowflakeStream) -> Iterator[Move]:
    """Elements ``part`` (begin, count) of a tensor, counted with channels outside, from and to
    words in a row from ``place`` on."""
    pixels = tensor.rows * tensor.columns
    step = WORD_BYTES * tensor.pitch
    if pixels == 1:
        at = tensor.offset + WORD_BYTES * part[0]
        yield Move(Place.MBUF, FIRST_CU, tensor.segment, at, place, part[1], stream)
        return
    begin, end = part[0], sum(part)
    while begin < end:
        plane, pixel = divmod(begin, pixels)
        count = min(pixels - pixel, end - begin)
        at = tensor.offset + pixel * step + WORD_BYTES * plane
        several = count > 1
        yield Move(
            Place.MBUF, FIRST_CU, tensor.segment, at, place + begin - part[0], 1, stream,
            runs=count, memory_step=step if several else 0, buffer_step=1 if several else 0,
        )  # fmt: skip
        begin += count
