"""Integers that a constant 0 divides: TVM would end the process, so the model is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

from tvm_npu.door.find import door_name  # noqa: E402
from tvm_npu.door.models import import_onnx  # noqa: E402
from tvm_npu.door.onnx.model import read_model  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402


def division(op: str = "Div", dividend: str = "x", divisor: str = "d") -> Any:
    return helper.make_node(op, [dividend, divisor], ["y"], name="quotient")


def model_of(nodes: list[Any], **constants: Any) -> Any:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.INT32, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


SAID = "'quotient' divides by a constant of {} that is 0"
ONE_ZERO = np.int32([[3, -1, 2], [1, 0, 4]])


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_a_constant_zero_is_refused(op: str, dtype: str) -> None:
    with pytest.raises(PartitionError, match=f"{op} {SAID.format(dtype)}; integers can be"):
        read_model(model_of([division(op)], d=np.zeros((), dtype)))
    with pytest.raises(PartitionError, match=f"{op} {SAID.format(dtype)}" + r" at \[1, 1\];"):
        read_model(model_of([division(op)], d=ONE_ZERO.astype(dtype)))


def test_zeros_of_constant_nodes_in_subgraphs() -> None:
    zero = numpy_helper.from_array(np.zeros(3, np.int32))
    nodes = [helper.make_node("Constant", [], ["d"], value=zero), division()]
    inner = helper.make_graph(
        nodes[1:], "inner", [], [helper.make_tensor_value_info("y", TensorProto.INT32, (2, 3))]
    )
    branches = helper.make_node("If", ["is"], ["y"], then_branch=inner, else_branch=inner)
    for model in (model_of(nodes), model_of([nodes[0], branches])):
        with pytest.raises(PartitionError, match=re.escape(SAID.format("int32") + " at [0]")):
            read_model(model)


@pytest.mark.parametrize("dividend", ["x", "seven"])
def test_zeros_that_the_model_computes(dividend: str) -> None:
    """Of constants: folding them divides, too."""
    nodes = [helper.make_node("Sub", ["seven", "seven"], ["d"]), division(dividend=dividend)]
    model = model_of(nodes, seven=np.full(3, 7, np.int32))
    said = "divides by a constant of int32 that is 0|integer inputs encountered divisor value 0"
    with pytest.raises(PartitionError, match=said):  # the second one is said by Relax's frontend
        read = import_onnx(model, {})
        read.door.normalize(read.mod, read.params)


def test_what_may_be_divided() -> None:
    for nodes, constants in (
        ([division()], {"d": np.int32([-1, 2, 3])}),
        ([division()], {"d": np.zeros(3, np.float32)}),
        ([division(dividend="d", divisor="x")], {"d": np.zeros(3, np.int32)}),
    ):
        read_model(model_of(nodes, **constants))


def test_a_divisor_that_cannot_be_read_is_named() -> None:
    model = model_of([division()], d=np.ones(3, np.int32))
    model.graph.initializer[0].dims[0] = 4
    with pytest.raises(PartitionError, match=r"tensor 'd' of shape \[4\] cannot be read"):
        read_model(model)


def test_divisors_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        model_of([division()], d=ONE_ZERO), path, save_as_external_data=True, size_threshold=0
    )
    read_model(onnx.load(path, load_external_data=False))
    with pytest.raises(PartitionError, match=re.escape(SAID.format("int32") + " at [1, 1]")):
        read_model(path)


def test_quotients_of_large_constants_are_exact() -> None:
    """Floats hold integers up to 2^53; TVM rounds towards 0."""
    if door_name() != "relax":
        pytest.skip("TVM folds constants itself")
    from tvm import relax

    from tvm_npu.relax.expressions import array_of
    from tvm_npu.relax.folding import folded

    left = np.int64([2**62 + 1, -(2**62) - 1, -7, 7, -7, 2**63 - 1])
    right = np.int64([1, 1, 2, -2, -2, -1])
    quotients = [int(a) // int(b) if (a < 0) == (b < 0) else -(abs(int(a)) // abs(int(b)))
                 for a, b in zip(left, right, strict=True)]  # fmt: skip
    operands = [relax.const(value, "int64") for value in (left, right)]
    call = relax.BlockBuilder().normalize(relax.op.divide(*operands))
    assert array_of(folded(call, {})).tolist() == quotients
