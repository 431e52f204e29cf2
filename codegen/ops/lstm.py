"""Long short-term memory: a whole sequence as one layer.

"Long Short-Term Memory" (Hochreiter and Schmidhuber), with the forget gate, as ONNX and PyTorch
have it; no peepholes, no projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Array, FloatArray, IntArray
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes
from tvm_npu.codegen.ops.recurrent import (
    Arithmetic,
    check_sequence,
    gate_q_point,
    gate_weights,
    initial_state,
    sums,
    unit_q_point,
)
from tvm_npu.codegen.ops.table import Table, logistic, make_table

GATES = 4


@dataclass(frozen=True, eq=False)
class Lstm(Layer):
    """(T, I) -> (T, H), one step after the other:

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of input_weight x + hidden_weight h + bias
    c = f * c + i * g
    h = o * tanh(c)

    Inputs are the sequence, then the initial h (H,) and c (H,), where ``states`` name them
    (otherwise zeros). Outputs are all h (T, H), the last h (H,), the last c (H,). ``states`` are
    (h, c). Rows of ``input_weight`` [4 H, I], ``hidden_weight`` [4 H, H] and ``bias`` [4 H] come in
    the order i, f, g (the new cell), o; all float32.
    """

    input_weight: FloatArray
    hidden_weight: FloatArray
    bias: FloatArray


@dataclass(frozen=True, eq=False)
class FixedLstm(FixedLayer):
    """As `Lstm`, on integers; inputs, outputs, states and the order of rows are the same. With
    rq(a, s) = saturate(floor((a + half) >> s)) and products and sums exact before it, a step is

    gates = rq(input_weight x + hidden_weight h + bias, gate_shift)           [4 H]
    i, f, o = sigmoid of gates; g = tanh of gates                             by table
    c = saturate(rq(f * c, keep_shift) + rq(i * g, new_shift))
    h = rq(o * (cell_tanh of c), hidden_shift)

    Q-points: gates 12 (int8: 4); i, f, g, o and cell_tanh 15 (7); x, h, c their tensors'. Weights
    have the element type; ``bias`` is int32 at the Q-point that both products have.
    """

    input_weight: IntArray
    hidden_weight: IntArray
    bias: IntArray
    gate_shift: int
    sigmoid: Table
    tanh: Table
    cell_tanh: Table
    keep_shift: int
    new_shift: int
    hidden_shift: int


class LstmOperator(Operator[Lstm, FixedLstm]):
    layer = Lstm
    fixed = FixedLstm

    def shapes(self, layer: Lstm | FixedLstm, inputs: Shapes, declared: Shapes) -> Shapes:
        weights = (layer.input_weight, layer.hidden_weight)
        all_states, one = check_sequence(layer, inputs, weights, GATES, (layer.bias,))
        return (all_states, one, one)

    def run_float(self, layer: Lstm, arrays: Arrays, shapes: Shapes) -> Arrays:
        hidden, cells, _ = _run_float(layer, arrays)
        return (hidden, hidden[:, -1], cells[:, -1])

    def states_float(self, layer: Lstm, arrays: Arrays) -> Mapping[str, Array]:
        """Of c also what is added at each step: a sum may be smaller than its terms."""
        hidden, cells, new = _run_float(layer, arrays)
        all_c = np.concatenate([cells, new], axis=1)
        return {layer.states[0].tensor: hidden, layer.states[1].tensor: all_c}

    def run_fixed(
        self, layer: FixedLstm, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        arithmetic = Arithmetic(element_bytes)
        hidden = layer.hidden_weight.shape[1]
        h, c = (initial_state(layer, number, arrays, hidden) for number in (0, 1))
        all_h = []
        for step in range(arrays[0].shape[1]):
            acc = sums(arrays[0][:, step], layer.input_weight) + sums(h, layer.hidden_weight)
            gates = arithmetic.requantize(acc + layer.bias, layer.gate_shift)
            i, f, g, o = np.split(gates, GATES, axis=1)
            i, f, o = (layer.sigmoid.look_up(gate, element_bytes) for gate in (i, f, o))
            g = layer.tanh.look_up(g, element_bytes)
            kept = arithmetic.multiply(f, c, layer.keep_shift)
            c = arithmetic.add(kept, arithmetic.multiply(i, g, layer.new_shift))
            squashed = layer.cell_tanh.look_up(c, element_bytes)
            h = arithmetic.multiply(o, squashed, layer.hidden_shift)
            all_h.append(h)
        return (np.stack(all_h, axis=1), h, c)

    def ties(self, layer: Lstm) -> tuple[tuple[str, ...], ...]:
        """All h; the last c is tied to its state by being its final value."""
        return ((*layer.outputs[:2], layer.states[0].tensor),)

    def quantize(self, layer: Lstm, numbers: Numbers) -> FixedLstm:
        q_x, q_h = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.outputs[0])
        q_c = numbers.q_point(layer.outputs[2])
        element_bytes = numbers.element_bytes
        weights = (layer.input_weight, layer.hidden_weight)
        made = gate_weights(layer, weights, (layer.bias,), (q_x, q_h), numbers)
        gate, unit = gate_q_point(element_bytes), unit_q_point(element_bytes)
        return FixedLstm(
            layer.name, layer.inputs, layer.outputs, made.input_weight, made.hidden_weight,
            made.biases[0], made.shift,
            sigmoid=make_table("sigmoid", gate, unit, element_bytes),
            tanh=make_table("tanh", gate, unit, element_bytes),
            cell_tanh=make_table("tanh", q_c, unit, element_bytes),
            keep_shift=unit, new_shift=2 * unit - q_c, hidden_shift=2 * unit - q_h,
            source=layer.source, states=layer.states,
        )  # fmt: skip

    def macs(self, layer: Lstm | FixedLstm, inputs: Shapes, outputs: Shapes) -> int:
        """Of the sums of gates; products of gates and states do not count."""
        return inputs[0][0] * (layer.input_weight.size + layer.hidden_weight.size)

    def word(self, layer: FixedLstm) -> str:
        return "lstm"


def _run_float(layer: Lstm, arrays: Arrays) -> tuple[FloatArray, FloatArray, FloatArray]:
    """All h, all c, and all i * g, [B, T, H]."""
    hidden = layer.hidden_weight.shape[1]
    h, c = (initial_state(layer, number, arrays, hidden) for number in (0, 1))
    from_input = arrays[0] @ layer.input_weight.T + layer.bias
    all_h, all_c, all_new = [], [], []
    for step in range(arrays[0].shape[1]):
        gates = from_input[:, step] + h @ layer.hidden_weight.T
        i, f, g, o = np.split(gates, GATES, axis=1)
        all_new.append(logistic(i) * np.tanh(g))
        c = logistic(f) * c + all_new[-1]
        h = logistic(o) * np.tanh(c)
        all_h.append(h)
        all_c.append(c)
    return np.stack(all_h, axis=1), np.stack(all_c, axis=1), np.stack(all_new, axis=1)
