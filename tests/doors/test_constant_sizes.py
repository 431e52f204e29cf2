"""Constants that a model computes from small ones are bounded before anybody makes them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tvm_npu.door import constant_sizes  # noqa: E402
from tvm_npu.door.onnx.model import read_model  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402

node = helper.make_node
ONE = np.float32([[1]])
SIDE = 1 << 18
SQUARE = np.int64([SIDE, SIDE])


def model_of(nodes: list[Any], **weights: Any) -> Any:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def one_of(op: str, *inputs: str, **attributes: Any) -> Any:
    return node(op, inputs, ["y"], name="large", **attributes)


BRANCH = helper.make_graph(
    [one_of("ConstantOfShape", "s")], "b", [],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
)  # fmt: skip
ROWS, COLUMNS = np.zeros((1 << 16, 1), np.float32), np.zeros((1, 1 << 16), np.float32)
MODELS = {
    "filled": ([one_of("ConstantOfShape", "s")], {"s": SQUARE}),
    "expanded": ([one_of("Expand", "w", "s")], {"w": ONE, "s": SQUARE}),
    "tiled": ([one_of("Tile", "w", "s")], {"w": ONE, "s": SQUARE}),
    "counted": ([one_of("Range", "a", "b", "c")],
                {"a": np.int64(0), "b": np.int64(1 << 36), "c": np.int64(1)}),
    "resized": ([one_of("Resize", "w", "", "s", mode="nearest")],
                {"w": ONE, "s": np.float32([SIDE, SIDE])}),
    "padded": ([one_of("Pad", "w", "p")], {"w": ONE, "p": np.int64([SIDE, SIDE, 0, 0])}),
    "one-hot": ([one_of("OneHot", "i", "d", "v")],
                {"i": np.zeros(64, np.int64), "d": np.int64(1 << 30), "v": np.float32([0, 1])}),
    "random": ([one_of("RandomNormal", shape=[SIDE, SIDE])], {}),
    "broadcast": ([one_of("Add", "a", "b")], {"a": ROWS, "b": COLUMNS}),
    "multiplied": ([one_of("MatMul", "a", "b")], {"a": ROWS, "b": COLUMNS}),
    "of a Constant": ([node("Constant", [], ["s"], value_ints=[SIDE, SIDE]),
                       one_of("ConstantOfShape", "s")], {}),
    "of a computed shape": ([node("Mul", ["s", "s"], ["q"]), one_of("ConstantOfShape", "q")],
                            {"s": np.int64([1 << 15, 1 << 15])}),
    "of an input's shape": ([node("Shape", ["x"], ["s"]), node("Mul", ["s", "k"], ["q"]),
                             one_of("ConstantOfShape", "q")], {"k": SQUARE}),
    "in a subgraph": ([node("If", ["is"], ["y"], then_branch=BRANCH, else_branch=BRANCH)],
                      {"is": np.bool_(True), "s": SQUARE}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_large_constant_is_refused(name: str) -> None:
    nodes, weights = MODELS[name]
    said = r"'large' computes a constant of shape \[.*allowed: 268,435,456. Make the constant"
    with pytest.raises(PartitionError, match=said):
        read_model(model_of(nodes, **weights))


def test_many_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results as large as what they are computed from count nothing."""
    monkeypatch.setattr(constant_sizes, "MOST_ELEMENTS", 300)
    filled = [node("ConstantOfShape", ["s"], [name]) for name in "abcd"]
    views = [node("Neg", [one], [one + "n"]) for one in "abc"]
    weights = {"s": np.int64([10, 10])}
    read_model(model_of([*filled[:3], *views, one_of("Sum", "a", "bn", "cn")], **weights))
    said = "ConstantOfShape 'd' computes a constant of shape [10, 10] from others: with it the "
    with pytest.raises(PartitionError, match=re.escape(said + "model computes 392 elements")):
        read_model(model_of([*filled, one_of("Sum", "a", "b", "c", "d")], **weights))


def test_unknown_operators_and_what_is_computed_from_inputs_pass() -> None:
    read_model(model_of([node("Mine", ["w"], ["z"], domain="my"), one_of("Expand", "z", "s")],
                        w=ONE, s=SQUARE))  # fmt: skip
    read_model(model_of([one_of("Add", "x", "w")], w=ONE))
