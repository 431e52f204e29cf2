"""What TVM is not asked while its frontend reads a model."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("tvm.relay", reason="the relay extra is not installed")

import numpy as np  # noqa: E402
import tvm  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from tvm.runtime import _ffi_node_api  # noqa: E402

from tvm_npu.models.data import load_digits_lenet  # noqa: E402
from tvm_npu.relay import from_onnx  # noqa: E402


def model_with_a_reshape() -> Any:
    """Of a result, whose name TVM's frontend asks for."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["y"]),
    ]
    values = {"w": np.ones((2, 3, 1, 1), np.float32), "shape": np.array([1, -1], np.int64)}
    shapes = {"x": (1, 3, 4, 4), "y": (1, 32)}
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items())
    weights = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


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
    from_onnx(model_with_a_reshape())
    assert missing == [] and tvm.Object.__getattr__ is before


BACKTRACES = """
from pathlib import Path
from tvm_npu.relay.embed import packed_caller

def files():  # that are mapped: libbacktrace maps each library a second time, as a whole
    return Path("/proc/self/maps").read_text().count("libtvm.so")

before = files()
packed_caller("a", "b", ["x"], None, [(1, 2)], [(1, 2)], "llvm")
print(files() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mappings as Linux tells them")
def test_callers_are_made_without_a_backtrace() -> None:
    """In a process of its own: debug information is read once."""
    done = subprocess.run([sys.executable, "-c", BACKTRACES], check=True, capture_output=True)
    assert int(done.stdout) == 0
