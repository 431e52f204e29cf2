"""What LSTM and GRU share: sums of an input's and a state's products, and fixed formats inside.

Sums of gates are requantized to `gate_q_point` (int16: 12, so -8 to 8; int8: 4), as TensorFlow Lite
does in its quantized LSTM; values of gates to `unit_q_point` (15 or 7: -1 to 1). States and what
is kept of them have the Q-points that calibration gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError, QuantizationError
from tvm_npu.codegen.fixed_point import element_limits, quantize_tensor, requantize
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Array, FloatArray, IntArray, Shape
from tvm_npu.codegen.ops.operator import MAX_SHIFT, MIN_SHIFT, Arrays, Numbers, Shapes
from tvm_npu.codegen.ops.weights import (
    ACCUMULATOR_LIMIT,
    BIAS_LIMIT,
    MIN_WEIGHT_Q_POINT,
    weight_q_point,
)


def unit_q_point(element_bytes: int) -> int:
    """Of values from -1 to 1."""
    return 8 * element_bytes - 1


GATE_LIMIT = 8
"""Sums that go into sigmoid and tanh, and their terms, are -8 to 8."""


def gate_q_point(element_bytes: int) -> int:
    """Of the sums that go into sigmoid and tanh: -`GATE_LIMIT` to `GATE_LIMIT`."""
    return 8 * element_bytes - 1 - (GATE_LIMIT.bit_length() - 1)


@dataclass(frozen=True)
class GateWeights:
    """Weights [rows, I] of the input and [rows, H] of the state whose products have one Q-point,
    biases of that Q-point, and the shift from there to `gate_q_point`."""

    input_weight: IntArray
    hidden_weight: IntArray
    biases: tuple[IntArray, ...]
    shift: int


def gate_weights(
    layer: Layer,
    weights: tuple[FloatArray, FloatArray],
    biases: tuple[FloatArray, ...],
    q_points: tuple[int, int],
    numbers: Numbers,
) -> GateWeights:
    """The finest weights whose sums fit the accumulator. ``q_points`` are those of input and state;
    the products of both must have the same, so one of the weights may be coarser than it could be.

    Raises QuantizationError for values that are not finite and where no Q-point will do.
    """
    for values in (*weights, *biases):
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)][0]
            raise QuantizationError(f"layer {layer.name!r} has the weight or bias {bad}")
    element_bytes = numbers.element_bytes
    q_acc = min(
        q + weight_q_point(weight, element_bytes)
        for q, weight in zip(q_points, weights, strict=True)
    )
    while True:
        parts = [
            quantize_tensor(weight, q_acc - q, element_bytes)
            for q, weight in zip(q_points, weights, strict=True)
        ]
        wide = [np.floor(np.ldexp(bias.astype(np.float64), q_acc) + 0.5) for bias in biases]
        magnitudes = sum(np.abs(part.astype(np.int64)).sum(axis=1) for part in parts)
        largest_bias = max(float(np.abs(bias).max()) for bias in wide)
        bound = int(np.max(magnitudes)) * -element_limits(element_bytes)[0] + 2 * largest_bias
        shift = q_acc - gate_q_point(element_bytes)
        if largest_bias < BIAS_LIMIT and bound < ACCUMULATOR_LIMIT and shift <= MAX_SHIFT:
            break
        q_acc -= 1
        if q_acc - max(q_points) < MIN_WEIGHT_Q_POINT:
            raise QuantizationError(
                f"layer {layer.name!r}: no Q-point of its sums keeps the accumulator (bound "
                f"{bound:g}) below {ACCUMULATOR_LIMIT} and the largest bias in 32 bits"
            )
    if shift < MIN_SHIFT:
        raise QuantizationError(
            f"layer {layer.name!r} needs a shift of {shift}, the limit is {MIN_SHIFT}: its inputs "
            "or weights are far above 8, where sigmoid and tanh are flat"
        )
    return GateWeights(parts[0], parts[1], tuple(one.astype(np.int32) for one in wide), shift)


def sums(x: IntArray, weight: IntArray) -> NDArray[np.int64]:
    """Exact [B, I] x [rows, I] -> [B, rows]."""
    products: NDArray[np.int64] = x.astype(np.int64) @ weight.astype(np.int64).T
    return products


class Arithmetic:
    """Requantizing products and sums at one element type, without a clip."""

    def __init__(self, element_bytes: int) -> None:
        self._limits = element_limits(element_bytes)
        self._bytes = element_bytes

    def requantize(self, acc: Array, shift: int) -> IntArray:
        return requantize(acc, shift, *self._limits, self._bytes)

    def multiply(self, a: IntArray, b: IntArray, shift: int) -> IntArray:
        return self.requantize(a.astype(np.int64) * b, shift)

    def add(self, a: IntArray, b: IntArray) -> IntArray:
        return self.requantize(a.astype(np.int64) + b, 0)


def initial_state(
    layer: Layer | FixedLayer, number: int, arrays: Arrays, hidden: int
) -> Array:
    """[B, H]: the initial value of the layer's state ``number``; zeros where it has none."""
    initial = layer.states[number].initial
    if initial is None:
        return np.zeros((len(arrays[0]), hidden), arrays[0].dtype)
    return arrays[layer.inputs.index(initial)]


def check_sequence(
    layer: Layer | FixedLayer,
    inputs: Shapes,
    weights: tuple[Array, Array],
    gates: int,
    biases: Sequence[Array],
) -> tuple[Shape, Shape]:
    """Shapes of all states together, (T, H), and of one, (H,). ``weights`` are [gates * H, I] and
    [gates * H, H]. GraphError for what does not fit."""
    hidden = weights[1].shape[1]
    names = [state.initial for state in layer.states if state.initial is not None]
    if len(inputs) != 1 + len(names) or set(layer.inputs[1:]) != set(names):
        raise GraphError(
            f"layer {layer.name!r} has inputs {layer.inputs}; expected a sequence, then the "
            f"initial values {names} of its states"
        )
    rows = gates * hidden
    if len(inputs[0]) != 2 or weights[0].shape != (rows, inputs[0][-1]) or len(weights[1]) != rows:
        raise GraphError(
            f"layer {layer.name!r}: weights {weights[0].shape} and {weights[1].shape} of {gates} "
            f"gates do not fit the input {inputs[0]}"
        )
    for shape in inputs[1:]:
        if shape != (hidden,):
            raise GraphError(f"layer {layer.name!r} has an initial state {shape}, not ({hidden},)")
    for bias in biases:
        if bias.ndim != 1 or len(bias) not in (hidden, rows):
            raise GraphError(f"layer {layer.name!r} has a bias {bias.shape} for {rows} sums")
    return (inputs[0][0], hidden), (hidden,)
