"""ONNX's checker sees the nodes of a model, not its large weights."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

import onnx  # noqa: E402

from tvm_npu.door.weightless import without_weights  # noqa: E402
from tvm_npu.models import build  # noqa: E402
from tvm_npu.relay.frontend import from_onnx  # noqa: E402


def test_the_checker_finds_the_same_in_much_less() -> None:
    model = build("alexnet", width=0.25, input_size=67, batch=1)
    light = without_weights(model)
    onnx.checker.check_model(light)
    assert light.ByteSize() * 10 < model.ByteSize()
    checker = onnx.checker.check_model
    model.graph.node[0].op_type = "Konv"
    with pytest.warns(UserWarning, match="Konv"), pytest.raises(Exception, match="Konv"):
        from_onnx(model)
    assert onnx.checker.check_model is checker
