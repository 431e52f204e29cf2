"""Reading ONNX quickly gives what TVM's frontend gives by itself, to the last constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
import tvm  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.relay.frontend import common  # noqa: E402
from tvm.relay.frontend import onnx as reader  # noqa: E402

from tvm_npu import models  # noqa: E402
from tvm_npu.relay import from_onnx  # noqa: E402
from tvm_npu.relay import operands as of  # noqa: E402

pytestmark = pytest.mark.relay


def tokens() -> onnx.ModelProto:
    """Constants of all kinds: weights that are transposed, shapes that are cut and joined, a
    weight that is computed from others."""
    rng = np.random.default_rng(3)
    arrays: dict[str, Any] = {
        "w": rng.standard_normal((6, 5)).astype(np.float32),
        "v": rng.standard_normal((1, 5, 2)).astype(np.float32),
        "scale": rng.standard_normal(5).astype(np.float32),
        "two": np.array([2.0], np.float32),
        "starts": np.array([0], np.int64),
        "ends": np.array([2], np.int64),
        "rest": np.array([-1], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["last"], perm=[0, 2, 3, 1]),
        node("MatMul", ["last", "w"], ["y"]),
        node("Mul", ["scale", "two"], ["both"]),
        node("Exp", ["both"], ["grown"]),
        node("Add", ["y", "grown"], ["z"]),
        node("Shape", ["z"], ["shape"]),
        node("Slice", ["shape", "starts", "ends"], ["front"]),
        node("Concat", ["front", "rest"], ["joined"], axis=0),
        node("Reshape", ["z", "joined"], ["flat"]),
        node("Split", ["flat"], ["a", "b"], axis=1),
        node("Concat", ["b", "a"], ["turned"], axis=1),
        node("Reshape", ["turned", "three"], ["rows"]),
        node("MatMul", ["rows", "v"], ["out"]),
    ]
    arrays["three"] = np.array([1, -1, 5], np.int64)
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 4, 3])],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 12, 2])],
            [numpy_helper.from_array(values, name) for name, values in arrays.items()],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )


MODELS = {
    "tokens": tokens,
    "lenet": lambda: models.build("lenet", input_size=20, width=0.25),
    "squeezenet": lambda: models.build("squeezenet1.1", input_size=32, width=0.1),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_is_that_of_tvm_s_own_reader(name: str) -> None:
    model = MODELS[name]()
    mine, _ = from_onnx(model)
    stock, _ = relay.frontend.from_onnx(model)
    assert tvm.ir.structural_equal(
        relay.transform.InferType()(mine), relay.transform.InferType()(stock), map_free_vars=True
    )
    sources = [
        [of.source_of(expr) for expr in of.post_order(mod["main"].body)] for mod in (mine, stock)
    ]
    assert sources[0] == sources[1]


def test_constants_are_folded_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    original = common.fold_constant
    monkeypatch.setattr(
        reader, "fold_constant", lambda expr, mod=None: compiled.append(expr) or original(expr, mod)
    )
    mod, _ = from_onnx(tokens())
    assert {of.op_name(expr) for expr in compiled} == {"multiply", "exp"}
    assert not any(of.op_name(expr) == "exp" for expr in of.post_order(mod["main"].body))


def test_the_frontend_is_itself_again_afterwards() -> None:
    before = common.infer_type, reader.infer_type, reader.fold_constant, reader._get_convert_map
    with pytest.raises(tvm.error.OpNotImplemented):
        model = tokens()
        model.graph.node[0].op_type = "NoSuchOperator"
        from_onnx(model)
    assert before == (
        common.infer_type, reader.infer_type, reader.fold_constant, reader._get_convert_map
    )  # fmt: skip
