"""Tensors in memory as tiles of pixels, and the moves that bring tiles to MBufs and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.steps.objects import Move, Place
from tvm_npu.sim.snowflake.isa import WORD_BYTES, SnowflakeStream


@dataclass(frozen=True)
class Map:
    """``rows`` x ``columns`` pixels of ``planes`` words from byte ``offset`` of ``segment``, from
    one pixel to the next ``pitch`` words, from one row to the next ``row_pitch`` (0: rows follow
    each other)."""

    segment: Segment
    offset: int
    rows: int
    columns: int
    planes: int
    pitch: int
    row_pitch: int = 0

    @property
    def row_words(self) -> int:
        """From one row to the next."""
        return self.row_pitch or self.columns * self.pitch

    def byte(self, row: int, column: int, plane: int = 0) -> int:
        words = row * self.row_words + column * self.pitch + plane
        return self.offset + WORD_BYTES * words

    def seen_as(self, rows: int, columns: int, planes: int) -> Map:
        """The same pixels counted otherwise. Planes may be put together where nothing lies between
        the pixels."""
        assert rows * columns * planes == self.rows * self.columns * self.planes
        assert not self.row_pitch
        if planes == self.planes:
            return Map(self.segment, self.offset, rows, columns, planes, self.pitch)
        assert self.pitch == self.planes
        return Map(self.segment, self.offset, rows, columns, planes, planes)

    def some_rows(self, begin: int, count: int) -> Map:
        return replace(self, offset=self.byte(begin, 0), rows=count)

    def some_planes(self, begin: int, count: int) -> Map:
        return replace(self, offset=self.byte(0, 0, begin), planes=count)


@dataclass(frozen=True)
class Box:
    """Rows, columns and planes as (begin, count)."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    planes: tuple[int, int]

    @property
    def words(self) -> int:
        return self.rows[1] * self.columns[1] * self.planes[1]

    @property
    def is_empty(self) -> bool:
        return self.words == 0


def moves(
    source: Map, box: Box, cus: int, place: int, stream: SnowflakeStream,
    row_words: int | None = None, pixel_words: int | None = None,
) -> Iterator[Move]:  # fmt: skip
    """A box of ``source`` from and to word ``place`` of MBufs, where a pixel takes ``pixel_words``
    and a row ``row_words`` (left out: no more than they have)."""
    if box.is_empty:
        return
    (row, rows), (column, columns), (plane, planes) = box.rows, box.columns, box.planes
    pixel = planes if pixel_words is None else pixel_words
    wide = columns * pixel if row_words is None else row_words
    in_pixel = WORD_BYTES * source.pitch
    in_row = WORD_BYTES * source.row_words
    contiguous = source.pitch == planes == pixel
    joined = source.row_words == source.columns * source.pitch
    whole_rows = joined and columns == source.columns and wide == columns * pixel

    def move(at: int, to: int, words: int, runs: int = 1, step: int = 0, buffer: int = 0) -> Move:
        steps = (step, buffer) if runs > 1 else (0, 0)
        return Move(
            Place.MBUF, cus, source.segment, at, to, words, stream, runs=runs,
            memory_step=steps[0], buffer_step=steps[1],
        )  # fmt: skip

    begin = source.byte(row, column, plane)
    if contiguous and whole_rows:
        yield move(begin, place, rows * columns * planes)
    elif contiguous:
        yield move(begin, place, columns * planes, rows, in_row, wide)
    elif whole_rows:
        yield move(begin, place, planes, rows * columns, in_pixel, pixel)
    else:
        for r in range(rows):
            at = begin + r * in_row
            yield move(at, place + r * wide, planes, columns, in_pixel, pixel)
