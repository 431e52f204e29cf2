from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import pytest

from tvm_npu import tvm_environment

onnx = pytest.importorskip("onnx", reason="the relay extra is not installed")


def test_tuning_logs_are_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPHUB_LOCATION", raising=False)
    tvm_environment.prepare()
    assert os.environ["TOPHUB_LOCATION"] == "NONE"
    monkeypatch.setenv("TOPHUB_LOCATION", "AUTO")
    tvm_environment.prepare()
    assert os.environ["TOPHUB_LOCATION"] == "AUTO"


@pytest.fixture()
def onnx_without_mapping(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delitem(sys.modules, "onnx.mapping", raising=False)
    monkeypatch.delattr(onnx, "mapping", raising=False)
    monkeypatch.setattr(tvm_environment.importlib.metadata, "version", lambda name: "1.23.2")
    yield
    sys.modules.pop("onnx.mapping", None)


def test_onnx_mapping_comes_back(onnx_without_mapping: Any) -> None:
    tvm_environment.restore_onnx_mapping()
    table = importlib.import_module("onnx.mapping").TENSOR_TYPE_TO_NP_TYPE
    names = {"FLOAT": "float32", "INT64": "int64", "UINT8": "uint8", "BOOL": "bool"}
    for kind, name in names.items():
        assert table[getattr(onnx.TensorProto, kind)].name == name
    again = sys.modules["onnx.mapping"]
    tvm_environment.restore_onnx_mapping()
    assert sys.modules["onnx.mapping"] is again


def test_an_onnx_that_has_its_mapping_is_left_alone(
    onnx_without_mapping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tvm_environment.importlib.metadata, "version", lambda name: "1.18.0")
    tvm_environment.restore_onnx_mapping()
    assert "onnx.mapping" not in sys.modules
