"""Convolutions whose IN tiles are shared by a TLE.

TLT 0 waits until every TLT has freed its IN buffer and loads for all; each TLT loads its own W
tile.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm_npu.codegen.nmp.commands import (
    Affine,
    Compute,
    Minimum,
    Nodes,
    Variable,
    loop,
    when,
)
from tvm_npu.codegen.nmp.conv_tiles import BIAS_BYTES, ConvolutionTiles
from tvm_npu.codegen.nmp.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    TLT,
    W_ARRIVED,
    free_in,
    out_registers,
    stored,
    wait,
    wait_in_free,
    wait_store,
)
from tvm_npu.codegen.nmp.layer import LayerCode, finish
from tvm_npu.sim.isa.xnmp import Initialise


class Multicast(ConvolutionTiles):
    """One tree for IS, OS and WS; with groups, the groups run one after another."""

    def code(self) -> LayerCode:
        return finish(self.parameters, loop("group", self.problem.groups, 1, self._group))

    def _group(self, group: Affine, _: Affine) -> Nodes:
        """One group as a convolution of its own."""
        self.group = group
        bias = self.bias_address + group * (self.filters * BIAS_BYTES)
        return (*when(self.items, ">", self.load_biases(bias, self.items)), *self._schedule())

    def _schedule(self) -> Nodes:
        if self.plan.schedule == "WS":
            return self._over_filters(self._keep_weights)
        if self.plan.schedule == "IS":
            return self.over_places(lambda *place: self._out_tile(Affine(), self.items, *place))
        return self.over_places(
            lambda *place: self._over_filters(lambda m, own: self._out_tile(m, own, *place))
        )

    def _over_filters(self, body: Callable[[Affine, Affine], Nodes]) -> Nodes:
        """Filter tiles; all TLTs of a TLE make as many turns, the last may be empty for some."""

        def turn(m: Affine, extent: Affine) -> Nodes:
            if self.items == self.most_items:
                return body(m, extent)
            if m.is_constant:
                return body(m, self.items)
            own = Variable("own_filters", 0, self.plan.tile_m)
            return (Minimum(own, self.plan.tile_m, self.items - m), *body(m, Affine.of(own)))

        return loop("filter", self.most_items, self.plan.tile_m, turn)

    def _w_address(self, m: Affine, n: Affine) -> Affine:
        group_bytes = self.filters * self.filter_bytes
        address = self.w_address + self.group * group_bytes + m * self.filter_bytes
        return address + n * (self.taps * self.size)

    def _keep_weights(self, m: Affine, own: Affine) -> Nodes:
        """WS: the weights of a filter tile are loaded once, then the OFM is walked."""
        load = self.load_weights(self._w_address(m, Affine()), own, Affine.of(self.channels))
        return (
            *when(own, ">", (load, wait(W_ARRIVED))),
            *self.over_places(lambda *place: self._out_tile(m, own, *place)),
        )

    def _out_tile(
        self, m: Affine, own: Affine, row: Affine, rows: Affine, column: Affine, columns: Affine
    ) -> Nodes:
        """All channels of one OUT tile, then its end. ``own`` may be 0: a TLT without filters
        still takes part in the multicasts."""
        problem, size = self.problem, self.size
        out = out_registers(own, rows, columns, size)
        load_in_args = (row, rows, column, columns)
        first_channel = self.group * self.channels
        keeps_weights = self.plan.schedule == "WS"

        def step(n: Affine, channels: Affine) -> Nodes:
            tlts = self.machine.cores.tlts_per_tle
            load = self.load_in("nmp_mload", first_channel + n, channels, *load_in_args)
            if keeps_weights:
                load_w: Nodes = ()
                w_ready: Nodes = ()
                offset = n * (self.taps * size)
                pitch = Affine.of(self.channels * self.taps)
            else:
                load_w = (self.load_weights(self._w_address(m, n), own, channels),)
                w_ready = (wait(W_ARRIVED),)
                offset, pitch = Affine(), channels * self.taps

            def multiply(initialise: Initialise) -> Compute:
                return self.multiply(
                    out, initialise, m, channels, offset, pitch, Affine.of(1), rows, columns
                )

            work = (
                *w_ready,
                *when(
                    n, "==",
                    (*wait_store(), multiply(Initialise.BIAS)),
                    (multiply(Initialise.KEEP),),
                ),
                wait(MAC_DONE),
            )  # fmt: skip
            free = free_in()
            if problem.has_residual:  # the residual tile still goes through MB0 after the last step
                free = when(Affine.of(self.channels) - n - channels, ">", free)
            return (
                *when(TLT, "==", (wait_in_free(tlts), load)),
                *when(own, ">", load_w),
                wait(IN_ARRIVED),
                *when(own, ">", work),
                *free,
            )

        filter_ = self.group * self.filters + self.first_item + m
        tile = (filter_, own, row, rows, column, columns)
        end: Nodes = (
            *self.requantize(out),
            self.out_transfer(False, *tile),
            *stored(),
        )
        steps = loop("channel", self.channels, self.plan.tile_n, step)
        if not problem.has_residual:
            return (*steps, *when(own, ">", end))
        add = self.add_residual(out, self.out_transfer(True, *tile))
        return (*steps, *when(own, ">", add), *free_in(), *when(own, ">", end))
