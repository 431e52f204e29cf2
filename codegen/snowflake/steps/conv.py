"""A convolution or fully connected layer as compute steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.plan.tiling import Geometry
from tvm_npu.codegen.snowflake.steps.behind import NOTHING, Maxima
from tvm_npu.codegen.snowflake.steps.chunks import (
    LANE_CHUNKS,
    LANE_CHUNKS_OF_MANY,
    group_parts,
    lane_parts,
    result_parts,
)
from tvm_npu.codegen.snowflake.steps.kernels import Pieces, used_vmacs
from tvm_npu.codegen.snowflake.steps.maps import Box, Map, moves
from tvm_npu.codegen.snowflake.steps.objects import (
    Access,
    Bases,
    Chunk,
    Kind,
    Load,
    Move,
    Place,
    Specials,
    Step,
)
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.codegen.snowflake.steps.sums import CHANGED, SumNest
from tvm_npu.codegen.snowflake.steps.windows import Axis, Run, runs
from tvm_npu.sim.snowflake.isa import LANES, MacMode, SnowflakeStream, Special

MODES = {"coop": MacMode.COOP, "indp": MacMode.INDP, "lane": MacMode.LANE}
Range = tuple[int, int]


@dataclass(frozen=True)
class Results:
    """Where the results of the filters from number ``first`` on lie, as many as ``target`` has
    planes."""

    first: int
    target: Map


@dataclass(frozen=True)
class ConvLayer:
    """A layer, or one group of it, for one cluster: where its tensors and arranged weights lie."""

    layer: int
    geometry: Geometry
    source: Map
    targets: tuple[Results, ...]
    residual: Map | None
    weights: Pieces
    weights_at: int
    """Bytes from the begin of CONSTANTS."""
    requantize: Requantize
    group: int = 0
    maps_group: int | None = None
    """Layers with one number have the same maps (None: that is ``group``)."""
    has_bias: bool = True
    tiles: Range = (1, 1)
    """Tiles of kernels and of maps that the cluster with the most has: where this one has none, its
    step is idle."""
    behind: Maxima = NOTHING

    # --- steps ---------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Every tile of maps with every tile of kernels, kernels outside; each step loads all that
        it needs (the compiler's paper, algorithm 1)."""
        shape = self.geometry
        return [
            self._step(kernels, maps, depth)
            for kernels in range(max(self.tiles[0], len(shape.filter_tiles)))
            for maps in range(max(self.tiles[1], len(shape.map_tiles)))
            for depth in range(shape.depth_parts)
        ]

    def _idle(self, kernels: int, maps: int, depth: int) -> Step:
        """What other clusters compute, this one has nothing for: it loads what all share."""
        shape = self.geometry
        has_kernels = kernels < len(shape.filter_tiles)
        has_maps = maps < len(shape.map_tiles) and (has_kernels or not shape.is_lane)
        key = (self.layer, self.group, kernels, depth)
        loads = (
            self._maps(maps, kernels) if has_maps
            else Load(Kind.MAPS, self._maps_key(maps, kernels), 0, ()),
            self._kernels(kernels, depth) if has_kernels else Load(Kind.KERNELS, key, 0, ()),
        )  # fmt: skip
        return Step(self.layer, loads, lambda bases: (), lambda bases: ())

    def _step(self, kernels: int, maps: int, depth: int) -> Step:
        shape = self.geometry
        if kernels >= len(shape.filter_tiles) or maps >= len(shape.map_tiles):
            return self._idle(kernels, maps, depth)
        filters, (rows, columns) = shape.filter_tiles[kernels], shape.map_tiles[maps]
        last = depth == shape.depth_parts - 1

        def compute(bases: Bases) -> tuple[Chunk, ...]:
            return (
                *self._chunks(filters, rows, columns, depth, bases),
                *self._maxima(filters, rows, columns, bases),
            )

        def stores(bases: Bases) -> tuple[Move, ...]:
            if not last:
                return ()
            return tuple(
                move
                for one in self.targets
                for move in self._results(
                    one, SnowflakeStream.OUT, filters, rows, columns, bases, self.behind
                )
            )

        def residual(bases: Bases) -> tuple[Move, ...]:
            if self.residual is None or depth:
                return ()
            return tuple(self._results(Results(0, self.residual), SnowflakeStream.RESIDUAL,
                                       filters, rows, columns, bases))  # fmt: skip

        loads = (self._maps(maps, kernels), self._kernels(kernels, depth))
        return Step(self.layer, loads, compute, stores, residual)

    # --- loads and stores ----------------------------------------------------------------------

    def _maps_key(self, maps: int, kernels: int) -> tuple[int, ...]:
        group = self.group if self.maps_group is None else self.maps_group
        key = (self.layer, group, maps)
        return (*key, kernels) if self.geometry.is_lane else key

    def _maps(self, maps: int, kernels: int) -> Load:
        shape = self.geometry
        rows, columns = shape.map_tiles[maps]
        planes = (0, shape.shape.planes)
        if shape.is_lane:
            planes = shape.filter_tiles[kernels]
        found: list[Move] = []
        width = shape.row_pixels(columns) * planes[1]
        steps, begin = shape.tap_steps(rows, columns), shape.tile_begin(rows, columns)
        for cu, (own_rows, own_columns) in enumerate(shape.parts(rows, columns)):
            if not own_rows[1] or not own_columns[1]:
                continue
            cus = (1 << shape.cus) - 1 if shape.plan.mode == "coop" else 1 << cu
            for row, column in product(
                shape.shape.rows.pieces(*own_rows, steps[0]),
                shape.shape.columns.pieces(*own_columns, steps[1]),
            ):
                box = Box((row.first, row.count), (column.first, column.count), planes)
                place = (row.at - begin[0]) * width + (column.at - begin[1]) * planes[1]
                found += moves(self.source, box, cus, place, SnowflakeStream.IN, row_words=width)
        key = self._maps_key(maps, kernels)
        return Load(Kind.MAPS, key, shape.maps_words, tuple(found))

    def _kernels(self, kernels: int, depth: int) -> Load:
        shape = self.geometry
        filters = shape.filter_tiles[kernels][1]
        pieces = self.weights[kernels, depth]
        if shape.groups_in(filters) == 1:
            pieces = pieces[: used_vmacs(shape, filters)]
        found = tuple(
            Move(
                Place.WBUF, piece.cus, Segment.CONSTANTS, self.weights_at + piece.offset, 0,
                piece.words, SnowflakeStream.WEIGHT, piece.vmac,
            )
            for piece in pieces
        )  # fmt: skip
        key = (self.layer, self.group, kernels, depth)
        return Load(Kind.KERNELS, key, shape.kernels_words, found)

    def _results(
        self, results: Results, stream: SnowflakeStream, filters: Range, rows: Range,
        columns: Range, bases: Bases, behind: Maxima = NOTHING,
    ) -> Iterator[Move]:  # fmt: skip
        """What the tile has of some results (or residuals) in the MBufs."""
        shape, tensor = self.geometry, results.target
        filters = behind.planes(filters)
        begin = max(filters[0], results.first)
        end = min(sum(filters), results.first + tensor.planes)
        if begin >= end:
            return
        planes = begin - results.first, end - begin
        for cu, (own_rows, own_columns) in enumerate(shape.parts(rows, columns)):
            at = 1 << (bases.target if shape.plan.mode == "coop" else cu)
            box = Box(behind.pixels(own_rows), behind.pixels(own_columns), planes)
            row_words = behind.pixels((0, self._out_columns(columns)))[1] * filters[1]
            yield from moves(
                tensor, box, at, bases.out + begin - filters[0], stream, row_words=row_words,
                pixel_words=filters[1],
            )  # fmt: skip

    def _out_columns(self, columns: Range) -> int:
        shape = self.geometry
        return shape.share(columns[1]) if shape.spreads_columns else columns[1]

    # --- compute -------------------------------------------------------------------------------

    def _chunks(
        self, filters: Range, rows: Range, columns: Range, depth: int, bases: Bases
    ) -> Iterator[Chunk]:
        shape = self.geometry
        together = shape.together
        whole, rest = divmod(filters[1], together)
        down, across = self._runs(rows, columns)
        nest = self._nest(filters[1], rows, columns, depth, bases, down, across)
        if shape.is_lane:
            groups = [together] * whole + ([rest] if rest else [])
            parts = LANE_CHUNKS if filters[1] == shape.shape.planes else LANE_CHUNKS_OF_MANY
            for group, lanes in enumerate(groups):
                for part in lane_parts(down, across, group, len(groups), parts):
                    yield self._chunk(nest, (group, 1), lanes, *part, bases)
            return
        for first, count in group_parts(whole) if whole else ():
            for part in result_parts(down, across, first, whole):
                yield self._chunk(nest, (first, count), together, *part, bases)
        if rest:
            for part in result_parts(down, across, 0, 1):
                yield self._chunk(nest, (whole, 1), rest, *part, bases)

    def _maxima(
        self, filters: Range, rows: Range, columns: Range, bases: Bases
    ) -> Iterator[Chunk]:
        parts = self.geometry.parts(rows, columns)
        if self.geometry.plan.mode == "coop":
            cus = 1 << bases.target
        else:
            cus = sum(1 << cu for cu, (down, across) in enumerate(parts) if down[1] and across[1])
        tall = max(down[1] for down, _ in parts)
        yield from self.behind.chunks(
            bases.out, tall, self._out_columns(columns), filters[1], cus
        )

    def _runs(self, rows: Range, columns: Range) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
        shape = self.geometry
        parts = shape.parts(rows, columns)
        axes = (shape.shape.rows, shape.shape.columns)
        if shape.splits_depth:
            # The whole window is one run of words, of which a part is one tap.
            axes = (Axis(1, 1, 1), Axis(1, 1, 1))
        return (
            runs(axes[0], [part[0] for part in parts]), runs(axes[1], [part[1] for part in parts])
        )

    def _nest(
        self, filters: int, rows: Range, columns: Range, depth: int, bases: Bases,
        down: tuple[Run, ...], across: tuple[Run, ...],
    ) -> SumNest:  # fmt: skip
        shape, of = self.geometry, self.geometry.shape
        planes = filters if shape.is_lane else of.planes
        row_words = shape.row_pixels(columns) * planes
        row, column = shape.tile_begin(rows, columns)
        tap_rows, tap_columns = shape.tap_steps(rows, columns)
        maps = bases.maps - row * row_words - column * planes
        lane, coop = shape.is_lane, shape.plan.mode == "coop"
        lines = 1 if coop else LANES
        cells = 1 if lane else planes
        kernel_at = shape.kernel_at if depth == 0 else 0
        if shape.depth_parts > 1:
            # A part of the depth is one trace of its own, from where it begins in the maps.
            begin = depth * shape.depth_words // lines
            count = min(shape.depth_words // lines, of.taps * planes - begin)
            maps += begin
            cells = count
        return SumNest(
            mode=MODES[shape.plan.mode],
            groups=1,
            rows=down,
            columns=across,
            maps=maps,
            row_step=of.rows.stride * row_words,
            column_step=of.columns.stride * planes,
            group_step=shape.together if lane else 0,
            tap_row=tap_rows * row_words,
            tap_column=cells if shape.depth_parts > 1 else tap_columns * planes,
            cells=cells,
            kernels=bases.kernels,
            kernel_words=shape.kernel_words,
            kernel_at=kernel_at,
            weight_row=of.columns.kernel * cells * lines,
            weight_column=cells * lines,
            out=bases.out,
            out_step=filters,
            out_row=self._out_columns(columns) * filters,
            out_group=shape.together,
            has_bias=self.has_bias,
            has_residual=self.residual is not None,
            ends=depth == shape.depth_parts - 1,
            opens=depth == 0,
        )

    def _chunk(
        self, nest: SumNest, groups: Range, outputs: int, rows: tuple[Run, ...],
        columns: tuple[Run, ...], bases: Bases,
    ) -> Chunk:  # fmt: skip
        """Some of the groups of filters, with these results of ``nest``."""
        shape, first = self.geometry, groups[0]
        nest = replace(
            nest,
            groups=groups[1],
            rows=rows,
            columns=columns,
            maps=nest.maps + first * nest.group_step,
            kernels=nest.kernels + first * nest.kernel_words,
            out=nest.out + first * nest.out_group,
        )
        coop = shape.plan.mode == "coop"
        every = (1 << shape.cus) - 1
        target = 1 << bases.target if coop else every
        specials: Specials = {
            **self.requantize.specials,
            Special.OUTPUTS: outputs,
            Special.OUT_STEP: nest.out_step,
            Special.TARGET: target if coop else 1,
            Special.CUS: every,
        }
        if shape.is_lane:
            specials = {
                **specials, Special.LANE_STEP: nest.tap_column,
            }  # fmt: skip
        width = min(nest.out_step, nest.groups * outputs)
        begin, end = _out_span(nest)
        out = Access(
            Place.MBUF, nest.out + begin, nest.out + end - nest.out_step + width, target,
            pitch=nest.out_step, width=width,
        )  # fmt: skip
        maps = self._maps_read(nest, bases, every)
        kernels = Access(
            Place.WBUF, nest.kernels, nest.kernels + self._kernels_read(nest), every
        )
        reads = (maps, kernels, *((out,) if nest.has_residual else ()))
        changes = CHANGED if nest.ends else CHANGED - {Special.OUT}
        return Chunk(
            nest.write, nest.vectors, reads, (out,) if nest.ends else (), specials, changes, 3,
            nest.cycles(outputs),
        )

    def _kernels_read(self, nest: SumNest) -> int:
        if self.geometry.depth_parts > 1:
            return self.geometry.kernels_words
        return nest.groups * nest.kernel_words

    def _maps_read(self, nest: SumNest, bases: Bases, every: int) -> Access:
        """The rows of the tile under the nest's rows."""
        size = self.geometry.maps_words
        if self.geometry.depth_parts > 1 or len(nest.rows) == 0:
            return Access(Place.MBUF, bases.maps, bases.maps + size, every)
        low = min(self._first_word(nest, run, run.begin) for run in nest.rows)
        high = max(self._end_word(nest, run, run.begin + run.count - 1) for run in nest.rows)
        begin, end = max(bases.maps, low), min(bases.maps + size, high)
        return Access(Place.MBUF, begin, max(end, begin), every)

    def _first_word(self, nest: SumNest, run: Run, row: int) -> int:
        tap = min(taps[0] for taps in run.taps if taps is not None)
        column = min(
            one.begin * nest.column_step + taps[0] * nest.tap_column
            for one in nest.columns
            for taps in one.taps
            if taps is not None
        )
        return nest.maps + row * nest.row_step + tap * nest.tap_row + min(0, column)

    def _end_word(self, nest: SumNest, run: Run, row: int) -> int:
        tap = max(taps[0] + taps[1] - 1 for taps in run.taps if taps is not None)
        planes = self.geometry.tile_planes
        column = max(
            (one.begin + one.count - 1) * nest.column_step
            + (taps[0] + taps[1] - 1) * nest.tap_column
            for one in nest.columns
            for taps in one.taps
            if taps is not None
        )
        return nest.maps + row * nest.row_step + tap * nest.tap_row + column + planes


def _out_span(nest: SumNest) -> Range:
    """Words of the nest's results, from ``out`` on."""
    first, last = nest.rows[0].begin, nest.rows[-1].begin + nest.rows[-1].count
    if last - first > 1:
        return first * nest.out_row, last * nest.out_row
    left, right = nest.columns[0].begin, nest.columns[-1].begin + nest.columns[-1].count
    row = first * nest.out_row
    return row + left * nest.out_step, row + right * nest.out_step
