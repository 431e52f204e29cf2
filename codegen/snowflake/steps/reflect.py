"""Reflection padding: transfers alone; rows and columns that lie in the other direction come one by
one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.snowflake.plan.spread import PadTiles
from tvm_npu.codegen.snowflake.steps.maps import Box, Map, moves
from tvm_npu.codegen.snowflake.steps.objects import Bases, Kind, Load, Move, Rooms, Step
from tvm_npu.codegen.snowflake.steps.pads import FIRST_CU
from tvm_npu.codegen.snowflake.steps.windows import cut
from tvm_npu.sim.snowflake.isa import SnowflakeStream

Range = tuple[int, int]


@dataclass(frozen=True)
class ReflectLayer:
    """Rows ``rows_of`` of a map that is widened by its own mirror image; ``before`` are the rows
    and columns in front of the input."""

    layer: int
    tiles: PadTiles
    mbuf_words: int
    source: Map
    target: Map
    before: tuple[int, int]
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
        def stores(bases: Bases) -> tuple[Move, ...]:
            box = Box(rows, columns, (0, self.target.planes))
            return tuple(moves(self.target, box, FIRST_CU, bases.maps, SnowflakeStream.OUT))

        key = (self.layer, rows[0], columns[0])
        load = Load(Kind.MAPS, key, self.mbuf_words // 2, tuple(self._inputs(rows, columns)))
        return Step(self.layer, (load,), lambda bases: (), stores)

    def _inputs(self, rows: Range, columns: Range) -> Iterator[Move]:
        planes = self.source.planes
        width = columns[1] * planes
        across = list(mirrored(columns, self.before[1], self.source.columns))
        for row, row_count, down in mirrored(rows, self.before[0], self.source.rows):
            for column, count, right in across:
                box = Box((row, row_count), (column, count), (0, planes))
                yield from moves(
                    self.source, box, FIRST_CU, down * width + right * planes, SnowflakeStream.IN,
                    row_words=width, pixel_words=planes,
                )  # fmt: skip


def mirrored(results: Range, before: int, size: int) -> Iterator[tuple[int, int, int]]:
    """(first input, how many in a row, which result of the range the first is) of the inputs that
    results (begin, count) show, ``before`` results in front of the first input."""
    begin = results[0] - before
    end = begin + results[1]
    for at in range(begin, min(0, end)):
        yield -at, 1, at - begin
    first, last = max(begin, 0), min(end, size)
    if first < last:
        yield first, last - first, first - begin
    for at in range(max(begin, size), end):
        yield 2 * (size - 1) - at, 1, at - begin
