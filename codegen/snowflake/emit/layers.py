"""Planned layers as compute steps, whatever their type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedLayer
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
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.snowflake.emit.conv import (
    conv_layer,
    conv_maxima_layer,
    conv_pixels_layer,
)
from tvm_npu.codegen.snowflake.emit.elementwise import (
    broadcast_layer,
    elementwise_layer,
    feature_map_layer,
    maximum_layer,
    table_layer,
)
from tvm_npu.codegen.snowflake.emit.others import (
    move_layer,
    pad_layer,
    pool_layer,
    reflect_layer,
    reorder_layer,
)
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.emit.recurrent import gru_layer, lstm_layer
from tvm_npu.codegen.snowflake.emit.tables import Tables
from tvm_npu.codegen.snowflake.emit.transposed import transposed_layer
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

BuildLayer = Callable[[Any, Site], Sequence[LayerSteps]]

BUILDERS: Mapping[type[FixedLayer], BuildLayer] = {
    FixedConv: conv_layer,
    FixedConvMaxima: conv_maxima_layer,
    FixedConvPixels: conv_pixels_layer,
    FixedPool: pool_layer,
    FixedTransposedConv: transposed_layer,
    FixedElementwise: elementwise_layer,
    FixedBroadcast: broadcast_layer,
    FixedMaximum: maximum_layer,
    FixedMaxFeatureMap: feature_map_layer,
    FixedTable: table_layer,
    FixedLstm: lstm_layer,
    FixedGru: gru_layer,
    FixedPad: pad_layer,
    FixedReflectPad: reflect_layer,
    FixedReshape: reorder_layer,
    FixedMove: move_layer,
}
"""By type of layer: the steps of each cluster."""


def layer_steps(
    index: int, one: PlannedLayer, planned: PlannedGraph, machine: SnowflakeMachine,
    constants: Constants, tables: Tables, clusters: int,
) -> Sequence[LayerSteps]:  # fmt: skip
    """What each cluster does for a layer: those that are left out do nothing."""
    build = BUILDERS.get(type(one.layer))
    if build is None:
        raise EmitError(f"layer {one.layer.name!r}: no code for {type(one.layer).__name__}")
    return build(one.layer, Site(index, one, planned, machine, constants, tables, clusters))
