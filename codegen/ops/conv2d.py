"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.activation import NO_CLIP, Activation, Clip, slope_integers
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.graph.tensors import (
    Array,
    FloatArray,
    IntArray,
    Padding,
    Shape,
    chw,
    output_extent,
)
from tvm_npu.codegen.ops.arithmetic import CACHED_BYTES, convolve, images, pad_spatial
from tvm_npu.codegen.ops.filter_weights import layer_weights
from tvm_npu.codegen.ops.operator import (
    Arrays,
    Numbers,
    Operator,
    Order,
    Shapes,
    checked_shift,
    take,
)
from tvm_npu.codegen.ops.scaled_weights import scaled_weights
from tvm_npu.codegen.ops.weights import check_groups, exact_type, largest_sum
from tvm_npu.sim.lazy import cached_property

if TYPE_CHECKING:
    from tvm_npu.codegen.ops.dense import Dense


@dataclass(frozen=True, eq=False)
class Conv2d(Layer):
    """Convolution, NCHW; optional second input: a residual added before the activation.

    ``weight`` is [M, N / groups, kernel_h, kernel_w], ``bias`` [M]; both float32.
    """

    weight: FloatArray
    bias: FloatArray
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    activation: Activation = NO_CLIP

    @property
    def kernel(self) -> tuple[int, int]:
        return (self.weight.shape[2], self.weight.shape[3])


@dataclass(frozen=True, eq=False)
class FixedConv(Requantized):
    """Convolution or (``is_dense``) fully connected layer; inputs are (x,) or (x, residual).

    acc = sum(x * weight) + bias, exactly; with a residual
    acc = (acc << accumulator_shift) + (residual << residual_shift); then requantize.
    ``weight`` is [M, N / groups, kernel_h, kernel_w] at the element type, ``bias`` int32 [M] at
    the accumulator's Q-point. A dense layer has a 1x1 kernel and sees its input as (N, 1, 1).

    With ``filter_shifts`` [M], none of them negative, each filter has a Q-point of its own:
    filter_shifts[m] more than ``weight_q_point``, and so much more are its ``shift`` and its
    ``residual_shift``.

    With a `rescaling` acc = sum(x * (weight - weight_zero_point)) + bias, and ``fill`` lies around
    the input in place of zeros.

    ``reads_rows_apart`` says no more than how code may read the input of a pointwise convolution
    with a stride (`codegen.nmp.plan.rows_apart`).
    """

    weight: IntArray
    bias: IntArray
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    accumulator_shift: int = 0
    residual_shift: int = 0
    is_dense: bool = False
    weight_q_point: int = 0
    filter_shifts: IntArray | None = None
    weight_zero_point: int = 0
    fill: int = 0
    reads_rows_apart: bool = False

    @property
    def centred_weight(self) -> IntArray:
        """Less its zero point."""
        if not self.weight_zero_point:
            return self.weight
        return self.weight.astype(np.int16) - np.int16(self.weight_zero_point)

    @cached_property
    def largest_sum(self) -> int:
        """See `weights.largest_sum`."""
        return largest_sum(self.centred_weight)


