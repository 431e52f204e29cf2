"""From a fused float graph and calibrated ranges to the fixed-point graph.

Tensors' Q-points come from `codegen.qpoints`, ranges from `codegen.calibrate`; here weights,
biases, shifts and clip bounds become integers that no accumulator can overflow with.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed import (
    FixedChannelSlice,
    FixedConcat,
    FixedConv,
    FixedElementwise,
    FixedGraph,
    FixedLayer,
    FixedPad,
    FixedPool,
    FixedReshape,
)
from tvm_npu.codegen.fixed_point import element_limits, quantize_tensor
from tvm_npu.codegen.graph import (
    ChannelSlice,
    Clip,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    FloatArray,
    Graph,
    Layer,
    Pad,
    Pool,
    Reshape,
)
from tvm_npu.codegen.passes.calibrate import (
    Octave,
    Ranges,
    TensorRange,
    calibrate,
    synthetic_samples,
)
from tvm_npu.codegen.passes.qpoints import MAX_Q_POINT, assign_q_points, largest_q_point

__all__ = [
    "Octave", "Ranges", "TensorRange", "calibrate", "quantize", "synthetic_samples",
]  # fmt: skip

Precision = Literal["int16", "int8"]
ELEMENT_BYTES: dict[str, Literal[1, 2]] = {"int16": 2, "int8": 1}

ACCUMULATOR_LIMIT = 1 << 46
"""Exclusive bound of abs(accumulator) for any input data; machines have 48 bits."""
BIAS_LIMIT = 1 << 31
MIN_WEIGHT_Q_POINT = -40
MAX_SHIFT = 46
MIN_SHIFT = -31


def quantize(graph: Graph, ranges: Ranges, precision: Precision) -> FixedGraph:
    """The fixed-point graph of a fused ``graph``.

    ``ranges`` must cover every tensor. Deterministic. Raises QuantizationError for a missing or
    unusable range, weights that are not finite, an unknown precision and layers that `fuse`
    should have removed.
    """
    if precision not in ELEMENT_BYTES:
        raise QuantizationError(f"unknown precision {precision!r}; known are {list(ELEMENT_BYTES)}")
    element_bytes = ELEMENT_BYTES[precision]
    q_points = assign_q_points(graph, ranges, element_bytes)
    layers = tuple(_fixed(layer, q_points, element_bytes) for layer in graph.layers)
    return FixedGraph(
        layers, dict(graph.shapes), graph.inputs, graph.outputs, q_points, element_bytes, graph.name
    )


def weight_q_point(weight: FloatArray, element_bytes: int) -> int:
    """The Q-point of a layer's weights: the largest that fits, or for int8 the next finer one
    when saturating its few largest weights costs less squared error than the coarser steps."""
    magnitude = float(np.abs(weight).max())
    if magnitude == 0.0:
        return 8 * element_bytes - 1
    f = largest_q_point(magnitude, element_bytes)
    if element_bytes > 1 or f >= MAX_Q_POINT:
        return f
    errors = []
    for candidate in (f, f + 1):
        restored = np.ldexp(
            quantize_tensor(weight, candidate, element_bytes).astype(np.float64), -candidate
        )
        errors.append(float(np.square(restored - weight).sum()))
    return f + 1 if errors[1] < errors[0] else f


def _fixed(layer: Layer, q: dict[str, int], element_bytes: int) -> FixedLayer:
    head = (layer.name, layer.inputs, layer.output)
    if isinstance(layer, Conv2d | Dense):
        return _convolution(layer, q, element_bytes)
    if isinstance(layer, Pool):
        low, high = _bounds(layer, layer.clip, q[layer.output], element_bytes)
        return FixedPool(
            *head, layer.kind, layer.kernel, layer.stride, layer.padding, layer.count_include_pad,
            layer.counted_padding, shift=0, low=low, high=high, source=layer.source,
        )  # fmt: skip
    if isinstance(layer, Elementwise):
        return _elementwise(layer, q, element_bytes)
    if isinstance(layer, Pad):
        fill = _round_saturate(layer, layer.value, q[layer.output], element_bytes)
        return FixedPad(*head, layer.before, layer.after, layer.stride, fill, source=layer.source)
    if isinstance(layer, Concat):
        return FixedConcat(*head, source=layer.source)
    if isinstance(layer, Reshape):
        return FixedReshape(*head, source=layer.source)
    if isinstance(layer, ChannelSlice):
        return FixedChannelSlice(*head, layer.begin, source=layer.source)
    raise QuantizationError(
        f"layer {layer.name!r}: {type(layer).__name__} has no fixed-point form; "
        "fuse the graph first"
    )


def _round_saturate(layer: Layer, value: float, q_point: int, element_bytes: int) -> int:
    """A constant of ``layer`` at a Q-point; infinities become the type's limits."""
    if math.isnan(value):
        raise QuantizationError(f"layer {layer.name!r} has the constant {value}")
    return int(quantize_tensor(np.array(value), q_point, element_bytes))


