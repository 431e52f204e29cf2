"""The steps of a convolution whose tiles are shared: loops, and who loads what for whom.

A step is one tile of filters, one place of the OFM and one tile of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

from tvm_npu.codegen.nmp.emit.commands import (
    Affine,
    Minimum,
    Nodes,
    Variable,
    clamped,
    loop,
    names,
    when,
)
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvolutionTiles
from tvm_npu.codegen.nmp.emit.conventions import (
    CORE,
    IN_ARRIVED,
    IN_FREE,
    IN_GO,
    OTHER_IN_ARRIVED,
    OTHER_W_ARRIVED,
    TLT,
    W_ARRIVED,
    W_FREE,
    W_GO,
)
from tvm_npu.codegen.nmp.emit.shared_buffer import SharedBuffer
from tvm_npu.sim.nmp.xnmp import Level


@dataclass(frozen=True)
class Step:
    """One tile of each loop: where it begins and how much of it this TLT has (0: nothing, but it
    may have to load for others); and the halves of the buffers that hold IN and W."""

    m: Affine
    own: Affine
    r: Affine
    rows: Affine
    c: Affine
    columns: Affine
    n: Affine
    channels: Affine
    in_half: Affine = Affine()
    w_half: Affine = Affine()


@dataclass(frozen=True)
class OfmPlace:
    """Rows and columns of the convolution's OFM: where they begin, how many there are."""

    row: Affine
    rows: Affine
    column: Affine
    columns: Affine


