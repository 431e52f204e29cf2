"""Scale and shift by constants of a channel: batch normalization, biases, constant factors."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import FloatArray
from tvm_npu.codegen.ops.conv2d import FixedConv
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes, take


@dataclass(frozen=True, eq=False)
class ScaleShift(Layer):
    """Per-channel ``x * scale + bias`` by constants [C]; `codegen.passes.fuse` turns all of them
    into parts of a convolution or depthwise 1x1 convolutions."""

    scale: FloatArray
    bias: FloatArray


class ScaleShiftOperator(Operator[ScaleShift, FixedLayer]):
    layer = ScaleShift

    def shapes(self, layer: ScaleShift | FixedLayer, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, ScaleShift)
        take(layer, inputs, 1)
        channels = (inputs[0][0],)
        if layer.scale.shape != channels or layer.bias.shape != channels:
            raise GraphError(
                f"layer {layer.name!r} has scale {layer.scale.shape} and bias {layer.bias.shape}; "
                f"its tensor has {channels[0]} channels"
            )
        return (inputs[0],)

    def run_float(self, layer: ScaleShift, arrays: Arrays, shapes: Shapes) -> Arrays:
        column = (-1,) + (1,) * (len(shapes[0]) - 1)
        return (arrays[0] * layer.scale.reshape(column) + layer.bias.reshape(column),)

    def emitted(self, layer: type[Layer] | type[FixedLayer]) -> frozenset[type[FixedLayer]]:
        return frozenset({FixedConv})
