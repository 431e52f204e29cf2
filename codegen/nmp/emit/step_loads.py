"""The transfers of a step: the IN and the W tile, or a TLE's part of them."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.chip_layout import ChipLayout
from tvm_npu.codegen.nmp.emit.commands import Assign, Nodes, Transfer, clamped, product, when
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers
from tvm_npu.codegen.nmp.emit.conventions import W_ARRIVED
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.sharing import SharedTile
from tvm_npu.codegen.nmp.emit.steps import FIRST, Step, Steps, when_has_place
from tvm_npu.codegen.nmp.emit.transfers import run_transfer
from tvm_npu.codegen.nmp.emit.weights import group_bytes, is_tiled
from tvm_npu.codegen.nmp.plan.conv_plan import loads_weights_early
from tvm_npu.sim.nmp.xnmp import Memory
from tvm_npu.sim.streams import Stream

IN_HALF, W_HALF = Variable("in_half", 0, 1), Variable("w_half", 0, 1)
"""The halves of MB0 and MB1 that were loaded last."""


@dataclass(frozen=True)
class Behind:
    """IN tiles from channel ``channel`` on are those of another tensor."""

    channel: int
    transfers: ConvTransfers


@dataclass(frozen=True)
class StepLoads:
    """What a TLT loads in a step, for itself and for others. ``inputs``: who loads IN tiles, where
    they are of two tensors."""

    steps: Steps
    transfers: ConvTransfers
    layout: ChipLayout
    shared_in: SharedTile
    shared_w: SharedTile
    inputs: tuple[ConvTransfers, Behind] | None = None

    def load(self, step: Step) -> Nodes:
        """Both tiles of ``step``, where it brings new ones."""
        flip_in: Nodes = ()
        flip_w: Nodes = ()
        if self.layout.halves.in_tiles == 2:
            flip_in = (Assign(IN_HALF, Expression.of(IN_HALF) * -1 + 1),)
        if self.layout.halves.w_tiles == 2:
            flip_w = (Assign(W_HALF, Expression.of(W_HALF) * -1 + 1),)
        in_buffer, w_buffer = self.shared_in.buffer, self.shared_w.buffer
        load_in = when_has_place(
            step,
            in_buffer.with_semaphore(step.in_half, lambda number: self._load_in_part(step, number)),
        )
        load_w = self.where_weights_are_needed(
            step,
            w_buffer.with_semaphore(
                step.w_half, lambda number: self._load_weights_part(step, number)
            ),
        )
        if self.weights_come_early:
            load_w = when(step.m + step.r + step.c + step.n, "!=", load_w)
        return (
            *self.steps.when_in_is_new(step, (*flip_in, *in_buffer.acquire(step.in_half, load_in))),
            *self.steps.when_weights_are_new(
                step, (*flip_w, *w_buffer.acquire(step.w_half, load_w))
            ),
        )

    @property
    def weights_come_early(self) -> bool:
        """In front of the barrier before the layer."""
        return loads_weights_early(self.transfers.tiles.problem, self.transfers.tiles.plan)

    def first_weights(self) -> Nodes:
        """The W tile of the first step."""
        make, step = self.steps.at(FIRST)
        load = self._load_weights_part(step, W_ARRIVED)
        return (*make, *self.where_weights_are_needed(step, load))

    def where_weights_are_needed(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes``, the load of a W tile or the wait for it, where this TLT has filters for it
        and, for tiles of its own that do not stay, rows and columns."""
        nodes = when(step.own, ">", nodes)
        if self.shared_w.buffer.level is None and self.transfers.tiles.plan.schedule != "WS":
            nodes = when_has_place(step, nodes)
        return nodes

    def _load_in_part(self, step: Step, arrived: int) -> Nodes:
        """The IN tile, or this TLE's part of it where TLEs share it over the ring."""
        if self.inputs is None:
            return self._load_in_from(self.transfers, step, step.n, arrived)
        first, behind = self.inputs
        channel = step.n - behind.channel
        return when(
            channel + 1, ">",
            self._load_in_from(behind.transfers, step, channel, arrived),
            self._load_in_from(first, step, step.n, arrived),
        )  # fmt: skip

    def _load_in_from(
        self, transfers: ConvTransfers, step: Step, channel: Expression, arrived: int
    ) -> Nodes:
        """Likewise, of channels from ``channel`` on."""
        tiles, shared = transfers.tiles, self.shared_in
        half = step.in_half * self.layout.in_half_bytes
        make_place, under = self.steps.under(step)
        first = step.group * tiles.channels + channel

        def load(channel: Expression, channels: Expression, offset: Expression) -> Nodes:
            on_chip = shared.on_chip(half + offset, arrived)
            if tiles.by_channels:
                return transfers.load_in_by_channels(
                    shared.mnemonic, (channel, channels), under, on_chip, arrived
                )
            return (transfers.load_in(shared.mnemonic, channel, channels, under, on_chip),)

        if shared.parts == 1:
            return (*make_place, *load(first, step.channels, Expression()))
        count, make_count = clamped("in_channels", shared.part_extent, step.channels - shared.part)
        area, make_area = product(
            "in_area", tiles.in_extent(0, under.rows), tiles.in_extent(1, under.columns)
        )
        offset, make_offset = product("in_offset", shared.part, area * tiles.size)
        part = (*make_place, *make_area, *make_offset, *load(first + shared.part, count, offset))
        nothing = self._no_load(
            shared, Stream.IN, Memory.MB0, transfers.words.in_address, arrived
        )
        return (*make_count, *when(count, ">", part, (nothing,)))

    def _load_weights_part(self, step: Step, arrived: int) -> Nodes:
        """The W tile, or this TLE's part of it."""
        tiles, shared, words = self.transfers.tiles, self.shared_w, self.transfers.words
        plan, size = tiles.plan, tiles.size
        stays = plan.schedule == "WS"
        channels = Expression.of(tiles.channels) if stays else step.channels
        n = Expression() if stays else step.n
        half = step.w_half * self.layout.w_half_bytes
        address = words.w_address + step.group * group_bytes(plan, tiles.problem, tiles.shares)
        address = address + step.m * tiles.filter_bytes
        tiled = is_tiled(plan, tiles.problem)
        address = address + n * (tiles.taps * size * (tiles.largest[0] if tiled else 1))

        def load(address: Expression, filters: Expression, offset: Expression) -> Nodes:
            on_chip = shared.on_chip(half + offset, arrived)
            if not tiled:
                return (
                    self.transfers.load_weights(
                        shared.mnemonic, address, filters, channels, on_chip
                    ),
                )
            bytes_, make = product("w_bytes", filters, channels * (tiles.taps * size))
            run = run_transfer(
                shared.mnemonic, Stream.WEIGHT, Memory.MB1, address, arrived, bytes_, size,
                on_chip,
            )  # fmt: skip
            return (*make, run)

        if shared.parts == 1:
            return load(address, step.own, Expression())
        count, make_count = clamped("w_filters", shared.part_extent, step.own - shared.part)
        offset, make_offset = product("w_offset", shared.part, channels * (tiles.taps * size))
        begin = address + (offset if tiled else shared.part * tiles.filter_bytes)
        part = (*make_offset, *load(begin, count, offset))
        nothing = self._no_load(shared, Stream.WEIGHT, Memory.MB1, words.w_address, arrived)
        return (*make_count, *when(count, ">", part, (nothing,)))

    def _no_load(
        self,
        shared: SharedTile,
        stream: Stream,
        memory: Memory,
        address: Expression,
        arrived: int,
    ) -> Transfer:
        """A transfer of nothing, so that all receivers count as many arrivals in every step."""
        on_chip = shared.on_chip(Expression(), arrived)
        size = self.transfers.tiles.size
        return run_transfer(shared.mnemonic, stream, memory, address, arrived, 0, size, on_chip)
