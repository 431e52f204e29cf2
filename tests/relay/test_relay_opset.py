"""Operator sets newer than TVM's frontend: taken where they mean the same, refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_npu.door.models import build_onnx
from tvm_npu.errors import PartitionError
from tvm_npu.relay.frontend import from_onnx
from tvm_npu.relay.opset import NEWEST_OPSET, check_opset

pytestmark = pytest.mark.relay


def one_operator(operator: str, opset: int, **attributes: Any) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 6, 6]) for name in "xy"]
    weights = []
    inputs = ["x"]
    if operator == "Conv":
        weight = np.ones((2, 2, 1, 1), np.float32)
        weights.append(numpy_helper.from_array(weight, "w"))
        inputs.append("w")
    node = helper.make_node(operator, inputs, ["y"], name="it", **attributes)
    graph = helper.make_graph([node], "g", [values[0]], [values[1]], initializer=weights)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("opset", [9, 13, NEWEST_OPSET, 21, 22])
def test_convolutions_mean_the_same_in_every_opset(opset: int) -> None:
    mod, _ = from_onnx(one_operator("Conv", opset), freeze_params=True)
    assert "nn.conv2d" in str(mod["main"])


def test_operators_of_a_newer_opset_are_named() -> None:
    with pytest.raises(PartitionError, match=r"Gelu 'it' is defined by ONNX opset 20; .*up to 18"):
        from_onnx(one_operator("Gelu", 20, approximate="erf-like"))
    with pytest.raises(PartitionError, match=r"RMSNormalization 'it' is defined by ONNX opset 23"):
        check_opset(one_operator("RMSNormalization", 23))


SAME = ("Gelu", "Mish", "Round", "Sin", "ThresholdedRelu", "Elu", "Softplus")


@pytest.mark.parametrize("operator", SAME)
def test_operators_that_mean_the_same_as_ever_are_computed(operator: str) -> None:
    model = one_operator(operator, 22)
    x = 3 * np.random.default_rng(6).standard_normal((1, 2, 6, 6)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = build_onnx(model, target=None).run({"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_attributes_that_tvm_ignores_are_named() -> None:
    resize = one_operator("Resize", 18, mode="nearest", keep_aspect_ratio_policy="not_larger")
    with pytest.raises(PartitionError, match="'it' has keep_aspect_ratio_policy not_larger, which"):
        from_onnx(resize)


def test_new_attributes_of_known_operators_are_seen() -> None:
    plain = {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}
    check_opset(one_operator("AveragePool", 22, **plain))
    check_opset(one_operator("AveragePool", 22, **plain, dilations=[2, 2]))
    check_opset(one_operator("Pad", 22, mode="reflect"))
    with pytest.raises(PartitionError, match="Pad 'it' is defined by ONNX opset"):
        check_opset(one_operator("Pad", 22, mode="wrap"))
    key = "coordinate_transformation_mode"
    check_opset(one_operator("RoiAlign", 22, **{key: "output_half_pixel"}))
    with pytest.raises(PartitionError, match="RoiAlign 'it' is defined by ONNX opset"):
        check_opset(one_operator("RoiAlign", 22))


def test_opsets_that_nobody_knows_are_refused() -> None:
    with pytest.raises(PartitionError, match=r"uses ONNX opset 999; .*export it with opset 18"):
        from_onnx(one_operator("Conv", 999))