class SharedSteps(ConvolutionTiles):
    """The loops of every schedule, and the buffers that TLTs and TLEs fill for one another."""

    def share_tiles(self) -> None:
        """Who turns how often and loads what for whom; words of the core's line for it."""
        self._deal_turns()
        self._share_in()
        self._share_weights()

    def _deal_turns(self) -> None:
        """Loops turn as often as the TLT that has most of those that keep in step."""
        plan = self.plan
        self.turns_rows = self._turns("rows", self.rows)
        self.turns_columns = self._turns("columns", self.columns)
        self.turns_items = self._turns("items", self.items)
        filters, channels, rows, columns = self.tile
        turns = [
            -(-most // tile)
            for most, tile in (
                (self.most.filters, filters), (self.channels, channels),
                (self.most.rows, rows), (self.most.columns, columns),
            )
        ]  # fmt: skip
        places = turns[2] * turns[3]
        in_loads = places * turns[1] * (1 if plan.keeps_in else turns[0])
        w_loads = turns[0] * (1 if plan.schedule == "WS" else places * turns[1])
        self.in_halves, self.w_halves, self.out_halves = (
            min(plan.buffers, uses) for uses in (in_loads, w_loads, places * turns[0])
        )

    def _turns(self, name: str, own: Affine) -> Affine:
        everywhere = self.plan.ring_in or self.plan.ring_weights
        of = attrgetter(name)
        most = self.shares.most(of, everywhere)
        if most == self.shares.values(of):
            return own
        return self.parameters.number(f"most_{name}", most)

    def _share_in(self) -> None:
        plan, shares, number = self.plan, self.shares, self.parameters.number
        places = plan.tlt_rows * plan.tlt_columns
        runs = shares.tlts // places
        self.in_parts = plan.filter_slices if plan.ring_in else 1
        cores = range(len(shares.cores))
        tlts = [shares.mask(core, lambda one: one.place, of_tles=False) for core in cores]
        self.in_mnemonic = "nmp_mload" if runs > 1 or plan.ring_in else "nmp_load"
        self.in_tlts = Affine()
        if places > 1:
            self.in_tlts = number("in_tlts", tlts)
        self.in_tles = Affine()
        if plan.ring_in:
            tles = [shares.mask(core, lambda one: one.tle_place, of_tles=True) for core in cores]
            self.in_tles = number("in_tles", tles)
        self.in_part_channels = -(-self.tile[1] // self.in_parts)
        self.in_part = number(
            "in_part", shares.values(lambda one: one.tle_run * self.in_part_channels)
        ) if plan.ring_in else Affine()
        level = Level.GLOBAL if plan.ring_in else Level.TLE if runs > 1 else None
        loads = shares.values(lambda one: int(one.run == 0))
        self.shared_in = self._buffer(
            level, loads, "loads_in", IN_FREE, IN_GO, self.in_halves, self.in_parts,
            (IN_ARRIVED, OTHER_IN_ARRIVED),
        )  # fmt: skip

    def _share_weights(self) -> None:
        plan, shares, number = self.plan, self.shares, self.parameters.number
        places = plan.tlt_rows * plan.tlt_columns
        sharing = plan.row_slices * plan.column_slices if plan.ring_weights else 1
        cores = range(len(shares.cores))
        self.w_mnemonic = "nmp_load" if places == 1 else "nmp_mload"
        self.w_tlts = Affine()
        if places > 1:
            tlts = [shares.mask(core, lambda one: one.run, of_tles=False) for core in cores]
            self.w_tlts = number("w_tlts", tlts)
        self.w_tles = Affine()
        if plan.ring_weights:
            tles = [shares.mask(core, lambda one: one.tle_run, of_tles=True) for core in cores]
            self.w_tles = number("w_tles", tles)
        self.w_parts = sharing
        self.w_part_filters = -(-self.tile[0] // sharing)
        self.w_part = number(
            "w_part",
            shares.values(
                lambda one: (one.tle_place + one.run) % sharing * self.w_part_filters
            ),
        ) if sharing > 1 else Affine()
        level = Level.GLOBAL if plan.ring_weights else Level.TLE if places > 1 else None
        loads = shares.values(lambda one: int(one.place == 0))
        self.shared_w = self._buffer(
            level, loads, "loads_weights", W_FREE, W_GO, self.w_halves, self.w_parts,
            (W_ARRIVED, OTHER_W_ARRIVED),
        )  # fmt: skip

    def _buffer(
        self,
        level: Level | None,
        loads: list[int],
        name: str,
        free: tuple[int, int],
        go: int,
        halves: int,
        parts: int,
        arrived: tuple[int, int],
    ) -> SharedBuffer:
        active = self.shares.active
        rest = (free, go, halves, parts, arrived)
        if level is None:
            return SharedBuffer(None, TLT, 1, 1, Affine(constant=1), *rest)
        scope = len(active) if level == Level.GLOBAL else self.shares.tlts
        first = active.index(True) // scope * scope
        loaders = sum(loads[first : first + scope])
        flag = Affine()
        if loaders > 1:
            flag = self.parameters.number(name, loads)
        leader = CORE if level == Level.GLOBAL else TLT
        return SharedBuffer(level, leader, scope, loaders, flag, *rest)

    def steps(self, body: Callable[[Step], Nodes]) -> Nodes:
        """The loops of the schedule around ``body``."""
        filters, channels, rows, columns = self.tile

        def over_filters(inner: Callable[[Affine, Affine], Nodes]) -> Nodes:
            return self._axis("filter", self.items, self.turns_items, filters, inner)

        def over_places(inner: Callable[[Affine, Affine, Affine, Affine], Nodes]) -> Nodes:
            return self._axis(
                "row", self.rows, self.turns_rows, rows,
                lambda r, own_rows: self._axis(
                    "column", self.columns, self.turns_columns, columns,
                    lambda c, own_columns: inner(r, own_rows, c, own_columns),
                ),
            )  # fmt: skip

        def over_channels(*tile: Affine) -> Nodes:
            m, own, r, own_rows, c, own_columns = tile
            place = (r, own_rows, c, own_columns)
            return loop(
                "channel", self.channels, channels,
                lambda n, extent: body(Step(m, own, *place, n, extent)),
            )  # fmt: skip

        if self.plan.schedule == "WS":
            return over_filters(
                lambda m, own: over_places(lambda *place: over_channels(m, own, *place))
            )
        return over_places(
            lambda *place: over_filters(lambda m, own: over_channels(m, own, *place))
        )

    @staticmethod
    def _axis(
        name: str, own: Affine, turns: Affine, tile: int, inner: Callable[[Affine, Affine], Nodes]
    ) -> Nodes:
        """A loop that ends with the TLT that has most; ``inner`` gets (index, own extent)."""
        if own == turns:
            return loop(name, own, tile, inner)

        def turn(index: Affine, _: Affine) -> Nodes:
            extent, make = clamped(f"own_{name}", tile, own - index)
            nodes = inner(index, extent)
            return (*make, *nodes) if names(nodes, extent) else nodes

        return loop(name, turns, tile, turn)

    def at(self, place: Step) -> tuple[Nodes, Step]:
        """The step at the indices of ``place``, its extents computed from them alone."""
        filters, channels, rows, columns = self.tile
        nodes: Nodes = ()
        extents = []
        for name, index, own, turns, tile in (
            ("filters", place.m, self.items, self.turns_items, filters),
            ("rows", place.r, self.rows, self.turns_rows, rows),
            ("columns", place.c, self.columns, self.turns_columns, columns),
            ("channels", place.n, Affine.of(self.channels), Affine.of(self.channels), channels),
        ):
            extent, make = self._extent(name, index, own, tile, own == turns)
            extents.append(extent)
            nodes += make
        own, own_rows, own_columns, own_channels = extents
        return nodes, replace(
            place, own=own, rows=own_rows, columns=own_columns, channels=own_channels
        )

    @staticmethod
    def _extent(
        name: str, index: Affine, own: Affine, tile: int, is_never_empty: bool
    ) -> tuple[Affine, Nodes]:
        if index.is_constant or not is_never_empty:
            return clamped(f"{name}_now", tile, own - index)
        if own.multiple % tile == 0:
            return Affine(constant=tile), ()
        extent = Variable(f"{name}_now", 1, tile)
        return Affine.of(extent), (Minimum(extent, tile, own - index),)

    def under(self, step: Step) -> tuple[Nodes, OfmPlace]:
        """What of the convolution's OFM the step's OUT tile takes: the same, or, under a window,
        what lies in the OFM of the tile's windows."""
        row, column = self.first_row + step.r, self.first_column + step.c
        window, problem = self.problem.window, self.problem
        if window is None:
            return (), OfmPlace(row, step.rows, column, step.columns)
        nodes: Nodes = ()
        spans: list[Affine] = []
        for axis, (name, first, extent, total) in enumerate(
            (
                ("row", row, step.rows, problem.rows),
                ("column", column, step.columns, problem.columns),
            )
        ):
            low = first * window.stride[axis] - window.padding[axis]
            high = low + (extent - 1) * window.stride[axis] + window.kernel[axis]
            begin, make_begin = clamped(f"middle_{name}", total, low)
            end, make_end = clamped(f"middle_{name}_end", total, high)
            nodes += (*make_begin, *make_end)
            spans += [begin, end - begin]
        return nodes, OfmPlace(*spans)

    # Which steps load, and which are a content's last

    def loads_in(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in steps that bring a new IN tile."""
        return when(step.m, "==", nodes) if self.plan.keeps_in else nodes

    def loads_weights(self, step: Step, nodes: Nodes) -> Nodes:
        if self.plan.schedule != "WS":
            return nodes
        return when(step.r + step.c + step.n, "==", nodes)

    def last_of_in(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in the last step that needs the IN tile."""
        if not self.plan.keeps_in:
            return nodes
        return when(self.turns_items - step.m - self.tile[0], ">", (), nodes)

    def last_of_weights(self, step: Step, nodes: Nodes) -> Nodes:
        if self.plan.schedule != "WS":
            return nodes
        _, channels, rows, columns = self.tile
        if not nodes:
            return ()
        for rest in (
            Affine.of(self.channels) - step.n - channels,
            self.turns_columns - step.c - columns,
            self.turns_rows - step.r - rows,
        ):
            nodes = when(rest, ">", (), nodes)
        return nodes

    def is_place(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` where this TLT has rows and columns."""
        return when(step.rows, ">", when(step.columns, ">", nodes))
