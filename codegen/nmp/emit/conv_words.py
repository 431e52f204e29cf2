"""The words of a core's line that every convolution has: its share, and where its tensors lie."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.layer import Operands
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.weights import weight_runs
from tvm_npu.sim.machine_parts import BIAS_BYTES


@dataclass(frozen=True)
class ConvWords:
    """OUT rows and columns of a core, its items (filters of a group, or groups), and the DRAM
    addresses of its operands; weights and biases begin at the core's first item."""

    first_row: Expression
    rows: Expression
    first_column: Expression
    columns: Expression
    first_item: Expression
    items: Expression
    in_address: Expression
    w_address: Expression
    bias_address: Expression
    out_address: Expression
    residual_address: Expression | None


def conv_parameters(tiles: ConvTiles) -> LayerParameters:
    """No words yet; cores without a share, or without groups of a grouped plan, are not active."""
    cores = tiles.shares.cores
    return LayerParameters(
        [one is not None and not (tiles.is_grouped and not one.items) for one in cores]
    )


def conv_words(
    name: str, tiles: ConvTiles, parameters: LayerParameters, operands: Operands
) -> ConvWords:
    """Adds the words of the layer ``name`` to ``parameters``. EmitError for operands without
    weights."""
    if operands.weight is None or operands.bias is None:
        raise EmitError(f"layer {name!r}: no weights")
    weight, bias = operands.weight, operands.bias
    number, address, values = parameters.number, parameters.address, tiles.shares.values
    item_bias_bytes = BIAS_BYTES * (tiles.filters if tiles.is_grouped else tiles.problem.planes)
    firsts = values(lambda one: one.first_item)
    runs = weight_runs(tiles.plan, tiles.problem, tiles.shares)
    return ConvWords(
        first_row=number("first_row", values(lambda one: one.first_row)),
        rows=number("rows", values(lambda one: one.rows)),
        first_column=number("first_column", values(lambda one: one.first_column)),
        columns=number("columns", values(lambda one: one.columns)),
        first_item=number("first_item", firsts),
        items=number("items", values(lambda one: one.items)),
        in_address=address("in_address", operands.inputs[0]),
        w_address=address("w_address", [weight.plus(offset) for offset in runs]),
        bias_address=address(
            "bias_address", [bias.plus(first * item_bias_bytes) for first in firsts]
        ),
        out_address=address("out_address", operands.output),
        residual_address=(
            address("residual_address", operands.inputs[1]) if tiles.problem.has_residual else None
        ),
    )
