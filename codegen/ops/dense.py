"""Fully connected layers; in fixed point they are convolutions of a 1x1 map."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.graph.activation import NO_CLIP, Activation, Clip, slope_integers
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.tensors import FloatArray
from tvm_npu.codegen.ops.conv2d import FixedConv, dense_shape, scaled_conv, with_residual
from tvm_npu.codegen.ops.filter_weights import layer_weights
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, checked_shift, take


@dataclass(frozen=True, eq=False)
class Dense(Layer):
    """Fully connected layer on a flat tensor; optional second input: a residual.

    ``weight`` is [M, N], ``bias`` [M]; both float32.
    """

    weight: FloatArray
    bias: FloatArray
    activation: Activation = NO_CLIP


class DenseOperator(Operator[Dense, FixedConv]):
    """The fixed layer's meaning is that of a convolution (`codegen.ops.conv2d`)."""

    layer = Dense
    fixed = FixedConv
    may_widen = True

    def shapes(self, layer: Dense | FixedConv, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1, 2)
        return with_residual(layer, dense_shape(layer, layer.weight, inputs[0]), inputs)

    def run_float(self, layer: Dense, arrays: Arrays, shapes: Shapes) -> Arrays:
        acc = arrays[0] @ layer.weight.T + layer.bias
        return (layer.activation.apply(acc + arrays[1] if len(arrays) > 1 else acc),)

    def residuals(self, layer: Dense) -> tuple[tuple[str, str], ...]:
        return ((layer.inputs[1], layer.output),) if len(layer.inputs) > 1 else ()

    def takes_scales(self, layer: Dense) -> bool:
        return len(layer.inputs) == 1 and isinstance(layer.activation, Clip)

    def quantize(self, layer: Dense, numbers: Numbers) -> FixedConv:
        if not numbers.are_q_points(layer):
            return scaled_conv(layer, layer.weight[:, :, None, None], numbers, is_dense=True)
        made = layer_weights(layer, layer.weight, layer.bias, numbers)
        low, high = numbers.bounds(layer, layer.activation)
        return FixedConv(
            layer.name, layer.inputs, layer.outputs, made.weight[:, :, None, None], made.bias,
            accumulator_shift=made.accumulator_shift, residual_shift=made.residual_shift,
            is_dense=True, weight_q_point=made.q_point, filter_shifts=made.filter_shifts,
            source=layer.source,
            shift=checked_shift(layer, made.shift), low=low, high=high,
            slopes=slope_integers(layer.activation),
        )  # fmt: skip

    def macs(self, layer: Dense | FixedConv, inputs: Shapes, outputs: Shapes) -> int:
        return layer.weight.size
