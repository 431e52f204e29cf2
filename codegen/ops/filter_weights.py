"""Weights as integers with a Q-point a filter, for machines that shift each filter by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits, quantize_tensor
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.tensors import FloatArray, IntArray
from tvm_npu.codegen.ops.operator import MAX_SHIFT, Numbers
from tvm_npu.codegen.ops.weights import (
    ACCUMULATOR_LIMIT,
    MIN_WEIGHT_Q_POINT,
    FixedWeights,
    absolute_sums,
    check_finite,
    fixed_weights,
    weight_q_point,
)
from tvm_npu.codegen.row_blocks import row_blocks


def layer_weights(
    layer: Layer, weight: FloatArray, bias: FloatArray, numbers: Numbers
) -> FixedWeights:
    """Those of a convolution or fully connected layer: a Q-point a filter where the machine can
    shift by it, else one for all."""
    if numbers.requantization.is_per_channel:
        return filter_weights(layer, weight, bias, numbers)
    return fixed_weights(layer, weight, bias, numbers)


def filter_weights(
    layer: Layer, weight: FloatArray, bias: FloatArray, numbers: Numbers
) -> FixedWeights:
    """Starts from the finest Q-point of every filter [M, ...] and lowers it until its bias fits the
    machine's bits, its accumulator the bound and its shift the limit, and until the filters' shifts
    differ by no more than the machine can say. The layer's inputs are (x,) or (x, residual).

    Raises QuantizationError for values that are not finite and where no Q-points will do.
    """
    check_finite(layer, weight, bias)
    machine, element_bytes = numbers.requantization, numbers.element_bytes
    q_in, q_out = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.output)
    q_residual = numbers.q_point(layer.inputs[1]) if len(layer.inputs) > 1 else None
    q = _finest(weight, element_bytes)
    limit = float(1 << (machine.bias_bits - 1))
    while True:
        q = np.minimum(q, q.min() + machine.most_channel_shift)
        acc_shift = 0 if q_residual is None else max(q_residual - q_in - int(q.min()), 0)
        coarsest = MAX_SHIFT + q_out - q_in - acc_shift
        if q.max() > coarsest:
            q = np.minimum(q, coarsest)
            continue
        biases = np.floor(np.ldexp(bias.astype(np.float64), q_in + q) + 0.5)
        integers = _integers(weight, q, element_bytes)
        totals = _bounds(integers, biases, element_bytes) * 2.0**acc_shift
        if q_residual is not None:
            residual = float(-element_limits(element_bytes)[0])
            totals += np.ldexp(residual, np.maximum(q_in + q + acc_shift - q_residual, 0))
        too_fine = (biases < -limit) | (biases >= limit)
        if acc_shift == 0:
            too_fine |= totals >= ACCUMULATOR_LIMIT
        if not too_fine.any():
            break
        del integers  # they go before the next ones come
        q = q - too_fine
        if q.min() < MIN_WEIGHT_Q_POINT:
            raise QuantizationError(
                f"layer {layer.name!r}: filter {int(q.argmin())} has no weight Q-point from "
                f"{MIN_WEIGHT_Q_POINT} up that keeps its bias ({bias[q.argmin()]}) in "
                f"{machine.bias_bits} bits"
            )
    if totals.max() >= ACCUMULATOR_LIMIT:
        raise QuantizationError(
            f"layer {layer.name!r}: the accumulator (bound {totals.max():.0f}) cannot stay below "
            f"{ACCUMULATOR_LIMIT} with the residual {layer.inputs[1]!r} at Q-point {q_residual}"
        )
    base = int(q.min())
    q_acc = q_in + base + acc_shift
    return FixedWeights(
        integers, biases.astype(np.int32), base, acc_shift,
        0 if q_residual is None else q_acc - q_residual, q_acc - q_out, (q - base).astype(np.int32),
    )  # fmt: skip


def _finest(weight: FloatArray, element_bytes: int) -> NDArray[np.int64]:
    """The Q-point of each filter by itself; one that is all zeros takes the coarsest of the
    others."""
    is_zero = ~weight.reshape(len(weight), -1).any(axis=1)
    q = np.array([weight_q_point(one, element_bytes) for one in weight], np.int64)
    if not is_zero.all():
        q[is_zero] = q[~is_zero].min()
    return q


def _integers(weight: FloatArray, q: NDArray[np.int64], element_bytes: int) -> IntArray:
    """Some filters at a time: float64 copies of all would be twice as large as the weights."""
    integers: IntArray = np.empty(weight.shape, ELEMENT_TYPE[element_bytes])
    for rows, block in row_blocks(weight):
        exponents = q[rows].reshape(-1, *[1] * (weight.ndim - 1))
        scaled = np.ldexp(block.astype(np.float64), exponents)
        integers[rows] = quantize_tensor(scaled, 0, element_bytes)
    return integers


def _bounds(
    weight: IntArray, bias: NDArray[np.float64], element_bytes: int
) -> NDArray[np.float64]:
    """Largest abs(accumulator) of each filter that any input of the element type can reach."""
    sums = absolute_sums(weight).astype(np.float64)
    return sums * -element_limits(element_bytes)[0] + np.abs(bias)
