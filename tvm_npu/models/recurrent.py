"""Stacked LSTMs and GRUs of any size: several recurrent layers, one direction.

The Snowflake compiler's paper (Table 1) runs two layers over 100 steps, hidden sizes 128 and 512.
As ONNX has it, a sequence is [steps, batch, features] and a state [1, batch, hidden]. Gates of a
GRU are computed as cuDNN and PyTorch do it (`linear_before_reset`). Weights are uniform between
-1 / sqrt(hidden) and +1 / sqrt(hidden), PyTorch's initial ones.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tvm_npu.door.weightless import without_weights

from ._builder import IR_VERSION, OPSET
from ._weights import generator
from .errors import ModelArgumentError

Cell = Literal["lstm", "gru"]
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": ("h", "c"), "gru": ("h",)}
MAXIMUM = 65535


def build_recurrent(
    cell: Cell,
    *,
    hidden: int,
    features: int | None = None,
    layers: int = 2,
    steps: int = 100,
    batch: int = 1,
    with_states: bool = False,
    seed: int = 0,
) -> onnx.ModelProto:
    """``data`` [steps, batch, features] -> ``output`` [steps, batch, hidden], opset 13.

    `features` defaults to `hidden`. With `with_states` the initial states are inputs, ``h0_1``
    [1, batch, hidden] of the first layer and so on, ``c0_1`` of an LSTM, and the final ones are
    outputs, ``h_1``, ``c_1``; otherwise layers begin with zeros. The same arguments give the same
    bytes. Raises ModelArgumentError.
    """
    if cell not in GATES:
        raise ModelArgumentError("cell", cell, f"one of {', '.join(GATES)}")
    sizes = {"hidden": hidden, "layers": layers, "steps": steps, "batch": batch}
    features = hidden if features is None else features
    for name, value in {**sizes, "features": features}.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAXIMUM:
            raise ModelArgumentError(name, value, f"an integer from 1 to {MAXIMUM}")
    builder = _Stack(cell, hidden, batch, steps, with_states, seed)
    tensor, width = "data", features
    for number in range(1, layers + 1):
        tensor = builder.layer(tensor, width, number, "output" if number == layers else "")
        width = hidden
    return builder.model(features)


class _Stack:
    """Collects nodes, weights, inputs and outputs."""

    def __init__(
        self, cell: Cell, hidden: int, batch: int, steps: int, with_states: bool, seed: int
    ) -> None:
        self.cell, self.hidden, self.batch, self.steps = cell, hidden, batch, steps
        self.with_states = with_states
        self._rng = generator(seed)
        self._graph = onnx.GraphProto(name=cell)

    def layer(self, tensor: str, features: int, number: int, output: str) -> str:
        """One recurrent node and the Squeeze of its direction; the name of its sequence."""
        rows, name = GATES[self.cell] * self.hidden, f"{self.cell}{number}"
        inputs = [
            tensor,
            self._weights(f"{name}.W", 1, rows, features),
            self._weights(f"{name}.R", 1, rows, self.hidden),
            self._weights(f"{name}.B", 1, 2 * rows),
            "",
        ]
        outputs = [f"{name}/all"]
        if self.with_states:
            state = (1, self.batch, self.hidden)
            for letter in STATES[self.cell]:
                inputs.append(f"{letter}0_{number}")
                outputs.append(f"{letter}_{number}")
                self._graph.input.append(_value(inputs[-1], state))
                self._graph.output.append(_value(outputs[-1], state))
        known = {"linear_before_reset": 1} if self.cell == "gru" else {}
        self._node(self.cell.upper(), inputs, outputs, name, hidden_size=self.hidden, **known)
        result = output or f"{name}/sequence"
        axes = self._constant(f"{name}/axes", np.asarray([1], dtype=np.int64))
        self._node("Squeeze", [outputs[0], axes], [result], f"{name}/squeeze")
        return result

    def model(self, features: int) -> onnx.ModelProto:
        """The checked model; its first input is the sequence, its first output the last one."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self._graph)
        del graph.input[:], graph.output[:]
        graph.input.append(_value("data", (self.steps, self.batch, features)))
        graph.input.extend(self._graph.input)
        graph.output.append(_value("output", (self.steps, self.batch, self.hidden)))
        graph.output.extend(self._graph.output)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="tvm-npu")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(without_weights(model))
        return model

    def _weights(self, name: str, *shape: int) -> str:
        bound = 1.0 / math.sqrt(self.hidden)
        return self._constant(name, self._rng.uniform(-bound, bound, shape).astype(np.float32))

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self._graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        return name

    def _node(
        self, operator: str, inputs: list[str], outputs: list[str], name: str, **attributes: Any
    ) -> None:
        node = helper.make_node(operator, inputs, outputs, name=name, **attributes)
        self._graph.node.append(node)


def _value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
