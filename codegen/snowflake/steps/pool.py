"""Pools as compute steps: maxima row by row, then column by column; averages as sums by ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.plan.pools import (
    GROUP,
    PoolShape,
    PoolTiles,
    cu_parts,
    pixel_words,
    pool_room,
)
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
from tvm_npu.codegen.snowflake.steps.windows import Axis, Run, cut, runs
from tvm_npu.sim.snowflake.isa import LANES, MacMode, SnowflakeStream, Special

Range = tuple[int, int]
Range3 = tuple[int, int, int]
Part = tuple[Range, Range]
"""Rows and planes of a CU."""
PARTS = 4
"""Of the rows of an average's tile."""


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
        places = (self.tiles.at + place * words for place in range(self.tiles.places))
        return Rooms(tuple(places), (0,), ((0, 0),))

    def steps(self) -> list[Step]:
        found = []
        for planes in cut(0, self.shape.planes, self.tiles.tile_planes):
            for columns in cut(0, self.shape.columns.out, self.tiles.tile_c):
                for rows in cut(*self.rows_of, self.tiles.tile_r):
                    found.append(self._step(rows, columns, planes))
        return found

    def _parts(self, rows: Range, planes: Range) -> list[Part]:
        return list(cu_parts(rows, planes, self.tiles, self.cus))

    def _share(self, planes: Range) -> int:
        """Words of a pixel in the MBufs."""
        return pixel_words(planes[1], self.tiles)

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
        """The input under the windows."""
        share = self._share(planes)
        width = self.shape.columns.span(columns[1]) * share
        right, _, _ = inside(self.shape.columns, columns)
        for cu, (own, part) in enumerate(self._parts(rows, planes)):
            if own[1] and part[1]:
                down, _, _ = inside(self.shape.rows, own)
                box = Box(self.shape.rows.inputs(*own), self.shape.columns.inputs(*columns), part)
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
        are on their way. What lies in the border is a copy of the rows and columns at the edge:
        every window that touches the border has them."""
        shape, share = self.shape, self._share(planes)
        room = pool_room(shape, self.tiles, self.cus)
        parts = self._parts(rows, planes)
        count = max(own[1] for own, _ in parts)
        active = sum(1 << cu for cu, (own, part) in enumerate(parts) if own[1] and part[1])
        wide, results = shape.columns.span(columns[1]), columns[1]
        between, out = base + room.maps, base + room.maps + room.between
        row_words, out_row = wide * share, results * share
        specials: Specials = {**self.requantize.specials, Special.CUS: active}
        yield from self._borders(parts, columns, share, base, specials)
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

    def _borders(
        self, parts: Sequence[Part], columns: Range, share: int, base: int, specials: Specials
    ) -> Iterator[Chunk]:
        """Columns of the border and then, in the CUs that have some, rows."""
        wide = self.shape.columns.span(columns[1])
        row_words = wide * share
        active = specials[Special.CUS]
        tall = self.shape.rows.span(max(own[1] for own, _ in parts))
        for column, edge in border(*inside(self.shape.columns, columns)):
            yield _copies(base, edge * share, column * share, tall, row_words, share, specials)
        rows: dict[tuple[int, int], int] = {}
        for cu, (own, part) in enumerate(parts):
            if own[1] and part[1]:
                for one in border(*inside(self.shape.rows, own)):
                    rows[one] = rows.get(one, 0) | 1 << cu
        for (row, edge), cus in rows.items():
            own_specials = {**specials, Special.CUS: cus & active}
            yield _copies(base, edge * row_words, row * row_words, 1, 0, row_words, own_specials)

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
        groups_of = [(0, whole, GROUP)] * (whole > 0) + [(whole, 1, rest)] * (rest > 0)
        for rows_here in row_parts(down):
            for first, groups, outputs in groups_of:
                nest = SumNest(
                    mode=MacMode.LANE, groups=groups, rows=rows_here, columns=across,
                    maps=base + first * GROUP, row_step=shape.rows.stride * row_words,
                    column_step=shape.columns.stride * share, group_step=GROUP,
                    tap_row=row_words, tap_column=share, cells=1, kernels=0, kernel_words=0,
                    kernel_at=0, weight_row=0, weight_column=0, out=out + first * GROUP,
                    out_step=share, out_row=columns[1] * share, out_group=GROUP, has_bias=False,
                    has_residual=False,
                )  # fmt: skip
                specials: Specials = {
                    **self.requantize.specials, Special.OUTPUTS: outputs,
                    Special.OUT_STEP: share, Special.CUS: active, Special.LANE_STEP: share,
                }  # fmt: skip
                reads = (
                    Access(Place.MBUF, base, base + room.maps, active),
                    Access(Place.WBUF, 0, LANES * shape.columns.kernel, active),
                )
                writes = (Access(Place.MBUF, out, out + room.out, active),)
                yield Chunk(
                    nest.write, nest.vectors, reads, writes, specials, CHANGED, 3,
                    nest.cycles(outputs),
                )  # fmt: skip


def row_parts(whole: Sequence[Run]) -> Iterator[tuple[Run, ...]]:
    """A tile's rows in at most `PARTS` parts, so that transfers find a place between the chunks."""
    total = sum(run.count for run in whole)
    for begin, count in cut(0, total, -(-total // PARTS)):
        inside = (
            replace(run, begin=max(run.begin, begin),
                    count=min(run.begin + run.count, begin + count) - max(run.begin, begin))
            for run in whole
        )  # fmt: skip
        yield tuple(run for run in inside if run.count > 0)


def _runs(axis: Axis, parts: list[Range], counted: Range) -> tuple[Run, ...]:
    """Runs with the window's cells that an average counts."""

    def cells(at: int) -> int:
        begin = axis.first(at)
        low, high = max(begin, -counted[0]), min(begin + axis.kernel, axis.size + counted[1])
        return high - low

    return runs(axis, parts, cells)


def inside(axis: Axis, results: Range) -> Range3:
    """(first, how many, of how many) of the inputs under results that are no border."""
    first, count = axis.inputs(*results)
    return first - axis.first(results[0]), count, axis.span(results[1])


def border(first: int, count: int, total: int) -> Iterator[tuple[int, int]]:
    """(which, the nearest inside) of what lies in front of ``first`` and behind the ``count``."""
    for at in range(first):
        yield at, first
    for at in range(first + count, total):
        yield at, first + count - 1


def _copies(
    base: int, source: int, target: int, count: int, step: int, words: int, specials: Specials
) -> Chunk:
    """``count`` copies of ``words`` words from word ``source`` of a tile to ``target``, from one
    to the next ``step``."""
    op = StreamOp(
        rows=1, columns=count, words=words, a=base + source, b=base + source, out=base + target,
        a_row=0, b_row=0, out_row=0, a_column=step, b_column=step, out_column=step,
    )  # fmt: skip
    return stream_chunk(op, None, specials, specials[Special.CUS])


def _two(count: int) -> Iterator[Range]:
    half = -(-count // 2)
    yield 0, half
    if count > half:
        yield half, count - half
