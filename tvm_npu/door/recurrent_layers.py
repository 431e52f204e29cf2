"""Unrolled recurrent layers as layers of the NPU graph."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FloatArray, Layer, State
from tvm_npu.door.cells import Cell
from tvm_npu.door.graph_builder import GraphBuilder
from tvm_npu.door.recurrent import RecurrentChain

RECURRENT: tuple[type[Layer], ...] = (ops.Lstm, ops.Gru)


def layer_of(chain: RecurrentChain) -> type[Layer]:
    """The type of the layer that a chain becomes."""
    return ops.Lstm if chain.kind == "lstm" else ops.Gru


def append_recurrent(b: GraphBuilder, chain: RecurrentChain) -> None:
    """One layer with all of a chain's steps; the tensors of its results and their views."""
    cell = chain.cells[0]
    call = cell.linears[0].calls[-1]
    steps, hidden = len(chain.cells), cell.hidden
    initial = [None if value is None else b.tensors[value] for value in chain.initial]
    inputs = (b.tensors[chain.sequence], *(tensor for tensor in initial if tensor is not None))
    outputs = (b.new_tensor((steps, hidden)), *(b.new_tensor((hidden,)) for _ in initial))
    states = tuple(
        State(b.new_tensor((hidden,)), begin, end)
        for begin, end in zip(initial, outputs[1:], strict=True)
    )
    name, source = b.name(call), (call.source,) if call.source else ()
    if layer_of(chain) is ops.Lstm:
        made: Layer = ops.Lstm(
            name, inputs, outputs, *_lstm_weights(cell), source=source, states=states
        )
    else:
        made = ops.Gru(name, inputs, outputs, *_gru_weights(cell), source=source, states=states)
    b.layers.append(made)
    for value, position in chain.views.items():
        b.tensors[value] = outputs[position]


def _lstm_weights(cell: Cell) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of input and state, which lie side by side, and the bias."""
    (linear,) = cell.linears
    weight = linear.weight.array
    features = weight.shape[1] - cell.hidden
    return _plain(weight[:, :features]), _plain(weight[:, features:]), linear.bias(len(weight))


def _gru_weights(cell: Cell) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, bool]:
    """Of input and state, their bias, the new gate's own of the state, and whether that is added
    before the reset gate."""
    from_input, *from_state = cell.linears
    rows, hidden = 3 * cell.hidden, cell.hidden
    bias = from_input.bias(rows)
    if len(from_state) > 1:  # reset first: all biases of the new gate are added behind it
        weight = np.concatenate([one.weight.array for one in from_state])
        own = np.concatenate([one.bias(hidden) for one in from_state])
        zeros = np.zeros(hidden, np.float32)
        return _plain(from_input.weight.array), _plain(weight), bias + own, zeros, False
    (linear,) = from_state
    own = linear.bias(rows)
    new = slice(2 * hidden, rows)
    together = bias + own
    together[new] = bias[new]
    weights = _plain(from_input.weight.array), _plain(linear.weight.array)
    return (*weights, together, own[new].copy(), True)


def _plain(weight: FloatArray) -> FloatArray:
    return np.ascontiguousarray(weight, dtype=np.float32)
