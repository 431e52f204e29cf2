"""Weights and biases as integers: the finest that no accumulator can overflow with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError, QuantizationError
from tvm_npu.codegen.fixed_point import (
    MAX_Q_POINT,
    element_limits,
    largest_q_point,
    quantize_tensor,
)
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Array, FloatArray, IntArray, Shape, chw
from tvm_npu.codegen.ops.operator import MAX_SHIFT, Numbers
from tvm_npu.codegen.row_blocks import row_blocks

ACCUMULATOR_LIMIT = 1 << 46
"""Exclusive bound of abs(accumulator) for any input data; machines have 48 bits."""
BIAS_LIMIT = 1 << 31
MIN_WEIGHT_Q_POINT = -40
FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53
_BLOCK = 1 << 18
"""Weights of which there are copies at a time."""


@dataclass(frozen=True)
class FixedWeights:
    """A layer's weights at ``q_point`` (any shape, [M, ...]), its biases [M] at the accumulator's
    Q-point, and the shifts of a residual, of the accumulator under it, and of the result. With
    ``filter_shifts`` [M] each filter has so much more in its Q-point, residual shift and shift."""

    weight: IntArray
    bias: IntArray
    q_point: int
    accumulator_shift: int
    residual_shift: int
    shift: int
    filter_shifts: IntArray | None = None


def check_groups(
    layer: Layer | FixedLayer, weight: Array, groups: int, given: Shape
) -> None:
    """GraphError unless ``weight`` [M, N / groups, ...] takes the channels of an input ``given``
    in whole groups of filters."""
    filters, depth, *_ = weight.shape
    if depth * groups != chw(given)[0] or filters % groups:
        raise GraphError(
            f"layer {layer.name!r}: weight {weight.shape} with {groups} groups does not fit the "
            f"input {given}"
        )


def weight_q_point(weight: FloatArray, element_bytes: int) -> int:
    """The Q-point of a layer's weights: the largest that fits, or for int8 the next finer one
    when saturating its few largest weights costs less squared error than the coarser steps."""
    magnitude = max(float(weight.max()), -float(weight.min()))  # no copy: weights can be large
    if magnitude == 0.0:
        return 8 * element_bytes - 1
    f = largest_q_point(magnitude, element_bytes)
    if element_bytes > 1 or f >= MAX_Q_POINT:
        return f
    errors = []
    for candidate in (f, f + 1):
        errors.append(_squared_error(weight, candidate, element_bytes))
    return f + 1 if errors[1] < errors[0] else f


def _squared_error(weight: FloatArray, q_point: int, element_bytes: int) -> float:
    """Of all weights, some at a time: float64 copies of all would be twice as large as they."""
    blocks = [weight] if weight.size <= _BLOCK else (block for _, block in row_blocks(weight))
    error = 0.0
    for block in blocks:
        integers = quantize_tensor(block, q_point, element_bytes)
        restored = np.ldexp(integers.astype(np.float64), -q_point)
        error += float(np.square(restored - block).sum())
    return error


def fixed_weights(
    layer: Layer, weight: FloatArray, bias: FloatArray, numbers: Numbers
) -> FixedWeights:
    """Starts from the finest weight Q-point and lowers it until the bias fits 32 bits, the
    accumulator its bound, and the shift its limit. The layer's inputs are (x,) or (x, residual).

    Raises QuantizationError for values that are not finite and where no Q-point will do.
    """
    check_finite(layer, weight, bias)
    element_bytes = numbers.element_bytes
    q_in, q_out = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.output)
    weight_q = weight_q_point(weight, element_bytes)
    while True:
        q_acc = q_in + weight_q
        integers = quantize_tensor(weight, weight_q, element_bytes)
        biases = np.floor(np.ldexp(bias.astype(np.float64), q_acc) + 0.5)
        q_residual = numbers.q_point(layer.inputs[1]) if len(layer.inputs) > 1 else None
        acc_shift = 0 if q_residual is None else max(q_residual - q_acc, 0)
        residual_shift = 0 if q_residual is None else max(q_acc - q_residual, 0)
        shift = q_acc + acc_shift - q_out
        bound = _accumulator_bound(integers, biases, acc_shift, element_bytes)
        if q_residual is not None:
            bound += 1 << (8 * element_bytes - 1 + residual_shift)
        bias_fits = -BIAS_LIMIT <= biases.min() and biases.max() < BIAS_LIMIT
        if bias_fits and bound < ACCUMULATOR_LIMIT and shift <= MAX_SHIFT:
            return FixedWeights(
                integers, biases.astype(np.int32), weight_q, acc_shift, residual_shift, shift
            )
        if bound >= ACCUMULATOR_LIMIT and acc_shift > 0:
            # Coarser weights would be shifted back by just as much.
            raise QuantizationError(
                f"layer {layer.name!r}: the accumulator (bound {bound}) cannot stay below "
                f"{ACCUMULATOR_LIMIT} with the residual {layer.inputs[1]!r} at Q-point {q_residual}"
            )
        weight_q -= 1
        if weight_q < MIN_WEIGHT_Q_POINT:
            raise QuantizationError(
                f"layer {layer.name!r}: no weight Q-point from {MIN_WEIGHT_Q_POINT} up keeps the "
                f"accumulator (bound {bound}) below {ACCUMULATOR_LIMIT} and the largest bias "
                f"({np.abs(bias).max()}) in 32 bits"
            )


def check_finite(layer: Layer, weight: FloatArray, bias: FloatArray) -> None:
    """QuantizationError for weights or biases that are not finite."""
    for kind, values in (("weight", weight), ("bias", bias)):
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)][0]
            raise QuantizationError(f"layer {layer.name!r} has the {kind} {bad}")


def _accumulator_bound(
    weight: IntArray, bias: NDArray[np.float64], acc_shift: int, element_bytes: int
) -> int:
    """Largest abs(accumulator) that any input of the element type can reach."""
    largest_input = -element_limits(element_bytes)[0]
    totals = absolute_sums(weight).astype(np.float64) * largest_input + np.abs(bias)
    return int(totals.max()) << acc_shift


def absolute_sums(weight: IntArray) -> NDArray[np.int64]:
    """Of each filter of ``weight`` [M, ...], some at a time: copies of all would take gigabytes."""
    rows = weight.reshape(len(weight), -1)
    step = max(_BLOCK // max(rows.shape[1], 1), 1)
    blocks = (rows[first : first + step] for first in range(0, len(rows), step))
    return np.concatenate(
        [np.abs(block.astype(np.int64)).sum(axis=1, dtype=np.int64) for block in blocks]
    )


def product_type(weight: IntArray, element_bytes: int) -> type[Any]:
    """The cheapest number type in which every partial sum of a layer with ``weight`` [M, ...] is
    exact."""
    return exact_type(largest_sum(weight), element_bytes)


def largest_sum(weight: IntArray) -> int:
    """Of the magnitudes of a filter of ``weight`` [M, ...]."""
    return int(absolute_sums(weight).max())


def exact_type(largest: int, element_bytes: int) -> type[Any]:
    """`product_type` for a `largest_sum`."""
    bound = largest << (8 * element_bytes - 1)
    if bound < FLOAT32_EXACT:
        return np.float32
    return np.float64 if bound < FLOAT64_EXACT else np.int64
