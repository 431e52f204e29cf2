"""The operators, by the type of a layer: the only such list. What the compiler asks of all layers
alike is asked here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from tvm_npu.codegen.errors import GraphError, UnsupportedLayerError
from tvm_npu.codegen.graph.fixed import FixedGraph
from tvm_npu.codegen.graph.graph import Graph
from tvm_npu.codegen.graph.layer import FixedLayer, Layer, Requantized
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.block import BlockOperator, FixedBlock
from tvm_npu.codegen.ops.broadcast import (
    Broadcast,
    BroadcastOperator,
    Difference,
    DifferenceOperator,
    FixedBroadcast,
    FixedDifference,
)
from tvm_npu.codegen.ops.cascade import CascadeOperator, FixedCascade
from tvm_npu.codegen.ops.channel_slice import (
    ChannelSlice,
    ChannelSliceOperator,
    FixedChannelSlice,
)
from tvm_npu.codegen.ops.concat import Concat, ConcatOperator, FixedConcat
from tvm_npu.codegen.ops.conv2d import Conv2d, Conv2dOperator, FixedConv
from tvm_npu.codegen.ops.conv_maxima import ConvMaximaOperator, FixedConvMaxima
from tvm_npu.codegen.ops.conv_pixels import ConvPixelsOperator, FixedConvPixels
from tvm_npu.codegen.ops.conv_sum import ConvSumOperator, FixedConvSum
from tvm_npu.codegen.ops.dense import Dense, DenseOperator
from tvm_npu.codegen.ops.elementwise import Elementwise, ElementwiseOperator, FixedElementwise
from tvm_npu.codegen.ops.gru import FixedGru, Gru, GruOperator
from tvm_npu.codegen.ops.join import Join, JoinOperator
from tvm_npu.codegen.ops.lstm import FixedLstm, Lstm, LstmOperator
from tvm_npu.codegen.ops.max_feature_map import (
    FixedMaxFeatureMap,
    MaxFeatureMap,
    MaxFeatureMapOperator,
)
from tvm_npu.codegen.ops.maximum import FixedMaximum, Maximum, MaximumOperator
from tvm_npu.codegen.ops.move import FixedMove, FixedMoveOperator
from tvm_npu.codegen.ops.operator import Operator
from tvm_npu.codegen.ops.pad import FixedPad, Pad, PadOperator
from tvm_npu.codegen.ops.pool import FixedPool, Pool, PoolOperator
from tvm_npu.codegen.ops.reflect_pad import FixedReflectPad, ReflectPad, ReflectPadOperator
from tvm_npu.codegen.ops.reshape import FixedReshape, Reshape, ReshapeOperator
from tvm_npu.codegen.ops.resize import ResizeNearest, ResizeNearestOperator
from tvm_npu.codegen.ops.run import FixedRun, RunOperator
from tvm_npu.codegen.ops.scale_shift import ScaleShift, ScaleShiftOperator
from tvm_npu.codegen.ops.softmax import FixedSoftmax, Softmax, SoftmaxOperator
from tvm_npu.codegen.ops.strided_slice import StridedSlice, StridedSliceOperator
from tvm_npu.codegen.ops.table import FixedTable, TableFunction, TableOperator
from tvm_npu.codegen.ops.transpose import Transpose, TransposeOperator
from tvm_npu.codegen.ops.transposed_conv import (
    FixedTransposedConv,
    TransposedConv,
    TransposedConvOperator,
)
from tvm_npu.sim.description import Requantization

AnyLayer = Layer | FixedLayer
AnyOperator = Operator[Any, Any]

_CONV, _DENSE, _POOL = Conv2dOperator(), DenseOperator(), PoolOperator()
_ELEMENTWISE, _PAD, _CONCAT = ElementwiseOperator(), PadOperator(), ConcatOperator()
_RESHAPE, _SLICE = ReshapeOperator(), ChannelSliceOperator()
_TRANSPOSED, _REFLECT, _TABLE = TransposedConvOperator(), ReflectPadOperator(), TableOperator()
_MAXIMUM, _FEATURE_MAP = MaximumOperator(), MaxFeatureMapOperator()
_BROADCAST, _DIFFERENCE = BroadcastOperator(), DifferenceOperator()
_LSTM, _GRU = LstmOperator(), GruOperator()
_SOFTMAX = SoftmaxOperator()

OPERATORS: dict[type[AnyLayer], AnyOperator] = {
    Conv2d: _CONV, FixedConv: _CONV,
    Dense: _DENSE,
    Pool: _POOL, FixedPool: _POOL,
    ScaleShift: ScaleShiftOperator(),
    Elementwise: _ELEMENTWISE, FixedElementwise: _ELEMENTWISE,
    Broadcast: _BROADCAST, FixedBroadcast: _BROADCAST,
    Difference: _DIFFERENCE, FixedDifference: _DIFFERENCE,
    Pad: _PAD, FixedPad: _PAD,
    Concat: _CONCAT, FixedConcat: _CONCAT,
    Reshape: _RESHAPE, FixedReshape: _RESHAPE,
    ChannelSlice: _SLICE, FixedChannelSlice: _SLICE,
    TransposedConv: _TRANSPOSED, FixedTransposedConv: _TRANSPOSED,
    ReflectPad: _REFLECT, FixedReflectPad: _REFLECT,
    Maximum: _MAXIMUM, FixedMaximum: _MAXIMUM,
    MaxFeatureMap: _FEATURE_MAP, FixedMaxFeatureMap: _FEATURE_MAP,
    TableFunction: _TABLE, FixedTable: _TABLE,
    Softmax: _SOFTMAX, FixedSoftmax: _SOFTMAX,
    Lstm: _LSTM, FixedLstm: _LSTM,
    Gru: _GRU, FixedGru: _GRU,
    Transpose: TransposeOperator(), Join: JoinOperator(), StridedSlice: StridedSliceOperator(),
    ResizeNearest: ResizeNearestOperator(), FixedMove: FixedMoveOperator(),
    FixedCascade: CascadeOperator(), FixedBlock: BlockOperator(), FixedRun: RunOperator(),
    FixedConvMaxima: ConvMaximaOperator(),
    FixedConvPixels: ConvPixelsOperator(),
    FixedConvSum: ConvSumOperator(),
}  # fmt: skip


def operator_for(kind: type[AnyLayer]) -> AnyOperator:
    """The operator of a type of layers; GraphError when there is none."""
    found = OPERATORS.get(kind)
    if found is None:
        names = ", ".join(known.__name__ for known in OPERATORS)
        raise GraphError(f"{kind.__name__} is no layer of this kind of graph; known are {names}")
    return found


def operator_of(layer: AnyLayer) -> AnyOperator:
    return operator_for(type(layer))


def kind_of(layer: FixedLayer) -> str:
    """The layer table's word for a layer."""
    return operator_of(layer).word(layer)