def _bounds(layer: Layer, clip: Clip, q_point: int, element_bytes: int) -> tuple[int, int]:
    """The clip as integers of the element type; low <= high."""
    high = _round_saturate(layer, clip.high, q_point, element_bytes)
    return min(_round_saturate(layer, clip.low, q_point, element_bytes), high), high


def _checked_shift(layer: Layer, shift: int) -> int:
    """Shifts of accumulators below 2**46: more than MAX_SHIFT to the right leaves the same 0."""
    if shift < MIN_SHIFT:
        raise QuantizationError(
            f"layer {layer.name!r} needs a shift of {shift}, the limit is {MIN_SHIFT}: the range "
            f"of {layer.output!r} is far below that of {layer.inputs}"
        )
    return min(shift, MAX_SHIFT)


def _elementwise(layer: Elementwise, q: dict[str, int], element_bytes: int) -> FixedElementwise:
    out = q[layer.output]
    shift_a = shift_b = 0
    points = [q[tensor] for tensor in layer.inputs]
    if layer.op == "mul":
        shift = points[0] + points[1] - out
    else:
        shift_a, shift_b = max(points) - points[0], max(points) - points[-1]
        shift = max(points) - out
    low, high = _bounds(layer, layer.clip, out, element_bytes)
    return FixedElementwise(
        layer.name, layer.inputs, layer.output, layer.op, shift_a, shift_b,
        shift=_checked_shift(layer, shift), low=low, high=high, source=layer.source,
    )  # fmt: skip


def _convolution(layer: Conv2d | Dense, q: dict[str, int], element_bytes: int) -> FixedConv:
    """Starts from the finest weight Q-point and lowers it until the bias fits 32 bits, the
    accumulator its bound, and the shift its limit."""
    for kind, values in (("weight", layer.weight), ("bias", layer.bias)):
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)][0]
            raise QuantizationError(f"layer {layer.name!r} has the {kind} {bad}")
    q_in, q_out = q[layer.inputs[0]], q[layer.output]
    weight_q = weight_q_point(layer.weight, element_bytes)
    while True:
        q_acc = q_in + weight_q
        weight = quantize_tensor(layer.weight, weight_q, element_bytes)
        bias = np.floor(np.ldexp(layer.bias.astype(np.float64), q_acc) + 0.5)
        q_residual = q[layer.inputs[1]] if len(layer.inputs) > 1 else None
        acc_shift = 0 if q_residual is None else max(q_residual - q_acc, 0)
        residual_shift = 0 if q_residual is None else max(q_acc - q_residual, 0)
        shift = q_acc + acc_shift - q_out
        bound = _accumulator_bound(weight, bias, acc_shift, element_bytes)
        if q_residual is not None:
            bound += 1 << (8 * element_bytes - 1 + residual_shift)
        bias_fits = -BIAS_LIMIT <= bias.min() and bias.max() < BIAS_LIMIT
        if bias_fits and bound < ACCUMULATOR_LIMIT and shift <= MAX_SHIFT:
            break
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
                f"({np.abs(layer.bias).max()}) in 32 bits"
            )
    low, high = _bounds(layer, layer.clip, q_out, element_bytes)
    common: dict[str, Any] = dict(
        shift=_checked_shift(layer, shift), low=low, high=high, source=layer.source,
        bias=bias.astype(np.int32), accumulator_shift=acc_shift, residual_shift=residual_shift,
        weight_q_point=weight_q,
    )  # fmt: skip
    head = (layer.name, layer.inputs, layer.output)
    if isinstance(layer, Dense):
        return FixedConv(*head, weight=weight[:, :, None, None], is_dense=True, **common)
    return FixedConv(
        *head, weight=weight, stride=layer.stride, padding=layer.padding,
        dilation=layer.dilation, groups=layer.groups, **common,
    )  # fmt: skip


def _accumulator_bound(
    weight: NDArray[Any], bias: NDArray[np.float64], acc_shift: int, element_bytes: int
) -> int:
    """Largest abs(accumulator) that any input of the element type can reach."""
    magnitudes = np.abs(weight.astype(np.int32)).reshape(len(weight), -1)
    products = magnitudes.sum(axis=1, dtype=np.int64)
    largest_input = -element_limits(element_bytes)[0]
    totals = products.astype(np.float64) * largest_input + np.abs(bias)
    return int(totals.max()) << acc_shift
