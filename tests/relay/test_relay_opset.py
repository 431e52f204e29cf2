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
from tvm_npu.relay.opset import NEWEST_OPSET, check_opset, check_understood

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


def eye(rows: int, columns: int, k: int, is_known: bool = True) -> onnx.ModelProto:
    """Of a constant, or of a tensor whose shape the model does not say."""
    nodes = [helper.make_node("EyeLike", ["c" if is_known else "m"], ["e"], name="it", k=k)]
    if not is_known:
        nodes.insert(0, helper.make_node("Add", ["c", "c"], ["m"]))
    nodes.append(helper.make_node("Add", ["x", "e"], ["y"]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [rows, columns])],
        [value("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(np.zeros((rows, columns), np.float32), "c")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize(("rows", "columns", "k"), [(3, 3, 0), (4, 5, 1), (2, 7, 5)])
def test_diagonals_that_tvm_writes_well_are_computed(rows: int, columns: int, k: int) -> None:
    x = np.ones((rows, columns), np.float32)
    expected = ReferenceEvaluator(eye(rows, columns, k)).run(None, {"x": x})[0]
    (found,) = build_onnx(eye(rows, columns, k), target=None).run({"x": x})
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(("rows", "columns", "k"), [(7, 2, -3), (7, 2, 0), (4, 4, 1)])
def test_diagonals_that_tvm_writes_outside_of_are_refused(rows: int, columns: int, k: int) -> None:
    what = f"EyeLike 'it' has {rows} rows, {columns} columns and k {k}"
    with pytest.raises(PartitionError, match=what):
        from_onnx(eye(rows, columns, k))
    with pytest.raises(PartitionError, match="the model does not say"):
        from_onnx(eye(rows, columns, k, is_known=False))


def reduction(axes: list[int], rank: int | None, keepdims: int = 0) -> onnx.ModelProto:
    """Of the input's absolute values; of an operator's result without a known rank, for None."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]) if rank else helper.make_node("Odd", ["x"], ["a"]),
        helper.make_node("ReduceMean", ["a"], ["y"], name="it", axes=axes, keepdims=keepdims),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2, 3, 4][: rank or 3])],
        [value("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


@pytest.mark.parametrize("axes", [[2, 2], [-1, -1], [1, -2], [0, 1, -3]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_along_an_axis_twice_are_refused(axes: list[int], keepdims: int) -> None:
    """TVM 0.19 aborts: a case of fuzzing."""
    with pytest.raises(PartitionError, match=r"ReduceMean 'it' has the axes \[.*\], one of them"):
        check_understood(reduction(axes, 3, keepdims))


def test_axes_from_both_ends_need_a_rank() -> None:
    with pytest.raises(PartitionError, match="number of axes the model does not say"):
        check_understood(reduction([0, -1], None))
    x = np.ones((2, 3, 4), np.float32)
    (found,) = build_onnx(reduction([0, -1], 3), target=None).run({"x": x})
    assert np.array_equal(found, np.ones(3, np.float32))


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


def test_a_model_has_one_opset() -> None:
    """TVM read by the first, what is checked was the last."""
    model = one_operator("Conv", 13)
    model.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    with pytest.raises(PartitionError, match="opsets 7, 13 at once"):
        from_onnx(model)
    model.opset_import[1].version = 13
    from_onnx(model)
