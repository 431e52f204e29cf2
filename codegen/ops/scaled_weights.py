"""Weights of quantized models as integers again, and what a scaled convolution adds to them.

A quantized model's weights are multiples of a step. Whatever folding did with them on their way,
the step is in the numbers: `integer_weights` finds it, so that a machine that multiplies computes
with the model's own integers (or with the same ones times a factor, which means the same).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.rescaling import ACCUMULATOR_BITS, Rescaling
from tvm_npu.codegen.graph.tensors import FloatArray, IntArray
from tvm_npu.codegen.ops.operator import Numbers
from tvm_npu.codegen.ops.weights import check_finite

LARGEST = 127
MOST_STEPS = 255
"""Between the smallest and the largest weight of a model of 8 bits."""
TOLERANCE = 2e-4
"""Of a step: how far from a multiple of it a weight may lie that float32 has rounded."""
WHOLE = 1e-2
"""How far from a whole number a bias may lie that float32 has rounded."""
SAMPLES = 64
"""Weights of a filter that rule most steps out."""
LARGEST_BIAS = float(1 << 30)

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class ScaledWeights:
    """``weight`` [M, ...] of int8 less ``zero_point`` is what inputs are multiplied by; ``bias``
    int32 [M] takes back the zero point of the inputs, which is ``fill`` and lies around them."""

    weight: IntArray
    zero_point: int
    bias: IntArray
    fill: int
    rescaling: Rescaling


def scaled_weights(
    layer: Layer, weight: FloatArray, bias: FloatArray, numbers: Numbers
) -> ScaledWeights:
    """Those of a convolution or fully connected layer whose tensors have scales.

    Raises QuantizationError for values that are not finite, accumulators beyond the bits that can
    be multiplied, and scales of channels.
    """
    check_finite(layer, weight, bias)
    source, target = numbers.whole_scale(layer, layer.inputs[0]), numbers.whole_scale(layer)
    step_in, step_out = float(source.steps[0]), float(target.steps[0])
    flat = weight.reshape(len(weight), -1).astype(np.float64)
    integers, steps, zero_point = integer_weights(flat)
    if zero_point == 0:
        integers, steps = with_whole_biases(integers, steps, bias.astype(np.float64) / step_in)
        integers, steps = with_least_integers(integers, steps, flat, bias == 0.0)
    coarsest = np.abs(bias.astype(np.float64)) / (LARGEST_BIAS * step_in)
    if (coarsest > steps).any():  # weights that vanish beside the bias
        steps = np.maximum(steps, coarsest)
        integers = np.rint(flat / steps[:, None]).astype(np.int64)
    fill = source.zero_points[0]
    biases = np.rint(bias.astype(np.float64) / (steps * step_in)) - fill * integers.sum(axis=1)
    bound = np.abs(integers).sum(axis=1) * 128.0 + np.abs(biases)
    if bound.max() >= 1 << (ACCUMULATOR_BITS - 1) or np.abs(biases).max() >= 1 << 31:
        raise QuantizationError(
            f"layer {layer.name!r}: accumulators reach {bound.max():.0f}; a machine multiplies "
            f"those below 2**{ACCUMULATOR_BITS - 1} and adds biases of 32 bits"
        )
    # In float32, product first: as TensorFlow Lite's kernels, to the last bit of a multiplier.
    factors = steps.astype(np.float32) * np.float32(step_in) / np.float32(step_out)
    if np.all(factors == factors[0]):
        factors = factors[:1]
    rescaling = Rescaling.from_real(
        factors.astype(np.float64), target.zero_points[0], target.halves
    )
    stored = (integers + zero_point).astype(np.int8).reshape(weight.shape)
    return ScaledWeights(stored, zero_point, biases.astype(np.int32), fill, rescaling)


def integer_weights(weight: Reals) -> tuple[NDArray[np.int64], Reals, int]:
    """(integers, the step of each filter, the zero point that brings the integers to int8) of
    weights [M, K]; filters that are no multiples of a step are rounded to 127 of them."""
    counts = step_counts(weight)
    if counts.max() > LARGEST:
        whole = int(step_counts(weight.reshape(1, -1))[0])
        if whole:
            steps = np.full(len(weight), np.abs(weight).max() / whole)
            integers = np.rint(weight / steps[:, None]).astype(np.int64)
            low, high = int(integers.min()), int(integers.max())
            if high - low <= MOST_STEPS:
                exact = _exact(weight, integers, steps)
                return integers, exact, int(np.clip(0, -128 - low, 127 - high))
        counts[counts > LARGEST] = 0
    counts = np.where(counts == 0, LARGEST, counts * (LARGEST // np.maximum(counts, 1)))
    largest = np.abs(weight).max(axis=1)
    steps = np.where(largest > 0.0, largest, max(float(largest.max()), 1.0)) / counts
    integers = np.rint(weight / steps[:, None]).astype(np.int64)
    return integers, _exact(weight, integers, steps), 0


def with_whole_biases(
    integers: NDArray[np.int64], steps: Reals, biases: Reals
) -> tuple[NDArray[np.int64], Reals]:
    """Integers [M, K] and steps [M] that give the same weights, with other multiples of the least
    integers where those bring ``biases`` [M] nearer to whole numbers of steps.

    A filter of one weight (an affine layer between two scales) can have any integer to 127. Biases
    that are whole already, as those of quantized convolutions, leave everything as it is.
    """
    integers, steps = integers.copy(), steps.copy()
    for row in np.flatnonzero(np.abs(biases / steps - np.rint(biases / steps)) > WHOLE):
        factor = int(np.gcd.reduce(integers[row]))
        if factor == 0:
            continue
        least = integers[row] // factor
        most = max(1, LARGEST // int(np.abs(least).max()))  # 1: the smallest integer is -128
        multiples = np.arange(most, 0, -1)
        units = biases[row] / (steps[row] * factor)
        best = int(multiples[np.argmin(np.abs(np.rint(units * multiples) / multiples - units))])
        integers[row], steps[row] = least * best, steps[row] * factor / best
    return integers, steps


def with_least_integers(
    integers: NDArray[np.int64], steps: Reals, weight: Reals, rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], Reals]:
    """Integers [M, K] and steps [M] of weights [M, K] that are equal in magnitude, in those of
    ``rows``, as ones: then a sum of integers times 1 / n lies in the middle of two integers where
    the average does."""
    equal = rows & (integers != 0).all(axis=1) & (np.ptp(np.abs(integers), axis=1) == 0)
    steps = np.where(equal, np.abs(weight[:, 0]), steps)
    return np.where(equal[:, None], np.sign(integers), integers), steps


def _exact(weight: Reals, integers: NDArray[np.int64], steps: Reals) -> Reals:
    """``steps`` as the float32 numbers that give the weights to the bit, where there are such."""
    nearest = steps.astype(np.float32)
    below, above = (np.nextafter(nearest, np.float32(end)) for end in (0.0, np.inf))
    found = steps
    for one in (below, above, nearest):
        products = integers.astype(np.float32) * one[:, None]
        found = np.where((products == weight).all(axis=1), one.astype(np.float64), found)
    return found


def step_counts(weight: Reals) -> NDArray[np.int64]:
    """For each filter of weights [M, K] the least number of equal steps from 0 to its largest
    magnitude of which all its weights are multiples; 0 where there is none up to `MOST_STEPS`."""
    largest = np.abs(weight).max(axis=1, keepdims=True)
    relative = weight / np.where(largest > 0.0, largest, 1.0)
    found = np.zeros(len(weight), np.int64)
    sample = relative[:, :: max(1, relative.shape[1] // SAMPLES)]
    for count in range(1, MOST_STEPS + 1):
        open_ = np.flatnonzero(found == 0)
        if not len(open_):
            break
        likely = open_[_are_whole(sample[open_] * count)]
        found[likely[_are_whole(relative[likely] * count)]] = count
    return found


def _are_whole(values: Reals) -> NDArray[np.bool_]:
    return np.abs(values - np.rint(values)).max(axis=1) < TOLERANCE