class Conv2dOperator(Operator[Conv2d, FixedConv]):
    layer = Conv2d
    fixed = FixedConv
    may_widen = True

    def shapes(self, layer: Conv2d | FixedConv, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1, 2)
        if isinstance(layer, FixedConv) and layer.is_dense:
            shape = dense_shape(layer, layer.weight, inputs[0])
            return with_residual(layer, _declared(shape, declared), inputs)
        check_groups(layer, layer.weight, layer.groups, inputs[0])
        _, *extents = chw(inputs[0])
        filters, _, *kernel = layer.weight.shape
        rows, columns = (
            output_extent(
                extents[i], kernel[i], layer.stride[i], layer.dilation[i],
                layer.padding[i] + layer.padding[i + 2],
            )
            for i in range(2)
        )  # fmt: skip
        return with_residual(layer, _declared((filters, rows, columns), declared), inputs)

    def run_float(self, layer: Conv2d, arrays: Arrays, shapes: Shapes) -> Arrays:
        acc = convolve(
            images(arrays[0]), layer.weight, layer.stride, layer.padding, layer.dilation,
            layer.groups, np.float32,
        )  # fmt: skip
        acc += layer.bias[:, None, None]
        if len(shapes[0]) != 3:
            acc = acc.reshape(len(acc), -1)
        return (layer.activation.apply(acc + arrays[1] if len(arrays) > 1 else acc),)

    def run_fixed(
        self, layer: FixedConv, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        sums = convolve(
            pad_spatial(images(arrays[0]), layer.padding, layer.fill), layer.centred_weight,
            layer.stride, (0, 0, 0, 0), layer.dilation, layer.groups,
            exact_type(layer.largest_sum, element_bytes),
        )  # fmt: skip
        residual = images(arrays[1]) if len(arrays) > 1 else None
        return (_by_rows(layer, sums, residual, element_bytes).reshape(len(sums), *shapes[0]),)

    def residuals(self, layer: Conv2d) -> tuple[tuple[str, str], ...]:
        return ((layer.inputs[1], layer.output),) if len(layer.inputs) > 1 else ()

    def takes_scales(self, layer: Conv2d) -> bool:
        return len(layer.inputs) == 1 and isinstance(layer.activation, Clip)

    def quantize(self, layer: Conv2d, numbers: Numbers) -> FixedConv:
        if not numbers.are_q_points(layer):
            return scaled_conv(
                layer, layer.weight, numbers, stride=layer.stride, padding=layer.padding,
                dilation=layer.dilation, groups=layer.groups,
            )
        made = layer_weights(layer, layer.weight, layer.bias, numbers)
        low, high = numbers.bounds(layer, layer.activation)
        return FixedConv(
            layer.name, layer.inputs, layer.outputs, made.weight, made.bias, layer.stride,
            layer.padding, layer.dilation, layer.groups, made.accumulator_shift,
            made.residual_shift, weight_q_point=made.q_point, filter_shifts=made.filter_shifts,
            source=layer.source,
            shift=checked_shift(layer, made.shift), low=low, high=high,
            slopes=slope_integers(layer.activation),
        )  # fmt: skip

    def macs(self, layer: Conv2d | FixedConv, inputs: Shapes, outputs: Shapes) -> int:
        return prod(layer.weight.shape[1:]) * prod(outputs[0])

    def order(self, layer: FixedConv, inputs: Shapes) -> Order:
        return Order.FIRST_FREE if layer.is_dense else Order.SHAPED

    def word(self, layer: FixedConv) -> str:
        return "dense" if layer.is_dense else "conv"


def _by_rows(
    layer: FixedConv, sums: Array, residual: Array | None, element_bytes: int
) -> IntArray:
    """The results for sums of products [B, M, R, C] without bias, in runs of rows that caches
    hold."""
    rows = sums.shape[2]
    run = max(1, CACHED_BYTES // (sums[:, :, :1].size * np.dtype(np.int64).itemsize))
    parts = [slice(row, row + run) for row in range(0, rows, run)]
    made = [
        _results(
            layer, sums[:, :, part], None if residual is None else residual[:, :, part],
            element_bytes,
        )
        for part in parts
    ]  # fmt: skip
    return made[0] if len(made) == 1 else np.concatenate(made, axis=2)


def _results(
    layer: FixedConv, sums: Array, residual: Array | None, element_bytes: int
) -> IntArray:
    acc = sums.astype(np.int64)
    acc += layer.bias.astype(np.int64)[:, None, None]
    more: int | IntArray = 0
    if layer.filter_shifts is not None:
        more = layer.filter_shifts.reshape(-1, 1, 1)
    if residual is not None:
        shifted = residual.astype(np.int64) << (layer.residual_shift + more)
        acc = (acc << layer.accumulator_shift) + shifted
    return layer.requantized(acc, element_bytes, more)


def scaled_conv(
    layer: Conv2d | Dense, weight: FloatArray, numbers: Numbers, **geometry: Any
) -> FixedConv:
    """``layer``, whose weights are ``weight`` [M, N, kernel_h, kernel_w], between tensors with
    scales (`takes_scales`)."""
    made = scaled_weights(layer, weight, layer.bias, numbers)
    low, high = numbers.bounds(layer, layer.activation)
    return FixedConv(
        layer.name, layer.inputs, layer.outputs, made.weight, made.bias,
        weight_zero_point=made.zero_point, fill=made.fill, rescaling=made.rescaling,
        source=layer.source, shift=0, low=low, high=high, **geometry,
    )  # fmt: skip


def _declared(shape: Shape, declared: Shapes) -> Shape:
    """A flat tensor is (C,) or (C, 1, 1), as the graph says."""
    is_other_form = {len(shape), len(declared[0])} == {1, 3} and prod(shape) == prod(declared[0])
    return declared[0] if is_other_form else shape


def dense_shape(layer: Layer | Requantized, weight: FloatArray | IntArray, source: Shape) -> Shape:
    """The output of a fully connected layer with ``weight`` [M, N, ...] on ``source``."""
    if prod(weight.shape[1:]) != prod(source):
        raise GraphError(
            f"layer {layer.name!r}: weight {weight.shape} does not fit the input {source}"
        )
    return (len(weight),)


def with_residual(layer: Layer | Requantized, shape: Shape, inputs: Shapes) -> Shapes:
    """``shape`` as the one output, which a second input must have too."""
    if len(inputs) > 1 and inputs[1] != shape:
        raise GraphError(
            f"layer {layer.name!r} makes {shape}; its residual {layer.inputs[1]!r} has {inputs[1]}"
        )
    return (shape,)
