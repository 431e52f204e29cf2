"""The questions that layers ask on a Snowflake machine, and who answers them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import (
    FixedBroadcast,
    FixedConv,
    FixedConvMaxima,
    FixedConvPixels,
    FixedElementwise,
    FixedGru,
    FixedLstm,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedMove,
    FixedPad,
    FixedPool,
    FixedReflectPad,
    FixedReshape,
    FixedTable,
    FixedTransposedConv,
)
from tvm_npu.codegen.plan.planner import Planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.behind import MaximaProblem, maxima_plan, maxima_problem
from tvm_npu.codegen.snowflake.plan.move import MoveShape, move_shape, move_tiles
from tvm_npu.codegen.snowflake.plan.phases import TransposedShape, transposed_shape
from tvm_npu.codegen.snowflake.plan.pools import PoolShape, pool_cost, pool_tiles
from tvm_npu.codegen.snowflake.plan.recurrent import (
    RecurrentShape,
    WeightsChosen,
    recurrent_plan,
)
from tvm_npu.codegen.snowflake.plan.side_by_side import block_problem
from tvm_npu.codegen.snowflake.plan.spread import (
    FlatShape,
    OrderShape,
    PadShape,
    flat_cycles,
    flat_tiles,
    order_tiles,
    pad_tiles,
)
from tvm_npu.codegen.snowflake.plan.transposed import transposed_plan
from tvm_npu.codegen.snowflake.steps.cells import cell_shape
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

_FLAT = FixedElementwise | FixedBroadcast | FixedMaximum | FixedMaxFeatureMap | FixedTable


def question(layer: FixedLayer, shapes: Mapping[str, Shape]) -> Any:
    """What is asked about ``layer``."""
    if isinstance(layer, FixedConv):
        in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
        return conv_problem(layer, in_shape, out_shape, WORD_BYTES)
    if isinstance(layer, FixedConvPixels):
        return block_problem(question(layer.conv, shapes), layer)
    if isinstance(layer, FixedConvMaxima):
        return maxima_problem(layer, shapes)
    if isinstance(layer, FixedTransposedConv):
        return transposed_shape(
            chw(shapes[layer.inputs[0]]), chw(shapes[layer.output]), layer.kernel, layer.stride,
            (layer.padding[0], layer.padding[1]), layer.groups,
        )  # fmt: skip
    if isinstance(layer, FixedPool):
        channels, rows, columns = chw(shapes[layer.output])
        _, in_rows, in_columns = chw(shapes[layer.inputs[0]])
        top, left, _, _ = layer.padding
        (kernel_r, kernel_c), (stride_r, stride_c) = layer.kernel, layer.stride
        return PoolShape(
            Axis(in_rows, rows, kernel_r, stride_r, before=top),
            Axis(in_columns, columns, kernel_c, stride_c, before=left),
            channels, layer.kind == "max",
        )  # fmt: skip
    if isinstance(layer, _FLAT):
        channels, rows, columns = chw(shapes[layer.output])
        operands = 2 if isinstance(layer, FixedMaxFeatureMap) else len(layer.inputs)
        return FlatShape(rows * columns, channels, operands, False)
    if isinstance(layer, FixedPad | FixedReflectPad):
        channels, rows, columns = chw(shapes[layer.output])
        return PadShape(rows, columns, channels)
    if isinstance(layer, FixedMove):
        return move_shape(layer)
    if isinstance(layer, FixedReshape):
        return OrderShape(prod(shapes[layer.output]))
    if isinstance(layer, FixedLstm | FixedGru):
        return cell_shape(layer, shapes[layer.inputs[0]][0])
    raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")


def answer(asked: Any, machine: SnowflakeMachine, chosen: Planner) -> Any:
    """A plan or Infeasible: of ``chosen`` for convolutions."""
    if isinstance(asked, ConvProblem):
        return chosen.plan(asked, machine)
    if isinstance(asked, MaximaProblem):
        return maxima_plan(asked, machine, chosen)
    if isinstance(asked, TransposedShape):
        return transposed_plan(asked, machine)
    if isinstance(asked, PoolShape):
        return pool_tiles(asked, machine)
    if isinstance(asked, FlatShape):
        return flat_tiles(asked, machine)
    if isinstance(asked, MoveShape):
        return move_tiles(asked, machine)
    if isinstance(asked, PadShape):
        return pad_tiles(asked, machine)
    if isinstance(asked, RecurrentShape):
        keeps_weights = chosen.keeps_weights if isinstance(chosen, WeightsChosen) else None
        return recurrent_plan(asked, machine, keeps_weights)
    return order_tiles(asked, machine)


def expected_cycles(asked: Any, plan: Any, machine: SnowflakeMachine) -> float | None:
    """Predicted time of a layer; None where nothing is predicted."""
    if isinstance(asked, PoolShape):
        return pool_cost(asked, plan, machine).cycles
    if isinstance(asked, FlatShape):
        return flat_cycles(asked, machine)
    prediction = getattr(plan, "prediction", None)
    return None if prediction is None else float(prediction.cycles)
