"""Operators on tile machines, through the door: code whose every bit is the reference's, or a
refusal by the rules with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits  # noqa: E402
from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.codegen.reference import run_fixed  # noqa: E402
from tvm_npu.door.models import PartitionedModel, import_onnx  # noqa: E402
from tvm_npu.door.rule_table import MACHINE_LACKS  # noqa: E402
from tvm_npu.options import make_options  # noqa: E402
from tvm_npu.runtime.session import Session  # noqa: E402

SHAPE = (1, 4, 6, 5)
MACHINES = (("setup-a", "int8"), ("zynq-7020", "int16"))
"""One with a mover and a memory for each tile, one with a DMA controller and one memory."""
RANDOM = np.random.default_rng(8)


def randoms(*shape: int) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


CONSTANTS: dict[str, NDArray[Any]] = {
    "point": randoms(4, 4, 1, 1),
    "other point": randoms(4, 4, 1, 1),
    "up": randoms(4, 3, 3, 2),
    "halves": np.array([1, 2, 2, 6, 5]),
    "whole": np.array(SHAPE),
    "steps": np.array([1, 1, 120]),
    "begins": np.array([3, 1]),
    "ends": np.array([-9, 5]),
    "axes": np.array([2, 3]),
    "strides": np.array([-2, 2]),
    "border": np.array([0, 0, 2, 1, 0, 0, 1, 3]),
    "no region": randoms(0),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "odd": np.array([1, 1, 1.5, 2.4], np.float32),
    "lstm input": randoms(1, 12, 120),
    "lstm state": randoms(1, 12, 3),
}

Node = tuple[str, Sequence[str], dict[str, Any]]
"""Operator, what it reads behind the tensor at hand, attributes."""

EMITTED: dict[str, list[Node]] = {
    "sum": [("Add", ["other"], {})],
    "product": [("Mul", ["other"], {})],
    "difference": [("Sub", ["other"], {})],
    "gate": [("Mul", ["gates"], {})],
    "offset": [("Add", ["gates"], {})],
    "centred": [("Sub", ["gates"], {})],
    "maximum": [("Max", ["other"], {})],
    "leaky ReLU": [("LeakyRelu", [], {"alpha": 0.1})],
    "hard swish": [("HardSwish", [], {})],
    "nearest": [("Resize", ["no region", "twice"], {"mode": "nearest"})],
    "nearest, any": [("Resize", ["no region", "odd"], {"mode": "nearest"})],
    "linear": [("Resize", ["no region", "twice"], {"mode": "linear"})],
    "cubic": [("Resize", ["no region", "odd"], {"mode": "cubic"})],
    "transposed": [("ConvTranspose", ["up"], {"strides": [2, 3], "pads": [1, 0, 1, 1]})],
    "shuffle": [
        ("Reshape", ["halves"], {}), ("Transpose", [], {"perm": [0, 2, 1, 3, 4]}),
        ("Reshape", ["whole"], {}),
    ],
    "depth to space": [("DepthToSpace", [], {"blocksize": 2})],
    "transpose": [("Transpose", [], {"perm": [0, 3, 1, 2]})],
    "slice": [("Slice", ["begins", "ends", "axes", "strides"], {})],
    "concatenation": [("Concat", ["other"], {"axis": 3})],
    "reflection": [("Pad", ["border"], {"mode": "reflect"})],
}  # fmt: skip

REFUSED: dict[str, tuple[list[Node], str]] = {
    "softmax": ([("Softmax", [], {"axis": 1})], "softmax"),
    "sigmoid": ([("Sigmoid", [], {})], "table"),
    "tanh": ([("Tanh", [], {})], "table"),
    "SiLU": ([("Sigmoid", [], {}), ("Mul", ["a"], {})], "table"),
}
"""With what the machine has no code for."""
LSTM: list[Node] = [
    ("Reshape", ["steps"], {}), ("LSTM", ["lstm input", "lstm state"], {"hidden_size": 3}),
]  # fmt: skip


def model(nodes: Sequence[Node]) -> onnx.ModelProto:
    """Behind a convolution; ``other`` is a second one's result, ``gates`` its channels' means."""
    made = [
        helper.make_node("Conv", ["x", "point"], ["a"]),
        helper.make_node("Conv", ["x", "other point"], ["other"]),
        helper.make_node("GlobalAveragePool", ["other"], ["gates"]),
    ]
    tensor = "a"
    for number, (operator, more, attributes) in enumerate(nodes):
        result = "y" if number == len(nodes) - 1 else f"t{number}"
        made.append(
            helper.make_node(operator, [tensor, *more], [result], f"op{number}", **attributes)
        )
        tensor = result
    read = {name for node in made for name in node.input}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(CONSTANTS[one], one) for one in CONSTANTS if one in read]
    graph = helper.make_graph(made, "operator", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def partitioned(nodes: Sequence[Node], machine: str, precision: Any) -> PartitionedModel:
    options = make_options(machine, precision=precision, offload="all")
    return import_onnx(model(nodes), {}).partition(options, [{"x": randoms(*SHAPE)}])


def check_regions(found: PartitionedModel) -> None:
    """Whatever the integers that come."""
    for symbol in found.symbols:
        fixed = found.fixed_graph(symbol)
        low, high = element_limits(fixed.element_bytes)
        inputs = {
            name: RANDOM.integers(low, high + 1, (1, *fixed.shapes[name])).astype(
                ELEMENT_TYPE[fixed.element_bytes]
            )
            for name in fixed.inputs
        }
        results = Session(Program.from_bytes(found.program(symbol))).run_fixed([*inputs.values()])
        want = run_fixed(fixed, inputs)
        for name, values in zip(fixed.outputs, results, strict=True):
            np.testing.assert_array_equal(values, want[name])


@pytest.mark.parametrize(("machine", "name"), zip(cycle(MACHINES), EMITTED))
def test_what_is_emitted(machine: tuple[str, str], name: str) -> None:
    found = partitioned(EMITTED[name], *machine)
    assert not found.report.refusals and len(found.symbols) == 1
    check_regions(found)


@pytest.mark.parametrize(("machine", "name"), zip(cycle(MACHINES), REFUSED))
def test_what_is_refused(machine: tuple[str, str], name: str) -> None:
    check_refusal(*REFUSED[name], machine)


def test_a_recurrent_layer_is_looked_at_call_by_call() -> None:
    pytest.importorskip("tvm.relay", reason="Relax reads no LSTMs", exc_type=ImportError)
    check_refusal(LSTM, "table", MACHINES[0])


def check_refusal(nodes: Sequence[Node], lacking: str, machine: tuple[str, str]) -> None:
    """The layer that the machine lacks is the reason; everything else is right."""
    found = partitioned(nodes, *machine)
    reasons = [(one.rule, one.value) for one in found.report.refusals]
    assert (MACHINE_LACKS, lacking) in reasons
    assert found.symbols
    check_regions(found)
