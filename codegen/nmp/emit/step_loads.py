"""The transfers of a step: the IN and the W tile, or a TLE's part of them."""

from __future__ import annotations

from tvm_npu.codegen.nmp.emit.commands import (
    Affine,
    Assign,
    Nodes,
    Transfer,
    Variable,
    clamped,
    product,
    when,
)
from tvm_npu.codegen.nmp.emit.conventions import OnChip, run_transfer
from tvm_npu.codegen.nmp.emit.steps import SharedSteps, Step
from tvm_npu.codegen.nmp.emit.weights import group_bytes, is_tiled
from tvm_npu.sim.nmp.xnmp import Memory
from tvm_npu.sim.streams import Stream

IN_HALF, W_HALF = Variable("in_half", 0, 1), Variable("w_half", 0, 1)
"""The halves of MB0 and MB1 that were loaded last."""


class StepLoads(SharedSteps):
    """What a TLT loads in a step, for itself and for others."""

    group = Affine()
    in_half_bytes = w_half_bytes = 0

    def load(self, step: Step) -> Nodes:
        flip_in: Nodes = ()
        flip_w: Nodes = ()
        if self.in_halves == 2:
            flip_in = (Assign(IN_HALF, Affine.of(IN_HALF) * -1 + 1),)
        if self.w_halves == 2:
            flip_w = (Assign(W_HALF, Affine.of(W_HALF) * -1 + 1),)
        load_in = self.is_place(
            step,
            self.shared_in.with_semaphore(
                step.in_half, lambda number: self._load_in_part(step, number)
            ),
        )
        load_w = self.own_weights(
            step,
            self.shared_w.with_semaphore(
                step.w_half, lambda number: self._load_weights_part(step, number)
            ),
        )
        if self.weights_come_early:
            load_w = when(step.m + step.r + step.c + step.n, "!=", load_w)
        return (
            *self.loads_in(step, (*flip_in, *self.shared_in.acquire(step.in_half, load_in))),
            *self.loads_weights(step, (*flip_w, *self.shared_w.acquire(step.w_half, load_w))),
        )

    @property
    def weights_come_early(self) -> bool:
        """The first W tile needs nothing of the layer before, nor of any other TLT. (With one
        buffer it only queues in front of what other TLTs still load for the layer before.)"""
        is_own = self.shared_w.level is None and self.problem.groups == 1
        return is_own and self.plan.buffers == 2

    def own_weights(self, step: Step, load: Nodes) -> Nodes:
        """``load`` of a W tile, or the wait for it, where this TLT has filters for it and, for
        tiles of its own that do not stay, rows and columns."""
        load = when(step.own, ">", load)
        if self.shared_w.level is None and self.plan.schedule != "WS":
            load = self.is_place(step, load)
        return load

    def _load_in_part(self, step: Step, arrived: int) -> Nodes:
        """The IN tile, or this TLE's part of it where TLEs share it over the ring."""
        half = step.in_half * self.in_half_bytes
        make_place, at = self.under(step)
        place = (at.row, at.rows, at.column, at.columns)
        first = self.group * self.channels + step.n

        def load(channel: Affine, channels: Affine, offset: Affine) -> Transfer:
            on_chip = OnChip(half + offset, self.in_tlts, self.in_tles, arrived)
            return self.load_in(self.in_mnemonic, channel, channels, *place, on_chip)

        if self.in_parts == 1:
            return (*make_place, load(first, step.channels, Affine()))
        count, make_count = clamped(
            "in_channels", self.in_part_channels, step.channels - self.in_part
        )
        area, make_area = product(
            "in_area", self.in_extent(0, at.rows), self.in_extent(1, at.columns)
        )
        offset, make_offset = product("in_offset", self.in_part, area * self.size)
        part = (*make_place, *make_area, *make_offset, load(first + self.in_part, count, offset))
        return (*make_count, *when(count, ">", part, (self._no_load(Stream.IN, arrived),)))

    def _load_weights_part(self, step: Step, arrived: int) -> Nodes:
        """The W tile, or this TLE's part of it."""
        plan, size = self.plan, self.size
        channels = Affine.of(self.channels) if plan.schedule == "WS" else step.channels
        n = Affine() if plan.schedule == "WS" else step.n
        half = step.w_half * self.w_half_bytes
        address = self.w_address + self.group * group_bytes(plan, self.problem, self.shares)
        address = address + step.m * self.filter_bytes
        tiled = is_tiled(plan, self.problem)
        address = address + n * (self.taps * size * (self.tile[0] if tiled else 1))

        def load(address: Affine, filters: Affine, offset: Affine) -> Nodes:
            on_chip = OnChip(half + offset, self.w_tlts, self.w_tles, arrived)
            if not tiled:
                return (self.load_weights(self.w_mnemonic, address, filters, channels, on_chip),)
            bytes_, make = product("w_bytes", filters, channels * (self.taps * size))
            run = run_transfer(
                self.w_mnemonic, Stream.WEIGHT, Memory.MB1, address, arrived, bytes_, size,
                on_chip,
            )  # fmt: skip
            return (*make, run)

        if self.w_parts == 1:
            return load(address, step.own, Affine())
        count, make_count = clamped("w_filters", self.w_part_filters, step.own - self.w_part)
        offset, make_offset = product("w_offset", self.w_part, channels * (self.taps * size))
        begin = address + (offset if tiled else self.w_part * self.filter_bytes)
        part = (*make_offset, *load(begin, count, offset))
        return (*make_count, *when(count, ">", part, (self._no_load(Stream.WEIGHT, arrived),)))

    def _no_load(self, stream: Stream, arrived: int) -> Transfer:
        """A transfer of nothing, so that all receivers count as many arrivals in every step."""
        if stream == Stream.IN:
            mnemonic, memory, address = self.in_mnemonic, Memory.MB0, self.in_address
            on_chip = OnChip(Affine(), self.in_tlts, self.in_tles, arrived)
        else:
            mnemonic, memory, address = self.w_mnemonic, Memory.MB1, self.w_address
            on_chip = OnChip(Affine(), self.w_tlts, self.w_tles, arrived)
        return run_transfer(mnemonic, stream, memory, address, arrived, 0, self.size, on_chip)
