"""All strips and rounds of a chain at once, as arrays [strips' rows][rounds' channels]: which fit,
and what they move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.room import aligned, part_bytes
from tvm_npu.codegen.plan.problem import ConvProblem, tile_sizes
from tvm_npu.codegen.tiles.plan.chain import ChainProblem, ChainTiles
from tvm_npu.sim.arithmetic import ceil_div
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

Counts = NDArray[np.int64]
Table = Any
"""Numbers by strips and rounds: an array [rows][channels], [rows][1] or [1][channels], or one
number for all."""
MOST_TRIED = 1 << 18
"""Strips and rounds; where there are more, only the smallest tiles are tried for every number of
strips and of rounds."""


@dataclass(frozen=True)
class Extents:
    """Rows under strips: where they begin, and how many there are."""

    begin: Counts
    count: Counts

    def under(self, one: ConvProblem) -> Extents:
        """What ``one`` reads, inside of its IFM: `in_extent`."""
        stride, reach = one.stride[0], (one.kernel[0] - 1) * one.dilation[0] + 1
        low = self.begin * stride - one.padding[0]
        high = low + (self.count - 1) * stride + reach
        inside = np.clip(low, 0, one.in_rows)
        return Extents(inside, np.maximum(np.minimum(high, one.in_rows) - inside, 0))


Of = Callable[[Counts], Table]
"""Takes a number for each strip to one for each size: `Strips.sum` and the like."""


class Strips:
    """Those of every size of ``rows``, one size behind the other."""

    def __init__(self, problem: ChainProblem, rows: Counts) -> None:
        total = problem.point.rows
        counts: Counts = -(-total // rows)
        self._begin = np.cumsum(counts) - counts
        self._end = self._begin + counts - 1
        at = np.arange(counts.sum()) - np.repeat(self._begin, counts)
        begin = at * np.repeat(rows, counts)
        self.out = Extents(begin, np.minimum(np.repeat(rows, counts), total - begin))
        middle = problem.middle
        self.middle = self.out if middle is None else self.out.under(middle)
        self.inputs = self.middle.under(problem.head)
        begin, end = self.inputs.begin, self.inputs.begin + self.inputs.count
        both = np.maximum(np.minimum(np.roll(end, 1), end) - begin, 0)
        self.shared = np.where((at > 0) & (begin > np.roll(begin, 1)), both, 0)
        """Rows of the IFM that the strip before has, too: `shared_rows`."""

    def sum(self, values: Counts) -> Table:
        return np.add.reduceat(values, self._begin)[:, None]

    def most(self, values: Counts) -> Table:
        return np.maximum.reduceat(values, self._begin)[:, None]

    def first(self, values: Counts) -> Table:
        return values[self._begin][:, None]

    def last(self, values: Counts) -> Table:
        return values[self._end][:, None]


@dataclass(frozen=True)
class Place:
    """Of a chain: alone, or in a run, where its IFM may be ``held`` and its OFM ``kept``, as of
    `ChainTiles`."""

    in_run: bool = False
    held: bool = False
    kept: bool = False


def spaces(
    problem: ChainProblem, machine: TileMachine, place: Place, limits: TileLimits = NO_LIMITS
) -> Iterator[ChainSpace]:
    """All tiles within ``limits``, largest first: without rows that are kept, and with them."""
    rows, channels = problem.point.rows, problem.point.channels
    sizes = [np.arange(total, 0, -1) for total in (rows, channels)]
    if rows * channels > MOST_TRIED:
        sizes = [np.array(sorted(tile_sizes(one), reverse=True)) for one in (rows, channels)]
    if place.held:
        sizes[0] = np.array([rows])
    row_sizes, channel_sizes = sizes
    if limits != NO_LIMITS:
        row_sizes, channel_sizes = _within(problem, limits, sizes)
    if not len(row_sizes) or not len(channel_sizes):
        return
    for keeps_rows in (False, True):
        yield ChainSpace(problem, machine, row_sizes, channel_sizes, place, keeps_rows)


def _within(
    problem: ChainProblem, limits: TileLimits, sizes: list[Counts]
) -> tuple[Counts, Counts]:
    """Of the strips' rows and rounds' channels those whose work on tiles, of every convolution,
    keeps to ``limits``: the last one takes all filters at a time, a head over all channels these,
    and each all columns. Depthwise ones take a filter and a channel a group."""
    rows, channels = sizes
    head, point = problem.head, problem.point
    most_m, most_n, most_r, most_c = (
        inf if most is None else most
        for most in (
            limits.max_tile_m, limits.max_tile_n, limits.max_tile_r, limits.max_tile_c,
        )
    )  # fmt: skip
    made = [channels <= most_n, np.array(point.filters <= most_m)]
    if not problem.is_depthwise:
        made += [channels <= most_m, np.array(head.channels <= most_n)]
    made.append(np.array(all(one.columns <= most_c for one in problem.convolutions)))
    if limits.max_tile_r is not None:
        strips = Strips(problem, rows)
        rows = rows[strips.most(np.maximum(strips.out.count, strips.middle.count))[:, 0] <= most_r]
    return rows, channels[np.logical_and.reduce(np.broadcast_arrays(*made))]


@dataclass(frozen=True, eq=False)
class ChainSpace:
    """Strips of ``row_sizes`` and rounds of ``channel_sizes``."""

    problem: ChainProblem
    machine: TileMachine
    row_sizes: Counts
    channel_sizes: Counts
    place: Place
    keeps_rows: bool

    def tiles(self, row: int, channel: int) -> ChainTiles:
        """At a place of the arrays."""
        return ChainTiles(
            self.problem, int(self.row_sizes[row]), int(self.channel_sizes[channel]),
            self.keeps_rows, held=self.place.held, kept=self.place.kept,
        )  # fmt: skip

    @cached_property
    def by_rows(self) -> Strips:
        return Strips(self.problem, self.row_sizes)

    @property
    def rows(self) -> Table:
        """Of a strip."""
        return self.row_sizes[:, None]

    @property
    def channels(self) -> Table:
        """Of a round."""
        return self.channel_sizes[None, :]

    @cached_property
    def strips(self) -> Table:
        return ceil_div(self.problem.point.rows, self.rows)

    @cached_property
    def rounds(self) -> Table:
        return ceil_div(self.problem.point.channels, self.channels)

    @cached_property
    def last_channels(self) -> Table:
        """Of the last round."""
        return self.problem.point.channels - (self.rounds - 1) * self.channels

    @cached_property
    def weights_stay(self) -> Table:
        return self.rounds == 1

    @cached_property
    def input_stays(self) -> Table:
        return (self.strips == 1) & (not self.problem.is_depthwise) | self.place.held

    @cached_property
    def loads_residual(self) -> Table:
        added = self.input_stays & self.problem.adds_input
        return ~added & self.problem.point.has_residual

    @cached_property
    def weights_of_channel(self) -> tuple[int, ...]:
        """Bytes of each convolution's weights for a channel of a round."""
        size, (*front, point) = self.problem.element_bytes, self.problem.convolutions
        depths = (one.channels // one.groups * prod(one.kernel) * size for one in front)
        return (*depths, point.filters * size)

    @property
    def map_bytes(self) -> int:
        """Of the OFM as elements."""
        point = self.problem.point
        return point.filters * point.rows * point.columns * point.element_bytes

    @property
    def _bias_bytes(self) -> int:
        return BIAS_BYTES * sum(one.filters for one in self.problem.convolutions)

    def fits(self, buffers: int) -> NDArray[np.bool_]:
        """`chain.fits`, and where rows are kept, that there are some and that they can be."""
        problem, memories, place = self.problem, self.machine.memories, self.place
        assert not isinstance(memories, SharedMemory)
        head, middle, point = problem.head, problem.middle, problem.point
        found: NDArray[np.bool_] = self.strips * self.rounds > 0
        if self.keeps_rows:
            found &= self.by_rows.sum(self.by_rows.shared) > 0
            found &= self.weights_stay | (not problem.is_depthwise)
        found &= self._bias_bytes <= memories.bias_bytes
        begin: Table = 0
        if place.kept:
            found &= self.map_bytes <= memories.input_bytes
            begin = np.where(self.strips > 1, aligned(self.map_bytes), 0)
        weights = sum(aligned(self.channels * each) for each in self.weights_of_channel)
        parts: Table = np.where(self.weights_stay & (not place.in_run), 1, buffers)
        found &= weights <= part_bytes(memories.weight_bytes, parts)
        width, rows = point.accumulator_bytes, self.by_rows.most(self.by_rows.middle.count)
        sums = aligned(self.channels * rows * (head.columns * width))
        if middle is not None:
            sums = sums + aligned(self.channels * self.rows * (middle.columns * width))
        outs = np.where((self.strips == 1) | place.kept, 1, buffers)
        sums = sums + outs * aligned(self.rows * (point.filters * point.columns * width))
        found &= sums <= memories.output_bytes
        residual = self.rows * (point.filters * point.columns * point.element_bytes)
        tiles = aligned(self._in_bytes) + np.where(self.loads_residual, aligned(residual), 0)
        parts = np.where(self.input_stays, 1, buffers)
        found &= tiles <= part_bytes(memories.input_bytes - begin, parts)
        return found

    @property
    def _in_bytes(self) -> Table:
        """Of the largest IN tile."""
        head = self.problem.head
        row = head.in_columns * head.element_bytes
        if self.place.held:
            return head.channels * head.in_rows * row
        channels = self.channels if self.problem.is_depthwise else head.channels
        return channels * self.by_rows.most(self.by_rows.inputs.count) * row

    @cached_property
    def coming(self) -> Counts:
        """Rows of the IFM that come from outside, of each strip."""
        own = self.by_rows
        if self.place.held:
            return 0 * own.inputs.count
        return own.inputs.count - own.shared if self.keeps_rows else own.inputs.count

    @cached_property
    def moved_bytes(self) -> Table:
        """`ChainTiles.moved_bytes`."""
        head = self.problem.head
        row = head.channels * head.in_columns * head.element_bytes
        weights = sum(self.weights_of_channel) * self.problem.point.channels
        moved = self.by_rows.sum(self.coming) * row
        moved = moved + self._bias_bytes + weights * np.where(self.weights_stay, 1, self.strips)
        return moved + self.map_bytes * (self.loads_residual + (0 if self.place.kept else 1))
