"""Gated recurrent unit: a whole sequence as one layer.

"Learning phrase representations using RNN encoder-decoder" (Cho et al.); with
``linear_before_reset`` as cuDNN and PyTorch compute it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Array, FloatArray, IntArray
from tvm_npu.codegen.ops.operator import Arrays, CutTerms, Numbers, Operator, Shapes
from tvm_npu.codegen.ops.recurrent import (
    GATE_LIMIT,
    Arithmetic,
    check_sequence,
    gate_q_point,
    gate_weights,
    initial_state,
    sums,
    unit_q_point,
)
from tvm_npu.codegen.ops.table import Table, logistic, make_table

GATES = 3
VISIBLE = 2.0**-10
"""What a cut of terms changes at least, to count: tanh of 8 is nearer to 1."""


@dataclass(frozen=True, eq=False)
class Gru(Layer):
    """(T, I) -> (T, H), one step after the other:

    r, z = sigmoid of (input_weight x + hidden_weight h + bias) in the rows of r and z
    n = tanh(input_weight x + bias + r * (hidden_weight h + hidden_bias)) in the rows of n, or
        tanh(input_weight x + bias + hidden_bias + hidden_weight (r * h)) there without
        ``linear_before_reset``
    h = z * h + (1 - z) * n

    Inputs are the sequence, then the initial h (H,) if ``states`` name it (otherwise zeros).
    Outputs are all h (T, H) and the last (H,). ``states`` are (h,). Rows of ``input_weight``
    [3 H, I], ``hidden_weight`` [3 H, H] and ``bias`` [3 H] come in the order r, z, n;
    ``hidden_bias`` [H] is n's alone; all float32.
    """

    input_weight: FloatArray
    hidden_weight: FloatArray
    bias: FloatArray
    hidden_bias: FloatArray
    linear_before_reset: bool = True


@dataclass(frozen=True, eq=False)
class FixedGru(FixedLayer):
    """As `Gru`, on integers; inputs, outputs, states and the order of rows are the same. With
    rq(a, s) = saturate(floor((a + half) >> s)) and products and sums exact before it, a step is

    r, z' = rq(input_weight x + hidden_weight h + bias, gate_shift)           rows of r and z
    r, z, y = sigmoid of r, sigmoid of z', complement of z'                   by table; y = 1 - z
    n = rq(input_weight x + bias, gate_shift)                                 rows of n
    m = rq(r * rq(hidden_weight h + hidden_bias, gate_shift), unit_shift)     rows of n
    n = tanh of saturate(n + m)                                               by table
    h = saturate(rq(z * h, unit_shift) + rq(y * n, new_shift))

    and without ``linear_before_reset``

    n = tanh of rq(input_weight x + hidden_weight rq(r * h, unit_shift) + bias + hidden_bias,
                   gate_shift)                                                rows of n

    Q-points: what goes into tables 12 (int8: 4); r, z, y, n behind them 15 (7); x and h their
    tensors'. Weights have the element type; biases are int32 at the Q-point that both products
    have.
    """

    input_weight: IntArray
    hidden_weight: IntArray
    bias: IntArray
    hidden_bias: IntArray
    linear_before_reset: bool
    gate_shift: int
    sigmoid: Table
    complement: Table
    tanh: Table
    unit_shift: int
    new_shift: int


class GruOperator(Operator[Gru, FixedGru]):
    layer = Gru
    fixed = FixedGru

    def shapes(self, layer: Gru | FixedGru, inputs: Shapes, declared: Shapes) -> Shapes:
        weights = (layer.input_weight, layer.hidden_weight)
        biases = (layer.bias, layer.hidden_bias)
        return check_sequence(layer, inputs, weights, GATES, biases)

    def run_float(self, layer: Gru, arrays: Arrays, shapes: Shapes) -> Arrays:
        hidden = _run_float(layer, arrays).hidden
        return (hidden, hidden[:, -1])

    def states_float(self, layer: Gru, arrays: Arrays) -> Mapping[str, Array]:
        """Also what is added at each step: a sum may be smaller than its terms."""
        found = _run_float(layer, arrays)
        states = np.concatenate((found.hidden, found.new), axis=1)
        cut = self.cut_terms(layer)
        terms = {} if cut is None else {cut.name: found.cut_terms}
        return {layer.states[0].tensor: states, **terms}

    def cut_terms(self, layer: Gru) -> CutTerms | None:
        """The two terms of n with ``linear_before_reset``."""
        if not layer.linear_before_reset:
            return None
        return CutTerms(f"{layer.name}: terms of n", GATE_LIMIT)

    def run_fixed(
        self, layer: FixedGru, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        arithmetic = Arithmetic(element_bytes)
        h = initial_state(layer, 0, arrays, layer.hidden_weight.shape[1])
        all_h = []
        for step in range(arrays[0].shape[1]):
            h = _step(layer, arrays[0][:, step], h, arithmetic, element_bytes)
            all_h.append(h)
        return (np.stack(all_h, axis=1), h)

    def ties(self, layer: Gru) -> tuple[tuple[str, ...], ...]:
        return ((*layer.outputs, layer.states[0].tensor),)

    def quantize(self, layer: Gru, numbers: Numbers) -> FixedGru:
        q_x, q_h = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.outputs[0])
        element_bytes = numbers.element_bytes
        weights = (layer.input_weight, layer.hidden_weight)
        biases = (layer.bias, layer.hidden_bias)
        made = gate_weights(layer, weights, biases, (q_x, q_h), numbers)
        gate, unit = gate_q_point(element_bytes), unit_q_point(element_bytes)
        return FixedGru(
            layer.name, layer.inputs, layer.outputs, made.input_weight, made.hidden_weight,
            made.biases[0], made.biases[1], layer.linear_before_reset, made.shift,
            sigmoid=make_table("sigmoid", gate, unit, element_bytes),
            complement=make_table("complement", gate, unit, element_bytes),
            tanh=make_table("tanh", gate, unit, element_bytes),
            unit_shift=unit, new_shift=2 * unit - q_h, source=layer.source, states=layer.states,
        )  # fmt: skip

    def macs(self, layer: Gru | FixedGru, inputs: Shapes, outputs: Shapes) -> int:
        """Of the sums of gates; products of gates and states do not count."""
        return inputs[0][0] * (layer.input_weight.size + layer.hidden_weight.size)

    def word(self, layer: FixedGru) -> str:
        return "gru"


def _step(
    layer: FixedGru, x: IntArray, h: IntArray, arithmetic: Arithmetic, element_bytes: int
) -> IntArray:
    """The next h."""
    split = 2 * layer.hidden_weight.shape[1]
    from_input = sums(x, layer.input_weight) + layer.bias
    gates = from_input[:, :split] + sums(h, layer.hidden_weight[:split])
    r, z = np.split(arithmetic.requantize(gates, layer.gate_shift), 2, axis=1)
    keep, new = (table.look_up(z, element_bytes) for table in (layer.sigmoid, layer.complement))
    r = layer.sigmoid.look_up(r, element_bytes)
    if layer.linear_before_reset:
        own = sums(h, layer.hidden_weight[split:]) + layer.hidden_bias
        hidden = arithmetic.requantize(own, layer.gate_shift)
        n = arithmetic.add(
            arithmetic.requantize(from_input[:, split:], layer.gate_shift),
            arithmetic.multiply(r, hidden, layer.unit_shift),
        )
    else:
        reset = arithmetic.multiply(r, h, layer.unit_shift)
        own = sums(reset, layer.hidden_weight[split:]) + layer.hidden_bias
        n = arithmetic.requantize(from_input[:, split:] + own, layer.gate_shift)
    n = layer.tanh.look_up(n, element_bytes)
    kept = arithmetic.multiply(keep, h, layer.unit_shift)
    return arithmetic.add(kept, arithmetic.multiply(new, n, layer.new_shift))


class _Ran(NamedTuple):
    """[B, T, H] each: all h, all (1 - z) * n, and the larger of n's two terms where n changes
    visibly when both are cut at `GATE_LIMIT`, elsewhere 0."""

    hidden: FloatArray
    new: FloatArray
    cut_terms: FloatArray


def _run_float(layer: Gru, arrays: Arrays) -> _Ran:
    split = 2 * layer.hidden_weight.shape[1]
    h = initial_state(layer, 0, arrays, layer.hidden_weight.shape[1])
    from_input = arrays[0] @ layer.input_weight.T + layer.bias
    steps = []
    for step in range(arrays[0].shape[1]):
        gates = from_input[:, step, :split] + h @ layer.hidden_weight[:split].T
        r, z = np.split(logistic(gates), 2, axis=1)
        reset = h if layer.linear_before_reset else r * h
        own = reset @ layer.hidden_weight[split:].T + layer.hidden_bias
        mine = from_input[:, step, split:]
        n = np.tanh(mine + (r * own if layer.linear_before_reset else own))
        new = (1 - z) * n
        h = z * h + new
        steps.append((h, new, _cut(mine, own, r, n)))
    return _Ran(*(np.stack(each, axis=1) for each in zip(*steps, strict=True)))


def _cut(mine: FloatArray, own: FloatArray, r: FloatArray, n: FloatArray) -> FloatArray:
    """The larger of n's terms where cutting them changes it by more than `VISIBLE`."""
    limit = np.float32(GATE_LIMIT)
    cut = np.tanh(np.clip(np.clip(mine, -limit, limit) + r * np.clip(own, -limit, limit),
                          -limit, limit))  # fmt: skip
    larger = np.where(np.abs(mine) > np.abs(own), mine, own)
    return np.where(np.abs(cut - n) > VISIBLE, larger, np.float32(0))

