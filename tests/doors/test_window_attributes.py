"""Windows that ONNX models ask for and that there are not: typed errors, at every depth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tvm_npu.door.onnx.model import read_model, with_explicit_padding  # noqa: E402
from tvm_npu.door.window_attributes import MOST, check_windows  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402

WEIGHTS = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")


def value(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes: list[Any], *weights: Any, **more: Any) -> Any:
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, 3, 9, 9)], [value("y", 1, 4, 9, 9)], list(weights)
    )
    opset = [helper.make_opsetid("", 13), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8, **more)


def conv(**attributes: Any) -> Any:
    return helper.make_node("Conv", ["x", "w"], ["y"], name="c", **attributes)


def pool(op: str, **attributes: Any) -> Any:
    return helper.make_node(op, ["x"], ["y"], name="p", **attributes)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (conv(strides=[1, 0]), "Conv 'c': strides is [1, 0]; allowed: whole numbers from 1 to"),
        (conv(strides=[-1, 1]), "Conv 'c': strides is [-1, 1]; allowed"),
        (conv(strides=[1, MOST + 1]), f"strides is [1, {MOST + 1}]; allowed: whole numbers from 1"),
        (conv(dilations=[0, 0]), "Conv 'c': dilations is [0, 0]; allowed"),
        (conv(group=0), "Conv 'c': group is 0; allowed: whole numbers from 1 to 2147483647"),
        (conv(pads=[0, 0, 0, 1 << 40]), f"pads is [0, 0, 0, {1 << 40}]; allowed: whole numbers"),
        (conv(pads=[-(1 << 40), 0, 0, 0]), "Conv 'c': pads is [-1099511627776, 0, 0, 0]; allowed"),
        (conv(pads=[1, 1, 1]), "pads is [1, 1, 1]; allowed: two for each axis"),
        (conv(strides=[1.5, 1.0]), "Conv 'c': strides is FLOATS; allowed: whole numbers"),
        (conv(group=[1]), "Conv 'c': group is INTS; allowed: a whole number"),
        (conv(auto_pad="SAME"), "auto_pad is b'SAME'; allowed: one of NOTSET, SAME_LOWER"),
        (conv(auto_pad=b"\xff"), r"Conv 'c': auto_pad is b'\xff'; allowed"),
        (conv(strides=[1]), "different numbers of axes (strides 1, weights 'w' 2)"),
        (conv(kernel_shape=[3, 3], dilations=[1]), "(dilations 1, kernel_shape 2"),
        (pool("MaxPool", kernel_shape=[0, 2]), "MaxPool 'p': kernel_shape is [0, 2]; allowed"),
        (pool("MaxPool", kernel_shape=[1 << 12, 1 << 9]),
         f"MaxPool 'p': kernel_shape is [4096, 512]; allowed: windows of at most {MOST} elements"),
        (pool("AveragePool", kernel_shape=[2, 2], strides=[0, 2]), "AveragePool 'p': strides is"),
        (pool("LpPool", kernel_shape=[2, -2]), "LpPool 'p': kernel_shape is [2, -2]; allowed"),
        (pool("QLinearAveragePool", kernel_shape=[2, 2], strides=[0, 0]), "'p': strides is [0, 0]"),
        (pool("ConvTranspose", output_padding=[-1, 0]), "output_padding is [-1, 0]; allowed"),
    ],
)
def test_windows_that_there_are_not(node: Any, message: str, tmp_path: Path) -> None:
    model = model_of([node], WEIGHTS)
    with pytest.raises(PartitionError, match=re.escape(message)):
        read_model(model)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(PartitionError, match=re.escape(message)):
        read_model(tmp_path / "m.onnx")


def test_kernels_of_weights_without_elements() -> None:
    empty = numpy_helper.from_array(np.ones((4, 3, 0, 3), np.float32), "w")
    with pytest.raises(PartitionError, match=r"weights 'w' kernel is \[0, 3\]; allowed"):
        check_windows(model_of([conv()], empty))


def test_strides_beside_automatic_padding() -> None:
    """Before ONNX is asked for shapes: it would divide by 0, and the process ends."""
    for name in ("strides", "dilations"):
        model = model_of([conv(auto_pad="SAME_UPPER", **{name: [0, 0]})], WEIGHTS)
        with pytest.raises(PartitionError, match=rf"Conv 'c': {name} is \[0, 0\]"):
            with_explicit_padding(read_model(model))


@pytest.mark.parametrize(("op", "depth"), [("If", 1), ("If", 3), ("Loop", 30)])
def test_nodes_of_subgraphs(op: str, depth: int) -> None:
    node = conv(strides=[0, 0], auto_pad="SAME_UPPER")
    for _ in range(depth):
        inner = helper.make_graph([node], "inner", [], [value("y", 1, 4, 9, 9)])
        bodies = {"body": inner} if op == "Loop" else {"then_branch": inner, "else_branch": inner}
        node = helper.make_node(op, ["is"], ["y"], **bodies)
    with pytest.raises(PartitionError, match=r"Conv 'c': strides is \[0, 0\]"):
        read_model(model_of([node], WEIGHTS))


def test_nodes_of_functions() -> None:
    opset = [helper.make_opsetid("", 13)]
    function = helper.make_function("own", "F", ["x", "w"], ["y"], [conv(strides=[0, 1])], opset)
    call = helper.make_node("F", ["x", "w"], ["y"], domain="own")
    with pytest.raises(PartitionError, match=r"Conv 'c': strides is \[0, 1\]"):
        read_model(model_of([call], WEIGHTS, functions=[function]))


def test_windows_that_there_are() -> None:
    for node in (
        conv(strides=[2, 1], dilations=[1, 3], pads=[0, 1, 2, 3], group=1),
        conv(pads=[-1, 0, -1, 0]),  # crops
        conv(auto_pad="VALID", kernel_shape=[3, 3]),
        pool("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Pad", ["x", "a"], ["y"]),
    ):
        check_windows(model_of([node], WEIGHTS))
