"""Grouped convolutions that give every TLT whole groups, with IN tiles of its own."""

from __future__ import annotations

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.commands import (
    Affine,
    Nodes,
    Transfer,
    loop,
)
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvolutionTiles
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    W_ARRIVED,
    out_registers,
    stored,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.layer import LayerCode, finish, require_fit
from tvm_npu.codegen.plan.problem import BIAS_BYTES
from tvm_npu.sim.nmp.xnmp import Initialise


class Grouped(ConvolutionTiles):
    """Whole groups a TLT: OS loads IN and W for every tile, WS keeps the weights."""

    def code(self) -> LayerCode:
        plan = self.plan
        if plan.tile_m % self.filters or plan.tile_n != self.channels or plan.schedule == "IS":
            raise EmitError(
                f"layer {self.layer.name!r}: a grouped plan needs tile_m a multiple of "
                f"{self.filters}, tile_n = {self.channels} and schedule OS or WS; it has "
                f"{plan.tile_m}, {plan.tile_n} and {plan.schedule}"
            )
        self._require_fit()
        biases = self.load_biases(self.bias_address, self.items * self.filters)
        groups = plan.tile_m // self.filters
        if plan.schedule == "WS":
            body = loop("group", self.items, groups, self._keep_weights)
        else:
            body = self.over_places(
                lambda *place: loop(
                    "group", self.items, groups,
                    lambda g, count: self._out_tile(g, count, False, *place),
                )
            )  # fmt: skip
        return finish(self.parameters, (*biases, *body))

    def _require_fit(self) -> None:
        name = self.layer.name
        in_bytes, w_bytes, out_bytes = self.tile_bytes()
        require_fit(name, "the IN tile", in_bytes, self.machine, "mb0")
        require_fit(name, "the W tile", w_bytes, self.machine, "mb1")
        require_fit(name, "the OUT tile", out_bytes, self.machine, "mb2")
        biases = self.most.filters * BIAS_BYTES
        require_fit(name, "the biases of one TLT", biases, self.machine, "bias")
        if self.problem.has_residual:
            require_fit(name, "the residual tile", out_bytes, self.machine, "mb0")

    def _load_weights(self, g: Affine, count: Affine) -> Transfer:
        group_bytes = self.filters * self.filter_bytes
        filters, channels = count * self.filters, Affine.of(self.channels)
        return self.load_weights("nmp_load", self.w_address + g * group_bytes, filters, channels)

    def _keep_weights(self, g: Affine, count: Affine) -> Nodes:
        return (
            self._load_weights(g, count),
            wait(W_ARRIVED),
            *self.over_places(lambda *place: self._out_tile(g, count, True, *place)),
        )

    def _out_tile(
        self,
        g: Affine,
        count: Affine,
        has_weights: bool,
        row: Affine,
        rows: Affine,
        column: Affine,
        columns: Affine,
    ) -> Nodes:
        first = self.first_item + g
        place = (row, rows, column, columns)
        load_in = self.load_in("nmp_load", first * self.channels, count * self.channels, *place)
        load_w: Nodes = () if has_weights else (self._load_weights(g, count),)
        w_ready: Nodes = () if has_weights else (wait(W_ARRIVED),)
        out = out_registers(count * self.filters, rows, columns, self.size)
        multiply = self.multiply(
            out, Initialise.BIAS, g * self.filters, Affine.of(self.channels), Affine(),
            Affine.of(self.channels * self.taps), count, rows, columns,
        )  # fmt: skip
        tile = (first * self.filters, count * self.filters, *place)
        residual: Nodes = ()
        if self.problem.has_residual:
            residual = (self.out_transfer(True, *tile), *self.add_residual(out))
        return (
            load_in,
            *load_w,
            wait(IN_ARRIVED),
            *w_ready,
            *wait_store(),
            multiply,
            wait(MAC_DONE),
            *residual,
            *self.requantize(out),
            self.out_transfer(False, *tile),
            *stored(),
        )
