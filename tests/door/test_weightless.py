"""Models without their large weights say the same of shapes, and little else is left of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tvm_npu.door.onnx.shapes import inferred, known_shapes  # noqa: E402
from tvm_npu.door.weightless import KEPT_ELEMENTS, without_weights  # noqa: E402
from tvm_npu.models import build  # noqa: E402


def product(columns: int, *declared: Any) -> Any:
    """x [2, columns] times a weight, in a shape that another weight gives."""
    weights = {
        "w": np.ones((columns, 3), np.float32),
        "shape": np.array([3, 2], np.int64),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Reshape", ["y", "shape"], ["z"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, columns]), *declared],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("name", ["squeezenet1.1", "mobilenet_v3_small", "convnext_tiny"])
def test_shapes_are_those_of_the_whole_model(name: str) -> None:
    model = build(name, width=0.25, input_size=64)
    light = without_weights(model)
    onnx.checker.check_model(light)
    assert light.ByteSize() < model.ByteSize() / 10
    assert known_shapes(inferred(light).graph) == known_shapes(inferred(model).graph)


def test_weights_that_may_be_shapes_stay() -> None:
    largest = KEPT_ELEMENTS // 3
    assert {t.name for t in without_weights(product(largest)).graph.initializer} == {"w", "shape"}
    light = without_weights(product(largest + 1))
    assert {tensor.name for tensor in light.graph.initializer} == {"shape"}
    assert known_shapes(inferred(light).graph)["z"] == (3, 2)
    assert {t.name for t in without_weights(product(2), 1).graph.initializer} == set()


def test_a_weight_is_an_input_once_with_its_own_shape() -> None:
    """Models of old opsets declare weights as inputs; what they declare need not be true."""
    declared = helper.make_tensor_value_info("w", TensorProto.FLOAT, None)
    light = without_weights(product(40, declared))
    assert [value.name for value in light.graph.input] == ["x", "w"]
    assert known_shapes(light.graph)["w"] == (40, 3)
