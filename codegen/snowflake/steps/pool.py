"""Pools as compute steps: maxima row by row, then column by column; averages as sums by ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.plan.spread import GROUP, PoolShape, PoolTiles, pool_room
from tvm_npu.codegen.snowflake.steps.maps import Box, Map, moves
from tvm_npu.codegen.snowflake.steps.objects import (
    Access,
    Bases,
    Chunk,
    Kind,
    Load,
    Move,
    Place,
    Rooms,
    Specials,
    Step,
)
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.codegen.snowflake.steps.streams import StreamOp, stream_chunk
from tvm_npu.codegen.snowflake.steps.sums import CHANGED, SumNest
from tvm_npu.codegen.snowflake.steps.windows import Axis, Run, cut, dealt, runs
from tvm_npu.sim.snowflake.isa import LANES, MacMode, SnowflakeStream, Special

Range = tuple[int, int]
Part = tuple[Range, Range]
"""Rows and planes of a CU."""


@dataclass(frozen=True)
class PoolLayer:
    """A pool for one cluster: ``rows_of`` are its rows of results. ``ones_at`` is where a line of
    ones for every column of a window lies in CONSTANTS; ``counted`` is the padding in front and
    behind that an average counts, for rows and columns."""

    layer: int
    shape: PoolShape
    tiles: PoolTiles
    cus: int
    source: Map
    target: Map
    requantize: Requantize
    rows_of: Range
    ones_at: int = 0
    counted: tuple[Range, Range] = ((0, 0), (0, 0))

    @property
    def rooms(self) -> Rooms:
        words = pool_room(self.shape, self.tiles, self.cus).words
        places = tuple(range(0, self.tiles.places * words, words))
        return Rooms(places, (0,), ((0, 0),))

    def steps(self) -> list[Step]:
        found = []
        for planes in cut(0, self.shape.planes, self.tiles.tile_planes):
            for columns in cut(0, self.shape.columns.out, self.tiles.tile_c):
                for rows in cut(*self.rows_of, self.tiles.tile_r):
                    found.append(self._step(rows, columns, planes))
        return found

    def _parts(self, rows: Range, planes: Range) -> list[Part]:
        if self.tiles.spreads == "rows":
            return [((rows[0] + at, count), planes) for at, count in dealt(rows[1], self.cus)]
        return [(rows, (planes[0] + at, count)) for at, count in dealt(planes[1], self.cus)]

    def _share(self, planes: Range) -> int:
        """Words of a pixel in the MBufs."""
        return planes[1] if self.tiles.spreads == "rows" else -(-planes[1] // self.cus)

    def _step(self, rows: Range, columns: Range, planes: Range) -> Step:
        def compute(bases: Bases) -> tuple[Chunk, ...]:
            make = self._maxima if self.shape.is_max else self._averages
            return tuple(make(rows, columns, planes, bases.maps))

        def stores(bases: Bases) -> tuple[Move, ...]:
            return tuple(self._results(rows, columns, planes, bases.maps))

        key = (self.layer, rows[0], columns[0], planes[0])
        room = pool_room(self.shape, self.tiles, self.cus)
        loads = [Load(Kind.MAPS, key, room.words, tuple(self._maps(rows, columns, planes)))]
        if not self.shape.is_max:
            words = LANES * self.shape.columns.kernel
            ones = Move(
                Place.WBUF, (1 << self.cus) - 1, Segment.CONSTANTS, self.ones_at, 0, words,
                SnowflakeStream.WEIGHT,
            )  # fmt: skip
            loads.append(Load(Kind.KERNELS, (self.layer,), words, (ones,)))
        return Step(self.layer, tuple(loads), compute, stores)

    # --- transfers -----------------------------------------------------------------------------

    def _maps(self, rows: Range, columns: Range, planes: Range) -> Iterator[Move]:
        """The input under the windows. In the border of a maximum the rows and columns at the edge
        are repeated: every window that touches the border has them."""
        share = self._share(planes)
        width = self.shape.columns.span(columns[1]) * share
        repeats = self.shape.is_max
        for cu, (own, part) in enumerate(self._parts(rows, planes)):
            if not own[1] or not part[1]:
                continue
            for row, row_count, down in _segments(self.shape.rows, own, repeats):
                for column, count, right in _segments(self.shape.columns, columns, repeats):
                    box = Box((row, row_count), (column, count), part)
                    yield from moves(
                        self.source, box, 1 << cu, down * width + right * share,
                        SnowflakeStream.IN, row_words=width, pixel_words=share,
                    )  # fmt: skip

    def _results(
        self, rows: Range, columns: Range, planes: Range, base: int
    ) -> Iterator[Move]:
        room, share = pool_room(self.shape, self.tiles, self.cus), self._share(planes)
        at = base + room.maps + room.between
        for cu, (own, part) in enumerate(self._parts(rows, planes)):
            if own[1] and part[1]:
                yield from moves(
                    self.target, Box(own, columns, part), 1 << cu, at, SnowflakeStream.OUT,
                    row_words=columns[1] * share, pixel_words=share,
                )  # fmt: skip

    # --- maxima --------------------------------------------------------------------------------

    def _maxima(
        self, rows: Range, columns: Range, planes: Range, base: int
    ) -> Iterator[Chunk]:
        """First the rows of all windows, then their columns. Each stage reads what the one before
        made, so that a tile's rows go in two halves, one of which runs while the other's results
        are on their way."""
        shape, share = self.shape, self._share(planes)
        room = pool_room(shape, self.tiles, self.cus)
        parts = self._parts(rows, planes)
        count = max(own[1] for own, _ in parts)
        active = sum(1 << cu for cu, (own, part) in enumerate(parts) if own[1] and part[1])
        wide, results = shape.columns.span(columns[1]), columns[1]
        between, out = base + room.maps, base + room.maps + room.between
        row_words, out_row = wide * share, results * share
        specials: Specials = {**self.requantize.specials, Special.CUS: active}
        taps, step = shape.rows.kernel, shape.rows.stride
        stages: list[tuple[int, int, int, int, bool]] = []
        # (first operand, second operand, result, distance of rows, goes along columns)
        stages.append((base, base + min(1, taps - 1) * row_words, between, step * row_words, False))
        stages += [
            (between, base + tap * row_words, between, step * row_words, False)
            for tap in range(2, taps)
        ]
        across = shape.columns.kernel
        stages.append((between, between + min(1, across - 1) * share, out, row_words, True))
        stages += [
            (out, between + tap * share, out, row_words, True) for tap in range(2, across)
        ]
        for first, second, into, moves_by, along in stages:
            in_place = first == into
            for begin, rows_here in _two(count):
                own_step = (out_row if along else row_words) if in_place else moves_by
                a, b = first + begin * own_step, second + begin * moves_by
                into_step = out_row if along else row_words
                op = StreamOp(
                    rows=rows_here, a=a, b=b, out=into + begin * into_step,
                    a_row=own_step, b_row=moves_by, out_row=into_step,
                    words=row_words, columns=1, a_column=0, b_column=0, out_column=0,
                )  # fmt: skip
                if along:
                    op = self._along(op, results, share, in_place)
                yield stream_chunk(op, None, specials, active)

    def _along(self, op: StreamOp, results: int, share: int, in_place: bool) -> StreamOp:
        stride = self.shape.columns.stride
        if stride == 1:
            return op.with_words(results * share)
        a_column = share if in_place else stride * share
        return op.with_columns(results, share, a_column, stride * share, share)

    # --- averages ------------------------------------------------------------------------------

    def _averages(
        self, rows: Range, columns: Range, planes: Range, base: int
    ) -> Iterator[Chunk]:
        shape, share = self.shape, self._share(planes)
        room = pool_room(shape, self.tiles, self.cus)
        parts = self._parts(rows, planes)
        down = _runs(shape.rows, [own if part[1] else (own[0], 0) for own, part in parts],
                     self.counted[0])  # fmt: skip
        across = _runs(shape.columns, [columns] * self.cus, self.counted[1])
        row_words = shape.columns.span(columns[1]) * share
        out = base + room.maps + room.between
        active = (1 << self.cus) - 1
        whole, rest = divmod(share, GROUP)
        for first, groups, outputs in ((0, whole, GROUP), (whole, 1, rest)):
            if not groups or not outputs:
                continue
            nest = SumNest(
                mode=MacMode.LANE, groups=groups, rows=down, columns=across,
                maps=base + first * GROUP, row_step=shape.rows.stride * row_words,
                column_step=shape.columns.stride * share, group_step=GROUP, tap_row=row_words,
                tap_column=share, cells=1, kernels=0, kernel_words=0, kernel_at=0, weight_row=0,
                weight_column=0, out=out + first * GROUP, out_step=share,
                out_row=columns[1] * share, out_group=GROUP, has_bias=False, has_residual=False,
            )  # fmt: skip
            specials: Specials = {
                **self.requantize.specials, Special.OUTPUTS: outputs, Special.OUT_STEP: share,
                Special.CUS: active, Special.LANE_STEP: share,
            }  # fmt: skip
            reads = (
                Access(Place.MBUF, base, base + room.maps, active),
                Access(Place.WBUF, 0, LANES * shape.columns.kernel, active),
            )
            writes = (Access(Place.MBUF, out, out + room.out, active),)
            yield Chunk(nest.write, nest.vectors, reads, writes, specials, CHANGED, 3)


def _runs(axis: Axis, parts: list[Range], counted: Range) -> tuple[Run, ...]:
    """Runs with the window's cells that an average counts."""

    def cells(at: int) -> int:
        begin = axis.first(at)
        low, high = max(begin, -counted[0]), min(begin + axis.kernel, axis.size + counted[1])
        return high - low

    return runs(axis, parts, cells)


def _segments(axis: Axis, results: Range, repeats: bool) -> Iterator[tuple[int, int, int]]:
    """(first input, how many, where in the tile) of what lies under results; the tile begins at
    their first window, border included."""
    begin, span = axis.first(results[0]), axis.span(results[1])
    first = max(begin, 0)
    end = min(begin + span, axis.size)
    if repeats:
        for at in range(begin, 0):
            yield 0, 1, at - begin
    if end > first:
        yield first, end - first, first - begin
    if repeats:
        for at in range(max(axis.size, begin), begin + span):
            yield axis.size - 1, 1, at - begin


def _two(count: int) -> Iterator[Range]:
    half = -(-count // 2)
    yield 0, half
    if count > half:
        yield half, count - half
