"""Grouped convolutions that give every TLT whole groups, with IN tiles of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.commands import Nodes, Transfer, loop
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac, WTile
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles, conv_tiles
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers, OfmBox
from tvm_npu.codegen.nmp.emit.conv_words import ConvWords, conv_parameters, conv_words
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    W_ARRIVED,
    stored,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish, require_fit
from tvm_npu.codegen.nmp.emit.mac import first_bias, out_tile
from tvm_npu.codegen.nmp.emit.table import finish_place, load_table
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.tables import room_for
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


def grouped(
    layer: FixedConv,
    problem: ConvProblem,
    plan: ConvPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """The command tree of a layer whose TLTs have whole groups. EmitError for a plan that the
    machine cannot run."""
    tiles = conv_tiles(problem, plan, machine)
    parameters = conv_parameters(tiles)
    words = conv_words(layer.name, tiles, parameters, operands)
    if plan.tile_m % tiles.filters or plan.tile_n != tiles.channels or plan.schedule == "IS":
        raise EmitError(
            f"layer {layer.name!r}: a grouped plan needs tile_m a multiple of {tiles.filters}, "
            f"tile_n = {tiles.channels} and schedule OS or WS; it has {plan.tile_m}, "
            f"{plan.tile_n} and {plan.schedule}"
        )
    _require_fit(layer.name, tiles, room_for(problem, machine))
    mac = ConvMac(layer, tiles, finish_place(layer, machine, tiles.size))
    emitter = GroupedEmitter(tiles, words, ConvTransfers(tiles, words, layer.fill), mac)
    table = load_table(operands.table, parameters, machine, tiles.size)
    return finish(parameters, (*table, *emitter.nodes()))


def _require_fit(name: str, tiles: ConvTiles, machine: NmpMachine) -> None:
    in_bytes, w_bytes, out_bytes = tiles.tile_bytes()
    require_fit(name, "the IN tile", in_bytes, machine, "mb0")
    require_fit(name, "the W tile", w_bytes, machine, "mb1")
    require_fit(name, "the OUT tile", out_bytes, machine, "mb2")
    require_fit(name, "the biases of one TLT", tiles.most.filters * BIAS_BYTES, machine, "bias")
    if tiles.problem.has_residual:
        require_fit(name, "the residual tile", out_bytes, machine, "mb0")


@dataclass(frozen=True)
class GroupedEmitter:
    """Whole groups a TLT: OS loads IN and W for every tile, WS keeps the weights."""

    tiles: ConvTiles
    words: ConvWords
    transfers: ConvTransfers
    mac: ConvMac

    def nodes(self) -> Nodes:
        """The whole layer."""
        plan, words = self.tiles.plan, self.words
        biases = self.transfers.load_biases(words.bias_address, words.items * self.tiles.filters)
        groups = plan.tile_m // self.tiles.filters
        if plan.schedule == "WS":
            return (*biases, *loop("group", words.items, groups, self._keep_weights))

        def over_groups(box: OfmBox) -> Nodes:
            return loop(
                "group", words.items, groups,
                lambda g, count: self._out_tile(g, count, False, box),
            )  # fmt: skip

        return (*biases, *self._over_places(over_groups))

    def _over_places(self, body: Callable[[OfmBox], Nodes]) -> Nodes:
        """Row and column tiles of the OFM."""
        plan, words = self.tiles.plan, self.words
        return loop(
            "row", words.rows, plan.tile_r,
            lambda r, rows: loop(
                "column", words.columns, plan.tile_c,
                lambda c, columns: body(
                    OfmBox(words.first_row + r, rows, words.first_column + c, columns)
                ),
            ),
        )  # fmt: skip

    def _load_weights(self, g: Expression, count: Expression) -> Transfer:
        tiles = self.tiles
        address = self.words.w_address + g * (tiles.filters * tiles.filter_bytes)
        return self.transfers.load_weights(
            "nmp_load", address, count * tiles.filters, Expression.of(tiles.channels)
        )

    def _keep_weights(self, g: Expression, count: Expression) -> Nodes:
        return (
            self._load_weights(g, count),
            wait(W_ARRIVED),
            *self._over_places(lambda box: self._out_tile(g, count, True, box)),
        )

    def _out_tile(self, g: Expression, count: Expression, has_weights: bool, box: OfmBox) -> Nodes:
        tiles = self.tiles
        first = self.words.first_item + g
        load_in = self.transfers.load_in(
            "nmp_load", first * tiles.channels, count * tiles.channels, box
        )
        load_w: Nodes = () if has_weights else (self._load_weights(g, count),)
        w_ready: Nodes = () if has_weights else (wait(W_ARRIVED),)
        filter_, filters = first * tiles.filters, count * tiles.filters
        out = out_tile(filters, box.rows, box.columns, tiles.size)
        pitch = Expression.of(tiles.channels * tiles.taps)
        bias = g * tiles.filters
        multiply = self.mac.multiply(
            out, first_bias(self.mac.layer), WTile(Expression(), pitch, bias),
            Expression.of(tiles.channels), count, (box.rows, box.columns),
        )  # fmt: skip
        residual: Nodes = ()
        if tiles.problem.has_residual:
            load = self.transfers.load_residual(filter_, filters, box)
            residual = (load, *self.mac.add_residual(out, bias))
        return (
            load_in,
            *load_w,
            wait(IN_ARRIVED),
            *w_ready,
            *wait_store(),
            multiply,
            wait(MAC_DONE),
            *residual,
            *self.mac.requantize(out, bias, filter_),
            self.transfers.store_out(filter_, filters, box),
            *stored(),
        )
