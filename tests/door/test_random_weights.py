"""Random weights stand where weights are missing, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tvm_npu.door.random_weights import HIGHEST_FACTOR, with_random_weights  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402


def model() -> onnx.ModelProto:
    """Conv (weights an input), BatchNormalization (data left out), Gemm (weights in a file that is
    not there, bias given), MatMul of two inputs."""
    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "g", "h"], ["e"], transB=1),
        helper.make_node("MatMul", ["e", "y"], ["z"]),
    ]
    empty = [TensorProto(name=name, dims=[64], data_type=1) for name in "sbmv"]
    outside = TensorProto(name="g", dims=[32, 64 * 4], data_type=1)
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="weights.bin")
    given = numpy_helper.from_array(np.arange(32, dtype=np.float32), "h")
    inputs = [value("x", 1, 16, 4, 4), value("w", 64, 16, 3, 3), value("y", 32, 7)]
    graph = helper.make_graph(nodes, "g", inputs, [value("z", 1, 7)], [*empty, outside, given])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


def test_missing_weights_are_drawn(tmp_path: Path) -> None:
    bare = model()
    before = bare.SerializeToString()
    found = with_random_weights(bare, 3, tmp_path)
    assert bare.SerializeToString() == before
    onnx.checker.check_model(found, full_check=True)
    assert [value.name for value in found.graph.input] == ["x", "y"]
    arrays = {one.name: numpy_helper.to_array(one) for one in found.graph.initializer}
    assert set(arrays) == set("wsbmvgh")
    assert arrays["h"].tolist() == list(range(32))
    assert arrays["w"].std() == pytest.approx((2 / (16 * 9)) ** 0.5, rel=0.05)
    assert arrays["g"].std() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert 0.5 < arrays["v"].min() and arrays["s"].max() < HIGHEST_FACTOR
    assert 0 < np.abs(arrays["m"]).max() < 0.5
    again, other = (with_random_weights(bare, seed, tmp_path) for seed in (3, 4))
    assert again == found and other != found
    assert with_random_weights(found, 9, tmp_path) is found


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    found = with_random_weights(model(), 0, tmp_path)
    (kept,) = [one for one in found.graph.initializer if one.name == "g"]
    assert kept.data_location == TensorProto.EXTERNAL


def test_states_that_are_given_stay_inputs(tmp_path: Path) -> None:
    def value(name: str, *shape: int, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, shape)

    inputs = [
        value("x", 5, 1, 3), value("w", 1, 16, 3), value("r", 1, 16, 4), value("b", 1, 32),
        value("lengths", 1, dtype=TensorProto.INT32), value("h", 1, 1, 4), value("c", 1, 1, 4),
        value("p", 1, 12),
    ]  # fmt: skip
    names = [one.name for one in inputs]
    node = helper.make_node("LSTM", names, ["y"], hidden_size=4)
    graph = helper.make_graph([node], "g", inputs, [value("y", 5, 1, 1, 4)])
    found = with_random_weights(helper.make_model(graph), 0, tmp_path)
    assert [one.name for one in found.graph.input] == ["x", "lengths", "h", "c"]
    assert {one.name for one in found.graph.initializer} == set("wrbp")


def test_what_cannot_be_random_is_named(tmp_path: Path) -> None:
    bare = model()
    bare.graph.initializer.append(TensorProto(name="axes", dims=[2], data_type=TensorProto.INT64))
    with pytest.raises(PartitionError, match="'axes' has no data, and is int64"):
        with_random_weights(bare, 0, tmp_path)
    bare = model()
    bare.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "C"
    with pytest.raises(PartitionError, match=r"weight 'w' has the open shape \(64, 0, 3, 3\)"):
        with_random_weights(bare, 0, tmp_path)
