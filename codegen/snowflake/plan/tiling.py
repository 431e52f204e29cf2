"""How a convolution runs on a Snowflake machine, and whether it fits.

A convolution whose windows are single pixels is seen as one long row. Tiles of maps are rows and
columns of results; in mode indp and lane a tile's rows (columns of a single row) are dealt to the
CUs. Tiles of kernels are filters. A tile has two places where the layer has several, so that the
next one comes while one is in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.codegen.snowflake.steps.objects import Rooms
from tvm_npu.codegen.snowflake.steps.windows import Axis, cut, dealt
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.snowflake.isa import LANES, VMACS
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

Mode = Literal["coop", "indp", "lane"]
Stays = Literal["maps", "kernels"]
Divides = Literal["none", "rows", "filters", "both"]
KERNEL_PLACES = 3
"""Of tiles of kernels, at most: while one is in use, the next has come and one more comes, so that
the memory need not wait for a step's end."""


@dataclass(frozen=True)
class SnowflakePlan:
    """``mode`` of the vMACs; ``tile_m`` filters of a group, ``tile_r`` rows and ``tile_c`` columns
    of results a tile (of a layer that is seen as one row: 1 row); ``stays`` is the kind of tile
    that stays in its buffer while those of the other kind come one after the other (reuse of maps
    or of kernels, called ReuseM and ReuseK in the compiler's paper, section 9.2). ``divides`` is
    what the clusters of a device share out: tiles are of each one's part then."""

    mode: Mode
    tile_m: int
    tile_r: int
    tile_c: int
    stays: Stays
    divides: Divides = "none"
    prediction: Prediction | None = None
    planner: str = ""


