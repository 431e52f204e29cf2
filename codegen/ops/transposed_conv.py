"""Transposed convolution: every input element adds its kernel to the output, without the zeros
between rows and columns that an expanded input would have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tvm_npu.codegen.graph.activation import NO_CLIP, Activation
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.graph.tensors import Array, FloatArray, IntArray, Padding, Shape, chw
from tvm_npu.codegen.ops.arithmetic import images
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, checked_shift, take
from tvm_npu.codegen.ops.weights import check_groups, fixed_weights, product_type


@dataclass(frozen=True, eq=False)
class TransposedConv(Layer):
    """Transposed convolution, NCHW. ``weight`` is [M, N / groups, kernel_h, kernel_w] with the
    output's channels M first, ``bias`` [M]; both float32.

    The output has (rows - 1) * stride + kernel - padding (both sides) + output_padding rows;
    ``padding`` takes rows and columns away, ``output_padding`` adds some at the bottom and right
    (where sums go on, if the padding has taken some away there, and are the bias alone otherwise).
    """

    weight: FloatArray
    bias: FloatArray
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    output_padding: tuple[int, int] = (0, 0)
    groups: int = 1
    activation: Activation = NO_CLIP

    @property
    def kernel(self) -> tuple[int, int]:
        return (self.weight.shape[2], self.weight.shape[3])


@dataclass(frozen=True, eq=False)
class FixedTransposedConv(Requantized):
    """Transposed convolution of (N, R, C) to (M, R', C').

    acc[m, r, c] = bias[m] + sum of x[n, y, z] * weight[m, n, i, j] over all n of m's group and all
    y, i, z, j with y * stride[0] + i = r + top and z * stride[1] + j = c + left, exactly; then
    requantize. Output rows with the same (r + top) % stride[0] use the same rows of the kernel,
    every stride-th one: they are a convolution with stride 1 by a part of the kernel.
    ``weight`` is [M, N / groups, kernel_h, kernel_w] at the element type, ``bias`` int32 [M] at
    the accumulator's Q-point.
    """

    weight: IntArray
    bias: IntArray
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    output_padding: tuple[int, int] = (0, 0)
    groups: int = 1
    weight_q_point: int = 0

    @property
    def kernel(self) -> tuple[int, int]:
        return (self.weight.shape[2], self.weight.shape[3])


class TransposedConvOperator(Operator[TransposedConv, FixedTransposedConv]):
    layer = TransposedConv
    fixed = FixedTransposedConv

    def shapes(
        self, layer: TransposedConv | FixedTransposedConv, inputs: Shapes, declared: Shapes
    ) -> Shapes:
        take(layer, inputs, 1)
        check_groups(layer, layer.weight, layer.groups, inputs[0])
        _, *extents = chw(inputs[0])
        filters, _, *kernel = layer.weight.shape
        rows, columns = (
            (extents[i] - 1) * layer.stride[i] + kernel[i] + layer.output_padding[i]
            - layer.padding[i] - layer.padding[i + 2]
            for i in range(2)
        )  # fmt: skip
        return ((filters, rows, columns),)

    def run_float(self, layer: TransposedConv, arrays: Arrays, shapes: Shapes) -> Arrays:
        acc = _sums(layer, images(arrays[0]), shapes[0], np.float32)
        return (layer.activation.apply(acc + layer.bias[:, None, None]),)

    def run_fixed(
        self, layer: FixedTransposedConv, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        dtype = product_type(layer.weight, element_bytes)
        acc = _sums(layer, images(arrays[0]), shapes[0], dtype).astype(np.int64)
        acc += layer.bias.astype(np.int64)[:, None, None]
        return (layer.requantized(acc, element_bytes),)

    def quantize(self, layer: TransposedConv, numbers: Numbers) -> FixedTransposedConv:
        made = fixed_weights(layer, layer.weight, layer.bias, numbers)
        low, high = numbers.bounds(layer, layer.activation)
        return FixedTransposedConv(
            layer.name, layer.inputs, layer.outputs, made.weight, made.bias, layer.stride,
            layer.padding, layer.output_padding, layer.groups, weight_q_point=made.q_point,
            source=layer.source, shift=checked_shift(layer, made.shift), low=low, high=high,
        )  # fmt: skip

    def macs(
        self, layer: TransposedConv | FixedTransposedConv, inputs: Shapes, outputs: Shapes
    ) -> int:
        """Products that some output needs; those that the padding takes away do not count."""
        needed = [
            sum(len(source) for _, source, _ in _taps(layer, inputs[0], outputs[0], axis))
            for axis in range(2)
        ]
        return prod(needed) * prod(layer.weight.shape[:2])

    def word(self, layer: FixedTransposedConv) -> str:
        return "transposed_conv"


def tap_ranges(
    extent: int, out: int, kernel: int, stride: int, before: int
) -> Iterator[tuple[int, range, slice]]:
    """Along one axis: (row of the kernel, rows of the input that it meets, where their products
    go), for every row of the kernel of which some output has products. ``before`` rows of padding
    are taken away in front."""
    for tap in range(kernel):
        first = max(0, -((tap - before) // stride))
        last = min(extent, (out - 1 + before - tap) // stride + 1)
        if first < last:
            begin = first * stride + tap - before
            end = (last - 1) * stride + tap - before + 1
            yield tap, range(first, last), slice(begin, end, stride)


def _taps(
    layer: TransposedConv | FixedTransposedConv, source: Shape, target: Shape, axis: int
) -> Iterator[tuple[int, range, slice]]:
    """Of rows (axis 0) or columns (1)."""
    return tap_ranges(
        chw(source)[axis + 1], chw(target)[axis + 1], layer.kernel[axis], layer.stride[axis],
        layer.padding[axis],
    )  # fmt: skip


def _sums(
    layer: TransposedConv | FixedTransposedConv, x: Array, shape: Shape, dtype: DTypeLike
) -> Array:
    """Sums of products [B, M, R', C'] without bias, a product of matrices for each tap."""
    batch, channels, _, _ = x.shape
    filters, depth, _, _ = layer.weight.shape
    groups = layer.groups
    weight = layer.weight.astype(dtype).reshape(groups, filters // groups, depth, *layer.kernel)
    x = x.astype(dtype, copy=False)
    out: Any = np.zeros((batch, *shape), dtype)
    source = (channels, *x.shape[2:])
    columns = list(_taps(layer, source, shape, 1))
    for i, from_rows, to_rows in _taps(layer, source, shape, 0):
        for j, from_columns, to_columns in columns:
            part = x[:, :, from_rows.start : from_rows.stop, from_columns.start : from_columns.stop]
            flat = part.reshape(batch, groups, depth, -1)
            product = weight[..., i, j] @ flat
            out[:, :, to_rows, to_columns] += product.reshape(batch, filters, *part.shape[2:])
    return out
