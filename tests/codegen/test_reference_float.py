"""The float meaning against onnxruntime and against plain loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.codegen.random_graphs import random_inputs
from tests.examples import examples
from tvm_npu.codegen.errors import GraphError, InputError
from tvm_npu.codegen.graph import RELU, Clip, Graph, Layer, output_extent
from tvm_npu.codegen.ops import (
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    Pad,
    Pool,
    Reshape,
    ScaleShift,
)
from tvm_npu.codegen.reference import run_float, stream_float


def constants(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def onnx_run(op: str, x: np.ndarray, *weights: np.ndarray, **attributes: Any) -> np.ndarray:
    names = [f"w{i}" for i in range(len(weights))]
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    info = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [info("x", TensorProto.FLOAT, x.shape)],
            [info("y", TensorProto.FLOAT, [None] * 4)],
            [onnx.numpy_helper.from_array(w, n) for w, n in zip(weights, names, strict=True)],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


def single(layer: Layer, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    graph = Graph((layer,), {"x": x.shape[1:], "y": shape}, ("x",), ("y",))
    return run_float(graph, {"x": x})["y"]


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [
        ((1, 1), (0, 0, 0, 0), (1, 1)),
        ((2, 1), (1, 0, 2, 1), (1, 1)),
        ((1, 3), (2, 1, 0, 1), (2, 3)),
    ],
)
def test_convolution(
    groups: int, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> None:
    x = constants(3, 6, 11, 13)
    weight, bias = constants(12, 6 // groups, *kernel, seed=1), constants(12, seed=2)
    expected = onnx_run(
        "Conv", x, weight, bias, group=groups, strides=stride, pads=padding, dilations=dilation
    )
    layer = Conv2d("c", ("x",), ("y",), weight, bias, stride, padding, dilation, groups)
    got = single(layer, x, expected.shape[1:])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert got.dtype == np.float32


def test_convolution_in_row_runs_and_image_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = constants(5, 3, 9, 9), constants(4, 3, 3, 3), constants(4)
    layer = Conv2d("c", ("x",), ("y",), weight, bias, padding=(1, 1, 1, 1))
    expected = single(layer, x, (4, 9, 9))
    for limit in (1, 2 * 27 * 9 * 4, 27 * 81 * 4 * 2):
        monkeypatch.setattr("tvm_npu.codegen.ops.arithmetic.COLUMN_BYTES", limit)
        np.testing.assert_allclose(single(layer, x, (4, 9, 9)), expected, rtol=1e-5, atol=1e-6)


def test_residual_is_added_before_the_clip() -> None:
    x, weight, bias = constants(2, 4, 5, 5), constants(4, 4, 1, 1), constants(4)
    plain = Conv2d("c", ("x",), ("y",), weight, bias)
    fused = Conv2d("c", ("x", "x"), ("y",), weight, bias, activation=RELU)
    expected = np.maximum(single(plain, x, (4, 5, 5)) + x, 0)
    np.testing.assert_array_equal(single(fused, x, (4, 5, 5)), expected)


def test_dense_with_residual_and_clip() -> None:
    x, weight, bias = constants(3, 7), constants(7, 7, seed=4), constants(7)
    layer = Dense("d", ("x", "x"), ("y",), weight, bias, Clip(-0.5, 0.5))
    expected = np.clip(x @ weight.T + bias + x, -0.5, 0.5)
    np.testing.assert_allclose(single(layer, x, (7,)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 0, 1, 1)])
def test_pooling_against_onnxruntime(kind: str, include: bool, padding: tuple) -> None:
    x = constants(2, 3, 9, 10)
    attributes = {"kernel_shape": (3, 2), "strides": (2, 2), "pads": padding}
    if kind == "max":
        expected = onnx_run("MaxPool", x, **attributes)
    else:
        expected = onnx_run("AveragePool", x, count_include_pad=int(include), **attributes)
    layer = Pool("p", ("x",), ("y",), kind, (3, 2), (2, 2), padding, include, padding)  # type: ignore
    got = single(layer, x, expected.shape[1:])
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_ceil_mode_is_padding_that_does_not_count(kind: str) -> None:
    x = constants(1, 2, 6, 8)
    expected = onnx_run(kind, x, kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1)
    short = "max" if kind == "MaxPool" else "avg"
    layer = Pool("p", ("x",), ("y",), short, (3, 3), (2, 2), (0, 0, 1, 1))  # type: ignore[arg-type]
    np.testing.assert_allclose(single(layer, x, expected.shape[1:]), expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_pooling_against_loops(data: st.DataObject) -> None:
    def number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    kernel, stride = (number(1, 4), number(1, 4)), (number(1, 3), number(1, 3))
    counted = tuple(number(0, kernel[axis % 2] - 1) for axis in range(4))
    grown = [number(0, kernel[axis % 2] - 1) for axis in range(4)]
    padding = (counted[0], counted[1], max(counted[2], grown[2]), max(counted[3], grown[3]))
    x = constants(1, 2, 6, 5, seed=number(0, 99))
    include = data.draw(st.booleans())
    rows = output_extent(6, kernel[0], stride[0], 1, padding[0] + padding[2])
    columns = output_extent(5, kernel[1], stride[1], 1, padding[1] + padding[3])
    expected = {"max": np.zeros((1, 2, rows, columns)), "avg": np.zeros((1, 2, rows, columns))}
    for c, r, q in np.ndindex(2, rows, columns):
        values, count = [], 0
        for i, j in product(range(kernel[0]), range(kernel[1])):
            row, column = r * stride[0] - padding[0] + i, q * stride[1] - padding[1] + j
            if 0 <= row < 6 and 0 <= column < 5:
                values.append(x[0, c, row, column])
            edge = counted if include else (0, 0, 0, 0)
            count += -edge[0] <= row < 6 + edge[2] and -edge[1] <= column < 5 + edge[3]
        expected["max"][0, c, r, q] = max(values, default=np.nan)
        expected["avg"][0, c, r, q] = sum(map(float, values)) / count if count else np.nan
    for kind, values_expected in expected.items():
        layer = Pool("p", ("x",), ("y",), kind, kernel, stride, padding, include, counted)  # type: ignore
        if np.isnan(values_expected).any():
            with pytest.raises(GraphError, match="covers no element"):
                single(layer, x, (2, rows, columns))
        else:
            got = single(layer, x, (2, rows, columns))
            np.testing.assert_allclose(got, values_expected, rtol=1e-5, atol=1e-6)


def test_padding_never_wins_a_maximum() -> None:
    x = np.full((1, 1, 2, 2), -1e30, np.float32)
    layer = Pool("p", ("x",), ("y",), "max", (2, 2), (1, 1), (1, 1, 1, 1))
    assert (single(layer, x, (1, 3, 3)) == np.float32(-1e30)).all()


def test_layout_layers() -> None:
    x = constants(2, 4, 5, 6)
    pad = Pad("p", ("x",), ("y",), (1, -1, 2), (-2, 1, -1), (2, 3), 0.5)
    wide = np.full((2, 6, 7, 8), 0.5, np.float32)
    wide[:, 1:5, :5, 2:] = x
    wide = np.concatenate([wide[:, :, 1:5], wide[:, :, 7:], wide[:, :, 5:6]], axis=2)
    np.testing.assert_array_equal(single(pad, x, (3, 3, 3)), wide[:, :3, ::2, :7:3])
    both = Concat("k", ("x", "x"), ("y",))
    np.testing.assert_array_equal(single(both, x, (8, 5, 6)), np.concatenate([x, x], axis=1))
    part = ChannelSlice("s", ("x",), ("y",), 1)
    np.testing.assert_array_equal(single(part, x, (2, 5, 6)), x[:, 1:3])
    flat = Reshape("r", ("x",), ("y",))
    np.testing.assert_array_equal(single(flat, x, (120,)), x.reshape(2, 120))


def test_elementwise_and_affine() -> None:
    x = constants(2, 4, 3, 3)
    square = Elementwise("m", ("x", "x"), ("y",), "mul", Clip(0.1, 0.9))
    np.testing.assert_array_equal(
        single(square, x, (4, 3, 3)), np.clip(x * x, np.float32(0.1), np.float32(0.9))
    )
    scale, bias = constants(4, seed=1), constants(4, seed=2)
    norm = single(ScaleShift("a", ("x",), ("y",), scale, bias), x, (4, 3, 3))
    np.testing.assert_array_equal(norm, x * scale[:, None, None] + bias[:, None, None])


def chain() -> Graph:
    relu = Elementwise("relu", ("x",), ("a",), "copy", RELU)
    double = Elementwise("double", ("a", "x"), ("y",), "add")
    return Graph((relu, double), {t: (2, 3) for t in "xay"}, ("x",), ("y",))


def test_all_tensors_come_back_and_streaming_gives_the_same() -> None:
    inputs = random_inputs(chain(), seed=0)
    tensors = run_float(chain(), inputs)
    assert list(tensors) == ["x", "a", "y"]
    for tensor, values in stream_float(chain(), inputs):
        np.testing.assert_array_equal(values, tensors[tensor])


ONES = np.ones((1, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"missing: \['x'\]"),
        ({"x": ONES, "z": ONES}, r"unknown: \['z'\]"),
        ({"x": ONES[0]}, r"'x' has shape \(2, 3\)"),
        ({"x": ONES[:0]}, r"'x' has shape \(0, 2, 3\)"),
        ({"x": ONES.astype(np.float64)}, "'x' has type float64; expected an array of float32"),
        ({"x": [1.0]}, "'x' has type list"),
    ],
)
def test_unusable_inputs(inputs: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_float(chain(), inputs)


def test_inputs_of_different_batches() -> None:
    both = Elementwise("add", ("x", "z"), ("y",), "add")
    graph = Graph((both,), {t: (2, 3) for t in "xzy"}, ("x", "z"), ("y",))
    with pytest.raises(InputError, match="differ in batch"):
        run_float(graph, {"x": ONES, "z": np.ones((2, 2, 3), np.float32)})


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Conv2d("c", ("x",), ("y",), constants(2, 3, 1, 1), constants(2)), (2, 4, 4), "4 channels"),
        (
            Conv2d("c", ("x",), ("y",), constants(2, 4, 9, 1), constants(2)),
            (2, 4, 4),
            "does not fit",
        ),
        (
            Conv2d("c", ("x",), ("y",), constants(2, 4, 1, 1), constants(2)),
            (2, 4, 5),
            "'y' has shape",
        ),
        (ChannelSlice("c", ("x",), ("y",), 3), (2, 4, 4), r"makes \(1, 4, 4\)"),
        (Reshape("c", ("x",), ("y",)), (7,), "layer 'c'"),
    ],
)
def test_layers_that_contradict_their_tensors(layer: Layer, shape: tuple, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        single(layer, constants(1, 4, 4, 4), shape)