def tied_tensors(layer: Layer) -> Sequence[tuple[str, ...]]:
    """Groups of a layer's tensors that share a scale, those of its states included."""
    return (*operator_of(layer).ties(layer), *(state.tensors for state in layer.states))


def layer_macs(layer: AnyLayer, shapes: Mapping[str, Shape]) -> int:
    """Multiply-accumulates of one layer for one image."""
    inputs = [shapes[tensor] for tensor in layer.inputs]
    return operator_of(layer).macs(layer, inputs, [shapes[tensor] for tensor in layer.outputs])


def emitted_layers(kind: type[AnyLayer]) -> frozenset[type[FixedLayer]]:
    """The types of fixed-point layers that a machine must have code for to take a layer of type
    ``kind``; what is only layout needs none."""
    return operator_for(kind).emitted(kind)


def missing_layers(
    kind: type[AnyLayer], available: Collection[type[FixedLayer]]
) -> tuple[type[FixedLayer], ...]:
    """The fixed-point layers that layers of type ``kind`` need and a machine has no code for, by
    name; a door that asks this never offers what cannot be emitted."""
    missing = emitted_layers(kind).difference(available)
    return tuple(sorted(missing, key=lambda one: one.__name__))


def check_support(
    layers: Iterable[FixedLayer], available: Collection[type[FixedLayer]], machine: str
) -> None:
    """UnsupportedLayerError for the first layer that the machine called ``machine`` has no code
    for; ``available`` are the types that it has code for."""
    for layer in layers:
        missing = missing_layers(type(layer), available)
        if missing:
            known = ", ".join(sorted(one.__name__ for one in available))
            raise UnsupportedLayerError(
                f"layer {layer.name!r} ({kind_of(layer)}) needs code for {missing[0].__name__}, "
                f"which machine {machine!r} does not have; it has code for {known}. Leave the "
                "layer's operators to the CPU",
                layer.name,
            )


def check_requantization(
    layer: FixedLayer, requantization: Requantization, machine: str
) -> None:
    """UnsupportedLayerError for a layer with a Q-point a filter, if the machine called ``machine``
    shifts all filters alike, or with multipliers, if it has none."""
    if _needs_multipliers(layer) and not requantization.multiplier_bits:
        raise UnsupportedLayerError(
            f"layer {layer.name!r} is for multipliers; the requantize step of machine {machine!r} "
            "has none at this precision. Quantize the graph for this machine",
            layer.name,
        )
    has_shifts = isinstance(layer, FixedConv) and layer.filter_shifts is not None
    if has_shifts and not requantization.is_per_channel:
        raise UnsupportedLayerError(
            f"layer {layer.name!r} has a Q-point a filter; machine {machine!r} has one a layer "
            "at this precision. Quantize the graph for this machine",
            layer.name,
        )


def _needs_multipliers(layer: FixedLayer) -> bool:
    if isinstance(layer, FixedPool):
        return layer.halves_away
    if isinstance(layer, FixedElementwise) and layer.weights is not None:
        return True
    return isinstance(layer, Requantized) and layer.rescaling is not None


def check_shapes(graph: Graph | FixedGraph) -> None:
    """GraphError for a layer whose inputs it cannot take, or whose outputs have another shape than
    the graph says."""
    for layer in cast("Iterable[AnyLayer]", graph.layers):
        inputs = [graph.shapes[tensor] for tensor in layer.inputs]
        declared = [graph.shapes[tensor] for tensor in layer.outputs]
        made = operator_of(layer).shapes(layer, inputs, declared)
        if list(made) != declared:
            raise GraphError(
                f"layer {layer.name!r} makes {list(made)}; the graph says that "
                f"{list(layer.outputs)} have {declared}"
            )
