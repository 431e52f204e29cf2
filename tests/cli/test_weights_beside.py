"""Weights in files beside an ONNX model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.onnx_file import read_onnx


@pytest.mark.parametrize("length", [1 << 62, 1 << 70])
def test_weights_larger_than_memory_are_named(tmp_path: Path, length: int) -> None:
    tensor = TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, said in (("location", "w.bin"), ("length", str(length))):
        tensor.external_data.add(key=key, value=said)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [tensor])
    (tmp_path / "w.bin").write_bytes(bytes(24))
    (tmp_path / "m.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    said = r"cannot read the weights beside '.*m\.onnx': .* \(--random"
    with pytest.raises(CliError, match=said):
        read_onnx(tmp_path / "m.onnx")
