"""Shapes of ONNX models: ONNX's own, whatever the extents."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.examples import examples  # noqa: E402
from tests.patience import PATIENCE_S  # noqa: E402
from tvm_npu.door.onnx.model import read_model, with_explicit_padding  # noqa: E402
from tvm_npu.door.onnx.shapes import LARGEST_EXTENT, inferred  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402

FAR = LARGEST_EXTENT + 1


def value(name: str, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(nodes: list[Any], shape: tuple[int, ...] = (1, 3, 9, 9), *weights: Any) -> Any:
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [value("x", *shape)], outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def shapes_of(model: Any) -> dict[str, list[int]]:
    return {
        one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in (*model.graph.value_info, *model.graph.output)
    }


def test_extents_that_no_tensor_has() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    read_model(model_of([relu], (1, 3, LARGEST_EXTENT, 9)))
    models = {
        "x": model_of([relu], (1, 3, FAR, 9)), "v": model_of([relu]), "o": model_of([relu]),
        "w": model_of([relu], (1, 3, 9, 9), TensorProto(name="w", dims=[FAR], data_type=1)),
    }  # fmt: skip
    models["v"].graph.value_info.append(value("v", FAR))
    models["o"].graph.output.append(value("o", 2, 1 << 62))
    for name, model in models.items():
        with pytest.raises(PartitionError, match=re.escape(f"tensor '{name}' has the shape [")):
            read_model(model)


@st.composite
def windows(draw: st.DrawFn) -> Any:
    op = draw(st.sampled_from(["Conv", "MaxPool", "AveragePool", "LpPool"]))
    axes = draw(st.integers(1, 3))
    few = st.lists(st.integers(1, 4), min_size=axes, max_size=axes)
    more = {"auto_pad": draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]))}
    kernel = draw(few)
    if op != "Conv" or draw(st.booleans()):
        more["kernel_shape"] = kernel
    if draw(st.booleans()):
        more["strides"] = draw(few)
    if op in ("Conv", "MaxPool") and draw(st.booleans()):
        more["dilations"] = draw(few)
    if op == "MaxPool" and "SAME" not in more["auto_pad"] and draw(st.booleans()):
        more["ceil_mode"] = 1
    weight = numpy_helper.from_array(np.ones((4, 3, *kernel), np.float32), "w")
    extents = draw(st.lists(st.integers(13, 40), min_size=axes, max_size=axes))
    node = helper.make_node(op, ["x", "w"] if op == "Conv" else ["x"], ["y"], **more)
    return model_of([node], (1, 3, *extents), weight)


@settings(max_examples=examples(150), deadline=None)
@given(windows())
def test_the_shapes_are_those_of_onnx(model: Any) -> None:
    assert shapes_of(inferred(model)) == shapes_of(onnx.shape_inference.infer_shapes(model))


def test_windows_of_computed_weights() -> None:
    """Their kernels' rank comes from the shapes in front of them, one behind the other."""
    scale = numpy_helper.from_array(np.float32(0.5), "s")
    levels = [numpy_helper.from_array(np.ones((3, 3, k, 5), np.int8), f"q{k}") for k in (1, 2, 3)]
    nodes = [helper.make_node("DequantizeLinear", [f"q{k}", "s"], [f"w{k}"]) for k in (1, 2, 3)]
    for k, before in ((1, "x"), (2, "a1"), (3, "a2")):
        conv = helper.make_node("Conv", [before, f"w{k}"], [f"a{k}"], auto_pad="SAME_LOWER")
        nodes.append(conv)
    nodes.append(helper.make_node("Relu", ["a3"], ["y"]))
    model = model_of(nodes, (1, 3, 9, 9), scale, *levels)
    assert shapes_of(inferred(model))["a3"] == [1, 3, 9, 9]
    padded = with_explicit_padding(read_model(model))
    pads = [
        list(item.ints) for node in padded.graph.node for item in node.attribute
        if item.name == "pads"
    ]  # fmt: skip
    assert pads == [[0, 2, 0, 2], [1, 2, 0, 2], [1, 2, 1, 2]]


def test_huge_extents_that_a_model_computes() -> None:
    """ONNX alone would count them down for years."""
    code = """if True:
        import numpy as np
        from onnx import numpy_helper
        from tests.doors.test_onnx_shapes import helper, model_of, with_explicit_padding
        scales = numpy_helper.from_array(np.array([1, 1, 2**46, 1], np.float32), "scales")
        model = model_of(
            [
                helper.make_node("Resize", ["x", "", "scales"], ["a"], mode="nearest"),
                helper.make_node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2],
                                 strides=[2, 2], auto_pad="SAME_UPPER"),
            ], (1, 3, 9, 9), scales)
        attributes = with_explicit_padding(model).graph.node[1].attribute
        print([list(item.ints) for item in attributes if item.name == "pads"])
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[[0, 0, 0, 1]]"), done.stderr
