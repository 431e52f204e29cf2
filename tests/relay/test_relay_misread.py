"""Nodes that TVM 0.19 reads otherwise than ONNX means them: they are read well, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_npu
from tests.one_node import floats, ints, model_of, values
from tvm_npu.door.models import build_onnx
from tvm_npu.door.onnx.resizes import check_sizes
from tvm_npu.errors import PartitionError
from tvm_npu.processors import host_processor
from tvm_npu.relay import from_onnx

pytestmark = pytest.mark.relay
X = values(1, 3, 7, 8)
MEAN = {"keepdims": 0, "opset": 18}
CEIL: dict[str, Any] = {"ceil_mode": 1}
PLACES = ints(0, 1, 2, 0, -1, 2, 1, 0, -2, 1, 2, 0)
INDEX = ints(-1, 0, -2).reshape(1, 3)
CASES: dict[str, tuple[Any, ...]] = {
    "mean of rows and columns": ("ReduceMean", X, ints(2, 3), MEAN),
    "mean, axes kept": ("ReduceMean", X, ints(-1, 1), {}),
    "sum": ("ReduceSum", X, ints(1, -1), {"opset": 13, "keepdims": 0}),
    "sum of nothing": ("ReduceSum", X, ints(), {"noop_with_empty_axes": 1, "opset": 13}),
    "sum of all": ("ReduceSum", X, ints(), {"opset": 13}),
    "L1": ("ReduceL1", X, ints(2, 3), MEAN),
    "L2": ("ReduceL2", X, ints(2, 3), MEAN),
    "sum of squares": ("ReduceSumSquare", X, ints(2, 3), MEAN),
    "padding of two axes": ("Pad", X, ints(1, 2, 3, 4), floats(5)[0], ints(3, -2), {}),
    "padding of all axes": ("Pad", X, ints(0, 1, 2, 0, 1, 0, 0, 0), None, ints(3, 2, 1, 0), {}),
    "pool in channels": ("MaxPool", X, {"kernel_shape": [2, 2], "storage_order": 1}),
    "L1 pool": ("LpPool", X, {"kernel_shape": [2, 3], "p": 1}),
    "L3 of all": ("GlobalLpPool", X, {"p": 3}),
    "gather": ("Gather", X, ints(-1, 0, 2), {"axis": -3}),
    "gather one": ("Gather", X, ints(-2)[0], {"axis": -3}),
    "gather places": ("GatherND", X[0], INDEX, {}),
    "scatter rows": ("ScatterND", X[0, 0], ints(-1, 1).reshape(2, 1), values(2, 8), {}),
    "fewer places": (
        "ScatterElements", values(3, 3, 3), PLACES.reshape(3, 2, 2), values(3, 2, 2), {}
    ),
    "fewer places, added": (
        "ScatterElements", values(3, 3, 3), PLACES.reshape(2, 2, 3), values(2, 2, 3),
        {"axis": -1, "reduction": "add"},
    ),
    "small probabilities": ("LogSoftmax", 300 * values(2, 5), {}),
    "small probabilities of all": ("LogSoftmax", 300 * X, {"opset": 11, "axis": 2}),
    "extents that no float's multiple reaches": (
        "Resize", values(1, 2, 11, 7), None, None, ints(1, 2, 13, 9), {"mode": "linear"}
    ),
    "bounds that cross": ("Clip", X, {"min": 1.0, "max": -0.5, "opset": 10}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_onnx_means(name: str) -> None:
    operator, x, *more, attributes = CASES[name]
    model = model_of(operator, x, *more, **attributes)
    if operator in ("Clip", "MaxPool", "GlobalLpPool"):  # which the evaluator has otherwise
        wanted = np.full_like(X, -0.5)
        if operator == "GlobalLpPool":
            wanted = (abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
        if operator == "MaxPool":
            rows = np.maximum(x[:, :, :-1], x[:, :, 1:])
            wanted = np.maximum(rows[..., :-1], rows[..., 1:])
    elif operator == "LogSoftmax":
        wide = x.astype(np.float64).reshape(2, -1) if x.ndim == 2 else x.reshape(3, -1) * 1.0
        wide = wide - wide.max(1, keepdims=True)
        wanted = (wide - np.log(np.exp(wide).sum(1, keepdims=True))).reshape(x.shape)
    else:
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = build_onnx(model, target=None).run({"x": x})
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("window", "strides", "pads", "rows", "columns"),
    [
        ([2, 2], [3, 3], [1, 1, 1, 1], 3, 3),  # a fourth window would begin behind the 7 rows
        ([1, 1], [2, 2], [0, 0, 0, 0], 4, 4),
        ([3, 3], [2, 2], [0, 0, 0, 0], 3, 4),
        ([2, 3], [3, 2], [1, 0, 1, 0], 3, 4),
    ],
)
def test_windows_that_begin_behind_the_input_are_none(
    operator: str, window: list[int], strides: list[int], pads: list[int], rows: int, columns: int
) -> None:
    model = model_of(operator, X, kernel_shape=window, strides=strides, pads=pads, **CEIL)
    (found,) = build_onnx(model, target=None).run({"x": X})
    assert found.shape == (1, 3, rows, columns)
    empty = -np.inf if operator == "MaxPool" else np.nan
    wide = np.full((1, 3, 20, 20), empty, np.float32)
    wide[:, :, pads[0] : pads[0] + 7, pads[1] : pads[1] + 8] = X
    for row in range(rows):
        for column in range(columns):
            top, left = row * strides[0], column * strides[1]
            seen = wide[:, :, top : top + window[0], left : left + window[1]]
            wanted = seen.max((2, 3)) if operator == "MaxPool" else np.nanmean(seen, (2, 3))
            np.testing.assert_allclose(found[:, :, row, column], wanted, rtol=1e-5, atol=1e-6)


def test_extents_that_are_asked_for_are_made() -> None:
    """Whatever the quotient of two is as a float: the floor of 19 such multiples is one less."""
    for extent in range(1, 41):
        for wanted in range(1, 41):
            check_sizes("Resize 'it'", (1, 2, extent, 3), [1, 2, wanted, 3])
    with pytest.raises(PartitionError, match="the first two must be 1"):
        check_sizes("Resize 'it'", (1, 2, 4, 4), [1, 4, 4, 4])


RESIZED = {"coordinate_transformation_mode": "asymmetric"}
REFUSED: dict[str, tuple[Any, ...]] = {
    "one of them twice": ("ReduceSum", X, ints(-1, 3), {"opset": 13}),
    "allowed: -4 to 3": ("ReduceMean", X, ints(4), {}),
    "the axes .* and 4 pads": ("Pad", X, ints(1, 2, 3, 4), None, ints(-1), {}),
    "along one axis its last window would be empty": (
        "MaxPool", values(1, 1, 8, 8), {"kernel_shape": [1, 3], "strides": [2, 2], **CEIL}
    ),
    r"the index 3 into extents \[3\]": ("Gather", X, ints(0, 3), {"axis": 1}),
    r"the index -8 into extents \[3, 7, 8\]": ("GatherND", X[0], ints(1, -8, 0), {}),
    "antialias 1": ("Resize", X, None, floats(1, 1, 2, 2), {"antialias": 1, "mode": "linear"}),
    "3.5 elements along axis 2": ("Resize", X, None, floats(1, 1, 0.5, 1), {"mode": "linear"}),
    "10.5 elements along axis 2": ("Upsample", X, floats(1, 1, 1.5, 2), {"opset": 9}),
    "the first two must be 1": ("Resize", X, None, floats(1, 2, 1, 1), {}),
    "would take the floor": ("Resize", X, None, floats(1, 1, 3, 3), RESIZED),
    "training_mode 1": (
        "BatchNormalization", X, *(floats(1, 2, 3),) * 4, {"training_mode": 1, "opset": 15}
    ),
    "ONNX and its runtime differ in what that means": (
        "ConvTranspose", X, values(3, 1, 2, 2), {"strides": [3, 3], "auto_pad": "SAME_UPPER"}
    ),
    r"asks for the extents \[1, 1, 5, 5\]; TVM 0.19 can make \[1, 1, 4, 4\] alone": (
        "MaxUnpool", values(1, 1, 2, 2), ints(5, 7, 13, 15).reshape(1, 1, 2, 2), ints(1, 1, 5, 5),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "'it' has the element type FLOAT8E4M3FN": ("Cast", X, {"to": TensorProto.FLOAT8E4M3FN}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_tvm_would_misread_is_refused(message: str) -> None:
    operator, x, *more, attributes = REFUSED[message]
    with pytest.raises(PartitionError, match=f"'it'.*{message}|{message}"):
        from_onnx(model_of(operator, x, *more, **attributes))


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_extremes_of_nothing_are_refused(operator: str) -> None:
    x = np.zeros((2, 0, 3), np.float32)
    for axes in ([1], [0, 1]):
        with pytest.raises(PartitionError, match=f"a {operator} over no elements"):
            from_onnx(model_of(operator, x, axes=axes, opset=13), {"x": x.shape})
    from_onnx(model_of(operator, x, axes=[0], opset=13), {"x": x.shape})  # nothing of nothing


def test_weights_of_four_bits_are_named() -> None:
    model = model_of("DequantizeLinear", ints(1).astype(np.uint8), floats(1)[0], opset=13)
    model.graph.initializer.append(helper.make_tensor("c9", TensorProto.INT4, [2], [1, -2]))
    with pytest.raises(PartitionError, match="weights 'c9' has the element type INT4"):
        from_onnx(model)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_inputs_of_four_bits_are_read(kind: str) -> None:
    """As bytes; where they are made, TVM 0.19 would make wider ones."""
    number = TensorProto.DataType.Value(kind)
    given = [
        helper.make_tensor_value_info(name, number, shape)
        for name, shape in (("x", [2, 3]), ("zero", []))
    ]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    read = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"], name="it")
    graph = helper.make_graph([read], "g", given, [out], [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    x = np.array([[0, 1, 2], [5, 6, 7]], np.int8 if kind == "INT4" else np.uint8)
    found = build_onnx(model, "npu/nmp-4x8").run({"x": x, "zero": x[0, 1]})
    np.testing.assert_array_equal(found[0], (x.astype(np.float32) - 1) * np.float32(0.5))
    made = helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["q"], name="made")
    model.graph.node.append(made)
    with pytest.raises(PartitionError, match=f"input 'zero' has the element type {kind}"):
        from_onnx(model)


@pytest.mark.parametrize(("kind", "least", "most"), [("INT4", -8, 7), ("UINT4", 0, 15)])
def test_numbers_of_four_bits_stay_within_them(kind: str, least: int, most: int) -> None:
    number, wide = TensorProto.DataType.Value(kind), np.int8 if kind == "INT4" else np.uint8
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5])
    zero = helper.make_tensor_value_info("zero", number, [])
    out = helper.make_tensor_value_info("y", number, [5])
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5])
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], name="it")
    graph = helper.make_graph([node], "g", [x, zero], [out], [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    given = {"x": floats(-40, -1, 0.25, 2, 40), "zero": np.array(1, wide)}
    (found,) = build_onnx(model, target=None).run(given)
    assert found.dtype == wide
    np.testing.assert_array_equal(found, [least, max(-1, least), 1, 5, most])


@pytest.mark.parametrize("alike", [False, True])
def test_wide_numbers_become_halves(alike: bool) -> None:
    x = np.array([0.1, -2.5, 70000.0, 6e-8], np.float64)
    operator, more = ("CastLike", (np.zeros(1, np.float16),)) if alike else ("Cast", ())
    attributes = {} if alike else {"to": TensorProto.FLOAT16}
    model = model_of(operator, x, *more, kinds=(TensorProto.FLOAT16,), **attributes)
    (found,) = build_onnx(model, tvm_npu.target("nmp-4x8", mcpu=host_processor())).run({"x": x})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float32).astype(np.float16))


@pytest.mark.parametrize("axis", [None, 1, 2, -2, -3])
def test_fourier_transforms_with_an_axis(axis: int | None) -> None:
    x = values(2, 4, 5, 2)
    more = () if axis is None else (None, np.array(axis, np.int64))
    (found,) = build_onnx(model_of("DFT", x, *more, opset=20), target=None).run({"x": x})
    wanted = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=2 if axis in (None, 2, -2) else 1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("position", [None, -2, -1, 0, 1, 2, 3])
def test_tensors_put_into_sequences(position: int | None) -> None:
    names = ["a", "b", "c"]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in names]
    place = [] if position is None else [numpy_helper.from_array(np.array(position), "place")]
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "c", *(one.name for one in place)], ["t"], "it"),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])
    graph = helper.make_graph(nodes, "g", given, [out], place)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    if position == 3:
        with pytest.raises(PartitionError, match="'it' has position 3 in a sequence of 2; allowed"):
            from_onnx(model)
        return
    rows = {name: np.full(2, number, np.float32) for number, name in enumerate(names)}
    order = [0.0, 1.0]
    order.insert(2 if position is None else position, 2.0)
    (found,) = build_onnx(model, target=None).run(rows)
    np.testing.assert_array_equal(found, np.repeat(order, 2))


def test_places_that_a_model_computes_stay_inside() -> None:
    """TVM 0.19 wrote in front of the tensor, and crashed."""
    data, updates = values(5, 3), values(3, 3)
    names = ["x", "i", "u"]
    kinds = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT]
    shapes = [[5, 3], [3, 1], [3, 3]]
    graph = helper.make_graph(
        [helper.make_node("ScatterND", names, ["y"], name="it")], "g",
        [helper.make_tensor_value_info(*one) for one in zip(names, kinds, shapes, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    built = build_onnx(model, target=None)
    for given in ([-1, 1, -5], [-(10**6), 10**6, 2]):
        places = ints(*given).reshape(3, 1)
        (found,) = built.run({"x": data, "i": places, "u": updates})
        wanted = data.copy()
        wanted[np.clip(np.where(places < 0, places + 5, places), 0, 4)[:, 0]] = updates
        assert np.array_equal(found, wanted)


HALVES = floats(0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 1.75, 1000, -1000)


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_halves_of_quantized_numbers_go_to_even(dtype: str, opset: int) -> None:
    zero = np.array(3, dtype)
    limits = np.iinfo(dtype)
    wanted = np.clip(np.rint(HALVES) + 3, limits.min, limits.max).astype(dtype)
    kinds = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),)
    model = model_of("QuantizeLinear", HALVES, floats(1)[0], zero, opset=opset, kinds=kinds)
    (found,) = build_onnx(model, target=None).run({"x": HALVES})
    assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()


@pytest.mark.parametrize("axis", [1, -1])
def test_halves_of_channels_go_to_even(axis: int) -> None:
    x = np.stack([HALVES, HALVES / 4], axis=1)
    x = np.stack([x, x, x], axis=2 if axis == 1 else 1)
    steps = floats(1, 0.25)
    model = model_of(
        "QuantizeLinear", x, steps, np.zeros(2, np.int8), opset=13, axis=axis,
        kinds=(TensorProto.INT8,),
    )  # fmt: skip
    (found,) = build_onnx(model, target=None).run({"x": x})
    wanted = np.clip(np.rint(x / steps.reshape(-1, *[1] * (x.ndim - 1 - axis % 3))), -128, 127)
    assert found.tolist() == wanted.tolist()


def test_halves_go_to_even_beside_regions() -> None:
    weight = numpy_helper.from_array(np.full((2, 1, 1, 1), 0.5, np.float32), "w")
    one = numpy_helper.from_array(floats(1)[0], "s")
    zero = numpy_helper.from_array(np.array(0, np.int8), "z")
    x = HALVES.reshape(1, 1, 2, 5)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            helper.make_node("Sin", ["d"], ["y"]),
            helper.make_node("Conv", ["x", "w"], ["c"]),
        ], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "c")],
        [weight, one, zero],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    built = build_onnx(model, calibration=[{"x": x}])
    assert built.report is not None and len(built.report.regions) == 1
    found, _ = built.run({"x": x})
    np.testing.assert_allclose(found, np.sin(np.clip(np.rint(x), -128, 127)), atol=1e-5)


SHAPES: list[tuple[str, list[int]]] = [
    *((mode, [14, 17]) for mode in ("NOTSET", "SAME_UPPER", "SAME_LOWER")),
    *((mode, [13, 18]) for mode in ("NOTSET", "SAME_UPPER", "SAME_LOWER")),
    ("SAME_UPPER", []), ("SAME_LOWER", []),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "shape"), SHAPES)
def test_transposed_convolutions_make_the_extents_that_they_ask_for(
    mode: str, shape: list[int]
) -> None:
    """Elements are cropped at the end first for SAME_UPPER, else at the begin; those that the
    windows do not reach are there, too."""
    x, weight = values(1, 2, 5, 6), values(2, 3, 3, 2)
    stride = 3 if shape else 2
    wanted = shape or [10, 12]
    made = 4 * stride + 3, 5 * stride + 2
    whole = np.zeros((1, 3, made[0], made[1] + 1), np.float32)
    for row in range(5):
        for column in range(6):
            spread = np.einsum("nc,cokl->nokl", x[:, :, row, column], weight)
            top, left = stride * row, stride * column
            whole[:, :, top : top + 3, left : left + 2] += spread
    cuts = [max(have - one, 0) for have, one in zip(made, wanted, strict=True)]
    top, left = (cut // 2 if mode == "SAME_UPPER" else cut - cut // 2 for cut in cuts)
    more = {"output_shape": shape} if shape else {}
    model = model_of(
        "ConvTranspose", x, weight, strides=[stride, stride], auto_pad=mode, opset=11, **more
    )
    (found,) = build_onnx(model, target=None).run({"x": x})
    cropped = whole[:, :, top : top + wanted[0], left : left + wanted[1]]
    np.testing.assert_allclose(found, cropped, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "integers", "step", "point"),
    [
        ([0, 0], [0, 0], 1, 0),
        ([-127.5, 127.5, 0.5, 2.5], [0, 255, 128, 130], 1, 128),
        ([255, 1, 2.5, 3.5], [255, 1, 2, 4], 1, 0),
    ],
)
def test_numbers_quantized_by_their_range(
    given: list[float], integers: list[int], step: float, point: int
) -> None:
    kinds = (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)
    x = floats(*given)
    built = build_onnx(model_of("DynamicQuantizeLinear", x, opset=11, kinds=kinds), target=None)
    found = built.run({"x": x})
    assert [one.tolist() for one in found] == [integers, step, point]