def line(words: int) -> int:
    """Rounded up to whole lines."""
    return -(-words // LANES) * LANES


def _together(mode: Mode, cus: int) -> int:
    return VMACS * cus if mode == "coop" else VMACS * LANES


def together(mode: Mode, machine: SnowflakeMachine) -> int:
    """Filters that are computed at a time."""
    return _together(mode, machine.clusters.cus)


@dataclass(frozen=True)
class ConvShape:
    """One group of a convolution. ``planes`` and ``filters`` are a group's; in mode lane, which
    takes all groups of a depthwise convolution at once, those of all."""

    rows: Axis
    columns: Axis
    planes: int
    filters: int
    groups: int
    has_residual: bool
    is_depthwise: bool

    @property
    def results(self) -> int:
        return self.rows.out * self.columns.out

    @property
    def is_point(self) -> bool:
        """One result a filter."""
        return self.results == 1

    @cached_property
    def taps(self) -> int:
        return self.rows.kernel * self.columns.kernel


def conv_shape(problem: ConvProblem, image_planes: int = 0) -> ConvShape:
    """``image_planes``: of a fully connected layer, planes of a pixel of its input, whose pixels
    are a row then (0: all of them)."""
    depthwise = problem.groups > 1 and problem.groups == problem.channels == problem.filters
    filters, planes = problem.filters // problem.groups, problem.channels // problem.groups
    if depthwise:
        filters = planes = problem.channels
    kernel, stride, dilation = problem.kernel, problem.stride, problem.dilation
    top, left, bottom, right = problem.padding
    if problem.is_dense and image_planes and image_planes < problem.channels:
        pixels = problem.channels // image_planes
        rows, columns = Axis(1, 1, 1), Axis(pixels, 1, pixels)
        return ConvShape(
            rows, columns, image_planes, filters, 1, problem.has_residual, is_depthwise=False
        )
    rows = Axis(problem.in_rows, problem.rows, kernel[0], stride[0], dilation[0], top)
    columns = Axis(problem.in_columns, problem.columns, kernel[1], stride[1], dilation[1], left)
    if kernel == (1, 1) == stride and (top, left, bottom, right) == (0, 0, 0, 0):
        pixels = problem.rows * problem.columns
        rows, columns = Axis(1, 1, 1), Axis(pixels, pixels, 1)
    return ConvShape(
        rows, columns, planes, filters, 1 if depthwise else problem.groups, problem.has_residual,
        depthwise,
    )  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """The words and tiles that follow from a shape, a plan and a machine; of ``rows_of`` (begin,
    count) of the results and ``filters_of`` of the filters."""

    shape: ConvShape
    plan: SnowflakePlan
    cus: int
    mbuf_words: int
    wbuf_words: int
    rows_of: tuple[int, int]
    filters_of: tuple[int, int]

    # --- filters -------------------------------------------------------------------------------

    @property
    def together(self) -> int:
        """Filters that are computed at a time."""
        return _together(self.plan.mode, self.cus)

    @property
    def kernel_at(self) -> int:
        """Words of a kernel's biases, in front of its weights."""
        return LANES if self.plan.mode == "coop" else 2 * LANES

    @cached_property
    def kernel_words(self) -> int:
        """What a group of filters takes in a WBuf."""
        taps, planes = self.shape.taps, self.shape.planes
        if self.plan.mode == "coop":
            return self.kernel_at + line(taps * planes)
        steps = taps if self.plan.mode == "lane" else taps * planes
        return self.kernel_at + LANES * steps

    @cached_property
    def filter_tiles(self) -> tuple[tuple[int, int], ...]:
        return cut(*self.filters_of, self.plan.tile_m)

    def groups_in(self, filters: int) -> int:
        return -(-filters // self.together)

    @cached_property
    def depth_words(self) -> int:
        """Words of a kernel that come at a time: all, but for single results with long kernels."""
        room = self.wbuf_words // 2 if self.can_split_depth else self.wbuf_words
        most = room - self.kernel_at
        whole = self.kernel_words - self.kernel_at
        return whole if whole <= most else most // LANES * LANES

    @property
    def depth_parts(self) -> int:
        return -(-(self.kernel_words - self.kernel_at) // self.depth_words)

    @property
    def splits_depth(self) -> bool:
        """Kernels come in parts; their windows are the whole map then."""
        return self.depth_parts > 1

    @property
    def can_split_depth(self) -> bool:
        axes = (self.shape.rows, self.shape.columns)
        whole = all(axis.size == axis.kernel and axis.out == 1 for axis in axes)
        return whole and not any(axis.before for axis in axes) and self.plan.mode != "lane"

    # --- maps ----------------------------------------------------------------------------------

    @cached_property
    def spreads_columns(self) -> bool:
        """Columns, not rows, are dealt to the CUs: of a single row, where no window touches the
        padding beside it."""
        single = self.shape.rows.out == 1 and self.shape.columns.has_no_border
        return self.plan.mode != "coop" and single

    @cached_property
    def map_tiles(self) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
        """(rows, columns) of results."""
        return tuple(
            (rows, columns)
            for rows in cut(*self.rows_of, self.plan.tile_r)
            for columns in cut(0, self.shape.columns.out, self.plan.tile_c)
        )

    @property
    def map_count(self) -> int:
        """How many `map_tiles` there are."""
        plan, columns = self.plan, self.shape.columns.out
        return -(-self.rows_of[1] // plan.tile_r) * -(-columns // plan.tile_c)

    def share(self, results: int) -> int:
        """Rows or columns of a tile that one CU has."""
        return results if self.plan.mode == "coop" else -(-results // self.cus)

    def parts(
        self, rows: tuple[int, int], columns: tuple[int, int]
    ) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
        """The (rows, columns) of a tile that each CU has; in mode coop one for all."""
        if self.plan.mode == "coop":
            return ((rows, columns),)
        axis = columns if self.spreads_columns else rows
        dealt_out = [(axis[0] + begin, count) for begin, count in dealt(axis[1], self.cus)]
        if self.spreads_columns:
            return tuple((rows, one) for one in dealt_out)
        return tuple((one, columns) for one in dealt_out)

    @property
    def tile_planes(self) -> int:
        """Planes that a tile of maps has."""
        return min(self.shape.planes, self.plan.tile_m) if self.is_lane else self.shape.planes

    @property
    def is_lane(self) -> bool:
        return self.plan.mode == "lane"

    def row_pixels(self, columns: tuple[int, int]) -> int:
        """Input pixels of a row of a tile."""
        axis = self.shape.columns
        if self.spreads_columns:
            return axis.tile_span(self.share(columns[1]))
        return axis.held(*columns)[1]

    def tap_steps(self, rows: tuple[int, int], columns: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns from tap to tap in a tile, the same in all CUs."""
        tall, wide = rows[1], columns[1]
        if self.spreads_columns:
            wide = self.share(wide)
        else:
            tall = self.share(tall)
        return self.shape.rows.tap_step(tall), self.shape.columns.tap_step(wide)

    def tile_begin(self, rows: tuple[int, int], columns: tuple[int, int]) -> tuple[int, int]:
        """Row and column of a tile (`windows.Piece`) that lie at its first word: the first ones
        inside of the map, but where CUs have different ones."""
        row = self.shape.rows.held(*rows)[0] if self.plan.mode == "coop" else 0
        column = 0 if self.spreads_columns else self.shape.columns.held(*columns)[0]
        return row, column

    @cached_property
    def maps_words(self) -> int:
        """The largest tile of maps."""
        rows = self.share(self.plan.tile_r) if not self.spreads_columns else self.plan.tile_r
        tall = self.shape.rows.tile_span(rows)
        if self.plan.mode == "coop":
            tall = self.shape.rows.largest(*self.rows_of, self.plan.tile_r)
        axis, size = self.shape.columns, min(self.plan.tile_c, self.shape.columns.out)
        wide = self.row_pixels((0, size))
        if not self.spreads_columns:
            wide = axis.largest(0, axis.out, size)
        return line(tall * wide * self.tile_planes)

    @property
    def out_words(self) -> int:
        """The largest tile of results in an MBuf."""
        axis = self.plan.tile_c if self.spreads_columns else self.plan.tile_r
        other = self.plan.tile_r if self.spreads_columns else self.plan.tile_c
        return line(self.share(axis) * other * min(self.plan.tile_m, self.shape.filters))

    @property
    def kernels_words(self) -> int:
        """The largest tile of kernels in a WBuf."""
        if self.depth_parts > 1:
            return self.kernel_at + self.depth_words
        return self.groups_in(min(self.plan.tile_m, self.filters_of[1])) * self.kernel_words

    # --- room ----------------------------------------------------------------------------------

    @property
    def map_loads(self) -> int:
        """Tiles of maps that come."""
        maps, kernels = self.map_count, len(self.filter_tiles)
        if self.is_lane:
            return maps * kernels
        again = self.plan.stays == "kernels" and maps > 1
        return (maps * kernels if again else maps) * self.shape.groups

    @property
    def doubles(self) -> bool:
        """Tiles that come one after the other have two places, and so have results."""
        rooms = self.rooms
        if rooms is None:
            return False
        steps = self.map_loads * len(self.filter_tiles)
        return len(rooms.maps) == min(2, self.map_loads) and len(rooms.out) >= min(2, steps)

    @cached_property
    def rooms(self) -> Rooms | None:
        """Where tiles lie; None where they do not fit."""
        if not (self.shape.rows.covers and self.shape.columns.covers):
            return None
        maps, kernels, out = self.maps_words, self.kernels_words, self.out_words
        if kernels > self.wbuf_words:
            return None
        if self.splits_depth and (
            not self.can_split_depth or self.plan.tile_m > self.together
        ):
            return None
        places = self._kernel_places(kernels)
        steps = self.map_loads * len(self.filter_tiles)
        turns = self.plan.mode == "coop" and self.cus > 1
        for map_places in (2, 1) if self.map_loads > 1 else (1,):
            for out_places in (2, 1) if steps > 1 and not turns else (1,):
                if map_places * maps + out_places * out <= self.mbuf_words:
                    at = map_places * maps
                    outs = [(0, at + turn * out) for turn in range(out_places)]
                    if turns:
                        outs = [(cu, at) for cu in range(self.cus)]
                    return Rooms(tuple(range(0, at, maps) if maps else (0,)), places, tuple(outs))
        return None

    def _kernel_places(self, words: int) -> tuple[int, ...]:
        """Where tiles of so many words begin: two halves of a WBuf, or more where they fit and
        there are as many tiles."""
        half = self.wbuf_words // 2 // LANES * LANES
        count = min(KERNEL_PLACES, self.wbuf_words // words)
        if count > 2 and len(self.filter_tiles) * self.depth_parts > 2:
            return tuple(range(0, count * words, words))
        return (0, half) if words <= half else (0,)


def geometry(
    shape: ConvShape, plan: SnowflakePlan, machine: SnowflakeMachine,
    rows_of: tuple[int, int] | None = None, filters_of: tuple[int, int] | None = None,
) -> Geometry:  # fmt: skip
    """For all rows and filters, or some."""
    rows = (0, shape.rows.out) if rows_of is None else rows_of
    filters = (0, shape.filters) if filters_of is None else filters_of
    if plan.tile_r > rows[1] or plan.tile_m > filters[1]:
        plan = replace(plan, tile_r=min(plan.tile_r, rows[1]), tile_m=min(plan.tile_m, filters[1]))
    return Geometry(
        shape, plan, machine.clusters.cus, machine.mbuf_words, machine.wbuf_words, rows, filters
    )
