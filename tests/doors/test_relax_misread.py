"""Nodes that TVM's importer for Relax reads otherwise than ONNX means them: they are read well, or
refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="the relax extra is not installed")
from tvm_npu.door.find import door_name  # noqa: E402

if door_name() != "relax":
    pytest.skip("needs TVM 0.26 or later", allow_module_level=True)
onnxruntime = pytest.importorskip("onnxruntime", reason="the answers are its")

from onnx import TensorProto, helper  # noqa: E402

from tests.one_node import floats, ints, model_of, values  # noqa: E402
from tvm_npu.door.models import build_onnx  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402
from tvm_npu.relax.frontend import from_onnx  # noqa: E402

FLOAT, BOOL, UINT8 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.UINT8
X = values(1, 3, 7, 8)
IMAGE = values(1, 2, 4, 6)
SOURCE = values(1, 4, 5, 6)
FILTERS = values(4, 3, 3, 2)
CUBE = values(3, 3, 3)
PLACES = ints(0, 1, 2, 0, -1, 2, 1, 0, -2, 1, 2, 0).reshape(2, 2, 3)
INFINITE = floats(np.inf, -np.inf, 1, np.nan)
LAYER = {"kinds": (FLOAT, FLOAT, FLOAT), "epsilon": 0.01}
REGIONS = floats(1, 1, 6, 5, 0, 0, 9, 9).reshape(2, 4), ints(0, 0)
SCALED = {"spatial_scale": 0.7, "output_height": 2, "output_width": 3, "sampling_ratio": 2}
CEIL = {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 0, 1, 0], "ceil_mode": 1}
CASES: dict[str, tuple[Any, ...]] = {
    "norms of windows that reach behind": ("LpPool", X, {**CEIL, "p": 1}),
    "norms of dilated ones": (
        "LpPool", X, {"kernel_shape": [3, 2], "strides": [2, 3], "dilations": [2, 2],
                      "pads": [1, 0, 0, 1], "ceil_mode": 1}),
    "transposed to a shape": (
        "ConvTranspose", SOURCE, FILTERS, {"strides": [2, 2], "output_shape": [10, 11]}),
    "transposed to a larger one": (
        "ConvTranspose", SOURCE, FILTERS, {"strides": [2, 2], "output_shape": [12, 13]}),
    "transposed, more at the end": (
        "ConvTranspose", SOURCE, FILTERS,
        {"strides": [3, 3], "output_shape": [14, 17], "auto_pad": "SAME_UPPER"}),
    "transposed, more at the begin": (
        "ConvTranspose", SOURCE, FILTERS,
        {"strides": [3, 3], "output_shape": [14, 17], "auto_pad": "SAME_LOWER"}),
    "fewer places": ("ScatterElements", CUBE, PLACES.reshape(3, 2, 2), values(3, 2, 2), {}),
    "fewer places, added": (
        "ScatterElements", CUBE, PLACES, values(2, 2, 3), {"axis": -1, "reduction": "add"}),
    "scattered in rows": (
        "Scatter", values(3, 3), ints(-1, 0, 0, 1).reshape(2, 2), values(2, 2),
        {"axis": -1, "opset": 10}),
    "negative infinity": ("IsInf", INFINITE, {"detect_positive": 0, "kinds": (BOOL,)}),
    "positive infinity": ("IsInf", INFINITE, {"detect_negative": 0, "kinds": (BOOL,)}),
    "moments of rows": ("LayerNormalization", X, values(8), values(8), LAYER),
    "moments of images": ("LayerNormalization", X, values(7, 8), {"axis": 2, **LAYER}),
    "the mask of a dropout": ("Dropout", X, {"kinds": (FLOAT, BOOL), "opset": 13}),
    "one-hot floats": (
        "OneHot", ints(0, -1, 2), np.array(4), floats(2, 5), {"kinds": (FLOAT,), "opset": 11}),
    "half pixels of scaled regions": ("RoiAlign", values(1, 2, 8, 8), *REGIONS, SCALED),
    "the range of zeros": (
        "DynamicQuantizeLinear", floats(0, 0), {"kinds": (UINT8, FLOAT, UINT8), "opset": 11}),
    "the range of numbers": (
        "DynamicQuantizeLinear", floats(-1, 2, 0.4), {"kinds": (UINT8, FLOAT, UINT8)}),
    "the nearest below": ("Upsample", IMAGE, {"opset": 7, "scales": [1.0, 1.0, 1.5, 2.0]}),
    "scales as an input": ("Upsample", IMAGE, floats(1, 1, 2, 3), {"opset": 9, "mode": "linear"}),
    "extents that no float's multiple reaches": (
        "Resize", values(1, 2, 11, 7), None, None, ints(1, 2, 13, 9), {"mode": "linear"}),
    "the nearest of threefold": (
        "Resize", IMAGE, None, floats(1, 1, 3, 3),
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_onnx_means(name: str) -> None:
    operator, x, *more, attributes = CASES[name]
    ceil = "ceil_mode" in attributes and "LpPool" == operator
    model = model_of(operator, x, *more, **{"opset": 19 if ceil else 18, **attributes})
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, {"x": x})
    found = build_onnx(model, target=None).run({"x": x})
    for one, want in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-5)


NOOP = {"noop_with_empty_axes": 1}
REFUSED: dict[str, tuple[Any, ...]] = {
    "'it' has noop_with_empty_axes and no axes": ("ReduceL1", X, NOOP),
    "there may be fewer than 2 beside them": (
        "ConvTranspose", SOURCE, FILTERS, {"strides": [2, 2], "output_shape": [12, 14]}),
    r"the index 3 into extents \[3\]": ("Gather", X, ints(0, 3), {"axis": 1}),
    r"the index -8 into extents \[3, 7, 8\]": ("GatherND", X[0], ints(1, -8, 0), {}),
    "axis 4 of a tensor with 4 axes": ("Gather", X, ints(0), {"axis": 4}),
    "2.8 elements along axis 2": ("Resize", IMAGE, None, floats(1, 1, 0.7, 1), {"mode": "linear"}),
    "5.2 elements along axis 2": ("Upsample", IMAGE, floats(1, 1, 1.3, 1), {"opset": 9}),
    "the first two must be 1": ("Resize", IMAGE, None, floats(1, 2, 1, 1), {}),
    "antialias 1": ("Resize", IMAGE, None, floats(1, 1, 0.5, 0.5), {"antialias": 1}),
    "keep_aspect_ratio_policy not_larger": (
        "Resize", IMAGE, None, None, ints(1, 2, 7, 5), {"keep_aspect_ratio_policy": "not_larger"}),
    "training_mode 1": (
        "BatchNormalization", X, *(floats(1, 2, 3),) * 4, {"training_mode": 1, "opset": 15}),
    "training_mode that is not a constant False": (
        "Dropout", X, floats(0.5)[0], np.array(True), {"opset": 13}),
    "mode max, which TVM's importer for Relax ignores": (
        "RoiAlign", values(1, 2, 8, 8), *REGIONS, {"mode": "max"}),
    "mode wrap and pads that are negative": (
        "Pad", X, ints(0, 0, -1, 2, 0, 0, 2, 1), {"mode": "wrap", "opset": 19}),
    "is of the domain 'own'": ("Relu", X, {"domain": "own"}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_tvm_would_misread_is_refused(message: str) -> None:
    operator, x, *more, attributes = REFUSED[message]
    with pytest.raises(PartitionError, match=message):
        from_onnx(model_of(operator, x, *more, **attributes))


@pytest.mark.parametrize("operator", ["ScatterND", "ScatterElements", "GatherElements", "Gather"])
def test_places_that_a_model_computes_stay_inside(operator: str) -> None:
    data, updates = values(5, 3), values(3, 3)
    names = ["x", "i", "u"][: 3 if operator.startswith("Scatter") else 2]
    shapes = {"x": [5, 3], "i": [3] if operator == "Gather" else [3, 1], "u": [3, 3]}
    shapes |= {"u": [3, 1]} if operator == "ScatterElements" else {}
    kinds = {"x": FLOAT, "i": TensorProto.INT64, "u": FLOAT}
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], name="it")], "g",
        [helper.make_tensor_value_info(name, kinds[name], shapes[name]) for name in names],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    built = build_onnx(model, target=None)
    for given in ([-1, 1, -5], [-(10**6), 10**6, 2]):
        places = np.clip(np.where(ints(*given) < 0, ints(*given) + 5, ints(*given)), 0, 4)
        inputs = {"x": data, "i": ints(*given).reshape(shapes["i"]), "u": updates}
        inputs["u"] = inputs["u"][:, : shapes["u"][1]].copy()
        (found,) = built.run({name: inputs[name] for name in names})
        wanted = data.copy()
        if operator == "ScatterND":
            wanted[places] = updates
        elif operator == "ScatterElements":
            wanted[places, 0] = updates[:, 0]
        else:
            wanted = data[places] if operator == "Gather" else data[places, :1]
        assert np.array_equal(found, wanted)
