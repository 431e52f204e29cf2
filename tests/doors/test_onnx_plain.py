"""Constants of numbers and inputs that are left out by an empty name, as newer exporters write
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

from tvm_npu.door.models import build_onnx, import_onnx  # noqa: E402
from tvm_npu.door.onnx.model import read_model  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def constant(name: str, **value: Any) -> Any:
    return helper.make_node("Constant", [], [name], **value)


def model_of(*nodes: Any, kind: int = TensorProto.FLOAT, weights: Any = (), x: Any = X) -> Any:
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)], list(weights),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_constants_of_numbers() -> None:
    model = model_of(
        constant("one", value_float=2.5), constant("row", value_floats=[1.0, 2.0, 3.0]),
        constant("shape", value_ints=[3, 2]), constant("axis", value_int=1),
        helper.make_node("Mul", ["x", "one"], ["m"]), helper.make_node("Add", ["m", "row"], ["a"]),
        helper.make_node("CumSum", ["a", "axis"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["y"]),
    )  # fmt: skip
    before = model.SerializeToString()
    (found,) = build_onnx(model, target=None).run({"x": X})
    wanted = np.cumsum(X * 2.5 + np.float32([1, 2, 3]), 1).reshape(3, 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("value", [{"value_int": 0}, {"value_ints": [0]}])
def test_divisors_that_are_such_constants(value: dict[str, Any], tmp_path: Path) -> None:
    nodes = constant("d", **value), helper.make_node("Div", ["x", "d"], ["y"], name="quotient")
    model = model_of(*nodes, kind=TensorProto.INT64)
    onnx.save(model, tmp_path / "m.onnx")
    for one in (model, tmp_path / "m.onnx"):
        with pytest.raises(PartitionError, match="'quotient' divides by a constant of int64"):
            read_model(one)


def test_a_bias_that_is_left_out() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    weight = numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "w")
    model = model_of(helper.make_node("Conv", ["x", "w", ""], ["y"]), weights=[weight], x=x)
    (found,) = build_onnx(model, target=None).run({"x": x})
    assert found.shape == (1, 1, 3, 3) and found[0, 0, 0, 0] == x[0, 0, :2, :2].sum()


def test_nodes_of_subgraphs_are_plain_too() -> None:
    inner = helper.make_graph(
        [constant("d", value_int=0), helper.make_node("Mod", ["x", "d"], ["y"], name="rest")],
        "inner", [], [helper.make_tensor_value_info("y", TensorProto.INT64, (2, 3))],
    )  # fmt: skip
    model = model_of(
        helper.make_node("If", ["is"], ["y"], then_branch=inner, else_branch=inner),
        kind=TensorProto.INT64,
    )
    with pytest.raises(PartitionError, match="Mod 'rest' divides by a constant of int64 that is 0"):
        read_model(model)


def test_strings_are_refused() -> None:
    model = model_of(constant("s", value_string="a"), helper.make_node("Relu", ["x"], ["y"]))
    with pytest.raises(PartitionError, match="Constant 's' holds strings, which TVM does not know"):
        read_model(model)


def test_operators_of_others_with_names_of_onnx() -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"], domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(PartitionError, match="Relu '.*' is of the domain 'own'; TVM would take it"):
        import_onnx(model, {})
