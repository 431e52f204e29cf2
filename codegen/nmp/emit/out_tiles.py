"""The MACs of a step, and the end of an OUT tile: residual, requantization, window, store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.chip_layout import ChipLayout
from tvm_npu.codegen.nmp.emit.commands import Assign, Nodes, product, when
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac, WTile
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers, OfmBox
from tvm_npu.codegen.nmp.emit.conventions import (
    MAC_DONE,
    stored,
    stored_one_more,
    wait,
    wait_older_store,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.kept_rows import NewRows, all_new_rows
from tvm_npu.codegen.nmp.emit.mac import OutTile, first_bias, out_tile
from tvm_npu.codegen.nmp.emit.spread import Spread
from tvm_npu.codegen.nmp.emit.step_loads import StepLoads
from tvm_npu.codegen.nmp.emit.steps import Step, Steps, when_has_place, when_has_work
from tvm_npu.codegen.nmp.emit.through_window import ThroughWindow
from tvm_npu.codegen.nmp.emit.transfers import OnChip
from tvm_npu.sim.nmp.xnmp import Initialise

OUT_HALF = Variable("out_half", 0, 1)
"""The half of MB2 that was written last."""


@dataclass(frozen=True)
class _Parts:
    """Commands in front of the wait for a step's tiles, the start of its products, the rest of the
    work on its tiles, and, behind the tiles' release, what the step with the last channels does."""

    early: Nodes
    first: Nodes
    rest: Nodes
    end: Nodes


