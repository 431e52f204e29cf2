"""TVM's frontend reads large weights from arrays of their own; the model's file can go before."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="the relay extra is not installed")
from tvm_npu.door.find import door_name  # noqa: E402

if door_name() != "relay":
    pytest.skip("needs TVM 0.19", allow_module_level=True)

import tvm  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from tvm import relay  # noqa: E402

from tvm_npu.relay import from_onnx, frontend  # noqa: E402
from tvm_npu.relay.light_check import KEPT_ELEMENTS  # noqa: E402


def model_with_weights() -> Any:
    rng = np.random.default_rng(0)
    side = int(KEPT_ELEMENTS**0.5) + 1
    weights = {
        "large": rng.standard_normal((side, side), np.float32),
        "halves": rng.standard_normal((side, side)).astype(np.float16),
        "small": rng.standard_normal(side, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["a"]),
        helper.make_node("Cast", ["halves"], ["h"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["a", "h"], ["b"]),
        helper.make_node("Add", ["b", "small"], ["y"]),
    ]
    shapes = {"x": (2, side), "large": (side, side)}  # old files list weights among their inputs
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, side))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_the_module_is_that_of_tvms_own_frontend() -> None:
    model = model_with_weights()
    before = model.SerializeToString()
    mod, params = from_onnx(model)
    assert model.SerializeToString() == before
    want, others = relay.frontend.from_onnx(model)
    assert params.keys() == others.keys()
    assert tvm.ir.structural_equal(mod, want)


class Held:
    """A model to which there can be weak references; protobuf's messages have none."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def test_the_model_is_gone_while_tvm_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Held]] = []

    def loaded(path: str) -> Held:
        model = Held(model_with_weights())
        held.append(weakref.ref(model))
        return model

    original, seen = relay.frontend.from_onnx, []

    def from_light(model: Any, **options: Any) -> Any:
        seen.append((held[0]() is None, len(model.SerializeToString()) < KEPT_ELEMENTS))
        return original(model, **options)

    monkeypatch.setattr(frontend, "read_model", loaded)
    monkeypatch.setattr(relay.frontend, "from_onnx", from_light)
    from_onnx("m.onnx")
    assert seen == [(True, True)]
