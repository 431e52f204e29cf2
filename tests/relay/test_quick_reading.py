"""What TVM is not asked while its frontend reads a model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tvm.relay", reason="the relay extra is not installed")

import tvm  # noqa: E402
from tvm.runtime import _ffi_node_api  # noqa: E402

from tvm_npu.models.data import load_digits_lenet  # noqa: E402
from tvm_npu.relay import from_onnx  # noqa: E402


def test_no_attribute_is_asked_for_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a backtrace, and the first one 50 MB."""
    missing = []
    original = _ffi_node_api.NodeGetAttr

    def get(value: Any, name: str) -> Any:
        try:
            return original(value, name)
        except AttributeError:
            missing.append((type(value), name))
            raise

    monkeypatch.setattr(_ffi_node_api, "NodeGetAttr", get)
    before = tvm.Object.__getattr__
    from_onnx(load_digits_lenet())
    assert missing == [] and tvm.Object.__getattr__ is before