@dataclass(frozen=True)
class OutTiles:
    """What a TLT does with the tiles that a step has loaded."""

    steps: Steps
    transfers: ConvTransfers
    mac: ConvMac
    loads: StepLoads
    layout: ChipLayout
    window: ThroughWindow | None
    spread: Spread | None = None
    twin: ConvMac | None = None

    def consume(self, step: Step) -> Nodes:
        """Waits for the tiles of ``step``, adds its products, frees the tiles; behind the last
        channels, stores the OUT tile."""
        make_place, at = self.steps.under(step)
        parts = self._parts(step, at)
        return (
            *self._in_front(step, parts),
            *when_has_work(step, (*make_place, *parts.first, *parts.rest)),
            *self._behind(step, parts),
        )

    def begin(self, step: Step) -> Nodes:
        """`consume` up to the start of the first products."""
        make_place, at = self.steps.under(step)
        parts = self._parts(step, at)
        first = when_has_work(step, (*make_place, *parts.first))
        return (*self._in_front(step, parts), *first)

    def finish(self, step: Step) -> Nodes:
        """The rest of `consume`."""
        make_place, at = self.steps.under(step)
        parts = self._parts(step, at)
        rest = when_has_work(step, (*make_place, *parts.rest))
        return (*rest, *self._behind(step, parts))

    def _in_front(self, step: Step, parts: _Parts) -> Nodes:
        return (*when_has_work(step, parts.early), *self.waits(step))

    def _behind(self, step: Step, parts: _Parts) -> Nodes:
        end = when(self.channels_behind(step), ">", (), parts.end)
        return (*self.releases(step), *when_has_work(step, end))

    def open(self, step: Step) -> Nodes:
        """In front of the loops, whose indices ``step`` names."""
        later = self._stores_later
        return () if later is None else later.open(step)

    def close(self, step: Step) -> Nodes:
        """Behind the loops."""
        later = self._stores_later
        if later is None:
            return ()
        return later.store(step, lambda at: self._store(at, self._out_half))

    def channels_behind(self, step: Step) -> Expression:
        """Of the step; not above 0 in the last one of an OUT tile."""
        return Expression.of(self.mac.tiles.channels) - step.n - self.mac.tiles.largest[1]

    def waits(self, step: Step) -> Nodes:
        """Until the tiles of ``step`` are there."""
        steps, loads = self.steps, self.loads
        in_buffer, w_buffer = loads.shared_in.buffer, loads.shared_w.buffer
        in_waits = when_has_place(step, in_buffer.await_content(step.in_half))
        w_waits = loads.where_weights_are_needed(step, w_buffer.await_content(step.w_half))
        return (
            *steps.when_in_is_new(step, in_waits), *steps.when_weights_are_new(step, w_waits),
        )  # fmt: skip

    def releases(self, step: Step) -> Nodes:
        """Of the tiles of ``step``, where it is the last one that needs them."""
        in_buffer, w_buffer = self.loads.shared_in.buffer, self.loads.shared_w.buffer
        return (
            *self.steps.when_in_is_done(step, in_buffer.release(step.in_half)),
            *self.steps.when_weights_are_done(step, w_buffer.release(step.w_half)),
        )

    def _parts(self, step: Step, at: OfmBox) -> _Parts:
        tiles, is_last = self.mac.tiles, self.channels_behind(step)
        offset = self._out_half * self.layout.out_half_elements
        if self.window is None:
            out = out_tile(step.own, at.rows, at.columns, tiles.size, offset)
        else:
            out = out_tile(step.own, at.rows, at.columns, tiles.size)
            offset = offset + self.layout.middle_elements
        second = Expression(constant=self.layout.second_offset)
        early: Nodes = ()
        beside: Nodes = ()
        finish: Nodes = ()
        if tiles.problem.has_residual:
            load = self.transfers.load_residual(
                self.first_filter(step), step.own, self.steps.out_box(step), OnChip(second)
            )
            add = self.mac.add_residual(out, step.m, second)
            if self.spread is not None:
                beside = self.spread.in_own_step(step, (load,))
            elif tiles.plan.buffers == 2:  # it has room of its own: under the last MACs
                early = when(is_last, ">", (), (load,))
            else:
                add = (load, *add)
            finish = when(is_last, ">", (), add)
        finish = (*finish, *when(is_last, ">", (), self.before_the_end(step, out)))
        end: Nodes = self.requantize(step, at, out)
        if self.window is not None:
            through = self.window.run(step, at, offset, second)
            finish = (*finish, *when(is_last, ">", (), (*end, *through)))
            end = ()
        later = self._stores_later
        if later is not None:
            # In the own step, never a tile's first, the half that was written last is this tile's.
            other = self._out_half * -1 + 1
            store = later.store(step, lambda at: self._store(at, other))
            beside = (*later.in_own_step(step, store), *beside)
        first, more = self.products(step, at, out, self._out_is_free, beside)
        if later is None:
            end = (*end, *self._store(step, self._out_half), *self._stored)
        else:
            end = (*end, *later.keep(step))
        return _Parts(early, first, (*more, *finish), end)

    def before_the_end(self, step: Step, out: OutTile) -> Nodes:
        """Behind the last products of the OUT tile, in front of its requantization."""
        return ()

    @property
    def _stores_later(self) -> Spread | None:
        """Where an OUT tile may stay until this TLT's own step of the next one."""
        return self.spread if self.layout.halves.out_tiles == 2 else None

    def _store(self, step: Step, half: Expression) -> Nodes:
        offset = half * self.layout.out_half_elements
        if self.window is not None:
            offset = offset + self.layout.middle_elements
        return (
            self.transfers.store_out(
                self.first_filter(step), step.own, self.steps.out_box(step), OnChip(offset)
            ),
        )

    def first_filter(self, step: Step) -> Expression:
        """Of the step's tile, among those of the layer."""
        first = self.transfers.words.first_item
        return step.group * self.mac.tiles.filters + first + step.m

    @property
    def _out_half(self) -> Expression:
        return Expression.of(OUT_HALF) if self.layout.halves.out_tiles == 2 else Expression()

    @property
    def _stored(self) -> Nodes:
        return stored_one_more() if self.layout.halves.out_tiles == 2 else stored()

    @property
    def _out_is_free(self) -> Nodes:
        """In front of the first products of an OUT tile."""
        if self.layout.halves.out_tiles == 2:
            flip = Assign(OUT_HALF, Expression.of(OUT_HALF) * -1 + 1)
            if self._stores_later is not None:
                return (flip, *self._stores_later.await_stores())
            return (flip, *wait_older_store())
        return wait_store()

    def requantize(self, step: Step, at: OfmBox, out: OutTile) -> Nodes:
        """From accumulators of the tile ``out`` of the convolution's OFM to elements."""
        tiles, first = self.mac.tiles, self.first_filter(step)
        if not tiles.plan.keeps_rows:
            nodes = self.mac.requantize(out, step.m, first)
            if self.twin is None:
                return nodes
            make, beside = self._twin_tile(step, at)
            return (*nodes, *make, *self.twin.requantize(beside, self._twin_bias(step), first))
        if self._has_one_end:
            make, all_rows = all_new_rows(tiles, step, at)
            return when(at.rows, ">", (*make, *self.mac.requantize(all_rows, step.m, first)))
        nodes = self._requantize_rows(self.mac, NewRows(tiles, step, at), step.m, first)
        if self.twin is not None:
            rows = NewRows(tiles, step, at, twin=True)
            nodes += self._requantize_rows(self.twin, rows, self._twin_bias(step), first)
        return nodes

    @property
    def _has_one_end(self) -> bool:
        """All elements of a tile become results in the same way."""
        macs = [one for one in (self.mac, self.twin) if one is not None]
        plain = all(one.place is None and one.layer.filter_shifts is None for one in macs)
        ends = {(one.layer.shift, one.layer.low, one.layer.high) for one in macs}
        return plain and len(ends) == 1

    def _requantize_rows(
        self, mac: ConvMac, rows: NewRows, bias: Expression, first: Expression
    ) -> Nodes:
        def row(out: OutTile, _: Expression) -> Nodes:
            return mac.requantize(out, bias, first)

        return (*rows.first(Expression(), row), *rows.others(row, waits=False))

    def _twin_bias(self, step: Step) -> Expression:
        """As of `WTile`: behind those of the TLT's own filters."""
        return step.m + self.mac.tiles.most.filters

    def _twin_tile(self, step: Step, at: OfmBox) -> tuple[Nodes, OutTile]:
        """Where the twin's part of the OFM lies: behind the other's."""
        area, make_area = product("twin_area", at.rows, at.columns)
        place, make_place = product("twin_elements", step.own, area)
        tile = out_tile(step.own, at.rows, at.columns, self.mac.tiles.size, place)
        return (*make_area, *make_place), tile

    def products(
        self, step: Step, at: OfmBox, out: OutTile, begin: Nodes, beside: Nodes = ()
    ) -> tuple[Nodes, Nodes]:
        """The products of one step, added to the OUT tile: their start and the rest; ``begin`` goes
        in front of the first of a tile, ``beside`` runs while the MAC unit works: an engine whose
        queue is full lets cores wait."""
        tiles = self.mac.tiles
        half, kernel = step.w_half * self.layout.w_half_bytes, tiles.problem.kernel
        taps = kernel[0] * kernel[1]
        stays = tiles.plan.schedule == "WS"
        depth = Expression.of(tiles.channels) if stays else step.channels
        before = step.n if stays else Expression()
        pitch = depth * tiles.taps
        in_offset = step.in_half * self.layout.in_half_bytes

        def adds(mac: ConvMac, offset: Expression, bias: Expression) -> Callable[..., Nodes]:
            weights = WTile(half + offset, pitch, bias)

            def multiply(initialise: Initialise, out: OutTile, in_offset: Expression) -> Nodes:
                extents = (at.rows, at.columns)
                return (
                    mac.multiply(
                        out, initialise, weights, step.channels, Expression.of(1), extents,
                        in_offset,
                    ),
                )  # fmt: skip

            def added(out: OutTile, in_offset: Expression, begin: Nodes = ()) -> Nodes:
                first = (*begin, *multiply(first_bias(mac.layer), out, in_offset))
                return when(step.n, "==", first, multiply(Initialise.KEEP, out, in_offset))

            return added

        add = adds(self.mac, before * (taps * tiles.size), step.m)
        rest: Nodes = ()
        if tiles.plan.keeps_rows:
            rows = NewRows(tiles, step, at)
            first = (*when(step.n, "==", begin), *rows.first(in_offset, add))
            others = rows.others(add)
        else:
            first, others = add(out, in_offset, begin), (wait(MAC_DONE),)
        if self.twin is not None:
            offset = depth * (taps * tiles.size) + before * tiles.size
            add = adds(self.twin, offset, self._twin_bias(step))
            padding = tiles.problem.padding
            corner = tiles.in_extent(1, at.columns) * padding[0] + padding[1]
            place = in_offset + corner * tiles.size
            if tiles.plan.keeps_rows:
                rows = NewRows(tiles, step, at, twin=True)
                rest = (*rows.first(place, add), *rows.others(add))
            else:
                make, out = self._twin_tile(step, at)
                rest = (*make, *add(out, place), wait(MAC_DONE))
        return first, (*beside, *others, *rest)
