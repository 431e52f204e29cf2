"""Names that are no identifiers, as PyTorch's exporter gives them, and extents without numbers:
through the door of the installed TVM."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_npu.door.find import door, door_name
from tvm_npu.door.models import build_onnx
from tvm_npu.door.offload import programs
from tvm_npu.errors import NothingOffloadedWarning

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

Array = np.ndarray[Any, Any]


def randoms(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(
    nodes: list[Any], inputs: Mapping[str, Array], outputs: list[str], **weights: Array
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
            for name, value in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def answers(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


@pytest.mark.parametrize("names", [("0", "1"), ("input.1", "input.2"), ("a/b", "x:0"), ("_", "-")])
def test_inputs_keep_their_names(names: tuple[str, str], tmp_path: Path) -> None:
    """Also where a model has both a name and what an identifier would be made of it."""
    left, right = names
    inputs = {left: randoms(1, 1, 3, 6, 6), right: randoms(2, 1, 4, 6, 6)}
    nodes = [
        helper.make_node("Conv", [left, "w"], ["input_0"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["input_0", right], ["2"], "sum"),
    ]
    model = model_of(nodes, inputs, ["2"], w=randoms(3, 4, 3, 3, 3))
    built = build_onnx(model, target="npu/nmp-4x8", calibration=inputs)
    assert built.report is not None and not built.report.refusals
    (found,) = built.run(inputs)
    (want,) = answers(model, inputs)
    assert np.abs(found - want).max() < 1e-2
    swapped = {right: inputs[right], left: inputs[left]}
    np.testing.assert_array_equal(built.run(swapped)[0], found)
    (stock,) = door().stock(model, {name: v.shape for name, v in inputs.items()}, 1).run(inputs)
    assert np.abs(stock - want).max() < 1e-4


def test_extents_that_the_model_computes_stay_beside_a_region() -> None:
    """Only TVM's newer doors read a Range of tensors whose length nobody knows before it runs."""
    if door_name() != "relax":
        pytest.skip("TVM 0.19 wants to know all extents")
    ends = {name: np.array(v, np.float32) for name, v in (("from", 1), ("to", 7), ("by", 2))}
    inputs = {"x": randoms(1, 1, 3, 6, 6), **ends}
    nodes = [
        helper.make_node("Range", ["from", "to", "by"], ["steps"], "range"),
        helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["steps", "by"], ["z"], "product"),
    ]
    model = model_of(nodes, inputs, ["y", "z"], w=randoms(3, 4, 3, 3, 3))
    built = build_onnx(model, target="npu/nmp-4x8", calibration=inputs)
    assert built.partitioned is not None
    assert len(programs(door(), built.partitioned.mod)) == 1
    for found, want in zip(built.run(inputs), answers(model, inputs), strict=True):
        assert found.shape == want.shape and np.abs(found - want).max() < 1e-2


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("is_beside_a_region", [False, True])
def test_counts_that_the_model_computes_stay_on_the_cpu(
    axis: int | None, is_beside_a_region: bool
) -> None:
    """Compress takes as many rows as its condition has that hold; TVM counts them at run time."""
    if door_name() != "relax":
        pytest.skip("TVM 0.19 wants to know all extents")
    rng = np.random.default_rng(5)
    inputs = {"rows": randoms(1, 7, 4), "x": randoms(2, 1, 3, 6, 6)}
    holds = rng.random(28 if axis is None else inputs["rows"].shape[axis]) < 0.5
    assert 0 < holds.sum() < holds.size
    where = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("Compress", ["rows", "holds"], ["some"], "some", **where),
        helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1]),
    ]
    weights = {"holds": holds, "w": randoms(3, 4, 3, 3, 3)}
    outputs = ["some", "y"]
    if not is_beside_a_region:
        del nodes[1], inputs["x"], weights["w"], outputs[1]
    model = model_of(nodes, inputs, outputs, **weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingOffloadedWarning)
        built = build_onnx(model, target="npu/nmp-4x8", calibration=inputs)
    assert built.partitioned is not None
    assert len(programs(door(), built.partitioned.mod)) == is_beside_a_region
    found = built.run(inputs)
    np.testing.assert_array_equal(found[0], np.compress(holds, inputs["rows"], axis))
    for one, want in zip(found, answers(model, inputs), strict=True):
        assert one.shape == want.shape and np.abs(one - want).max() < 1e-2
