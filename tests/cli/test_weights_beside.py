"""Weights in files beside an ONNX model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tvm_npu.cli import onnx_file
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.onnx_file import read_onnx


def model(folder: Path, *tensors: tuple[str, tuple[int, ...], dict[str, object]]) -> Path:
    """A model of sums, with weights (name, shape, what is said of its file)."""
    made, nodes, last = [], [], "x"
    for name, dims, said in tensors:
        tensor = TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "w.bin", **said}.items():
            tensor.external_data.add(key=key, value=str(value))
        made.append(tensor)
        nodes.append(helper.make_node("Add", [last, name], [f"{name}_y"]))
        last = f"{name}_y"
    x, y = (helper.make_tensor_value_info(one, TensorProto.FLOAT, (2, 3)) for one in ("x", last))
    path = folder / "m.onnx"
    graph = helper.make_graph(nodes, "g", [x], [y], made)
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize("length", [1 << 62, 1 << 70])
def test_weights_larger_than_memory_are_named(tmp_path: Path, length: int) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    said = rf"cannot read the weights beside '.*m\.onnx': 'w' takes {length} .* \(--random"
    with pytest.raises(CliError, match=said):
        read_onnx(model(tmp_path, ("w", (2, 3), {"length": length})))


def test_no_more_is_read_of_a_file_than_a_tensor_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the length is said or not, and however many tensors share a file."""
    (tmp_path / "w.bin").write_bytes(bytes(100))
    for said in ({"offset": 76}, {"length": 24}, {"length": 24, "offset": 3}):
        (tensor,) = read_onnx(model(tmp_path, ("w", (2, 3), said))).graph.initializer
        assert len(tensor.raw_data) == 24

    monkeypatch.setattr(onnx_file, "MOST_BYTES", 48)
    good = ("w", (2, 3), {"length": 24})
    read_onnx(model(tmp_path, good, ("v", *good[1:])))
    monkeypatch.setattr(onnx, "load_external_data_for_model", None)
    for tensors, named in (
        ([("w", (2, 3), {})], r"'w' takes 100 bytes of 'w.bin'; 2 x 3 numbers \(float32\) are 24"),
        ([("w", (2, 3), {"length": 25})], "'w' takes 25 bytes"),
        ([("w", (2, 3), {"length": -1})], "'w' takes -1 bytes"),
        ([("w", (2, 3), {"offset": 75})], "'w' takes 25 bytes"),
        ([("w", (2, -3), {"length": 24})], "'w' takes 24 bytes .* are -24"),
        ([good, ("v", *good[1:]), ("u", *good[1:])], "they are 72 bytes; at most 48"),
    ):
        with pytest.raises(CliError, match=named):
            read_onnx(model(tmp_path, *tensors))


def test_files_elsewhere_are_not_looked_at(tmp_path: Path) -> None:
    """Not even for how large they are."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(100))
    for location in ("../w.bin", str(tmp_path / "w.bin")):
        with pytest.raises(CliError, match="cannot read the weights beside") as said:
            read_onnx(model(folder, ("w", (2, 3), {"location": location})))
        assert "100 bytes" not in str(said.value)
