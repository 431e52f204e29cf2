"""Arrays and shapes by input name: what is not the model's is refused, never left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvm_npu.calibration import InputSpec, samples_from
from tvm_npu.door.given_inputs import checked_inputs, given_shapes
from tvm_npu.errors import CalibrationError, PartitionError
from tvm_npu.runtime.errors import RunError

SPECS = (InputSpec("x", (1, 2, 3), "float32"), InputSpec("n", (2,), "uint8"))
GOOD: dict[str, Any] = {"x": np.ones((1, 2, 3)), "n": [1, 255]}


def test_arrays_get_the_model_s_types() -> None:
    other = {"x": np.ones((1, 2, 3), ">f8")[:, :, ::-1], "n": np.array([1, 255], np.int64)}
    for given in (GOOD, other):
        found = checked_inputs(given, SPECS)
        assert [array.dtype for array in found.values()] == [np.float32, np.uint8]
        assert found["x"].flags.c_contiguous and (found["x"] == 1).all()
        assert found["n"].tolist() == [1, 255]


def test_bits_stay_bits() -> None:
    """uint16 for bfloat16: no numbers to convert."""
    bits = np.array([16117, 16384], np.uint16)
    found = checked_inputs({"b": bits}, (InputSpec("b", (2,), "bfloat16"),))["b"]
    assert found.view(np.uint16).tolist() == bits.tolist()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "inputs are a NoneType; expected a dict"),
        ([np.ones((1, 2, 3))], "inputs are a list; expected a dict"),
        ({"n": [1, 2]}, "no array for input 'x'; the model has"),
        ({**GOOD, "xx": 1}, "no input 'xx'; it has .*; did you mean 'x'"),
        ({**GOOD, "x": np.ones((2, 3))}, r"'x' has shape \(2, 3\); the model takes \(1, 2, 3\)"),
        ({**GOOD, "x": None}, r"'x' has shape \(\)"),
        ({**GOOD, "x": [[1], [1, 2]]}, "'x': rows of different lengths"),
        ({**GOOD, "x": np.ones((1, 2, 3), complex)}, "'x' is complex128; the model takes float32"),
        ({**GOOD, "x": np.ones((1, 2, 3), object)}, "'x' is object"),
        ({**GOOD, "n": [1.0, 2.0]}, "'n' is float64; the model takes uint8"),
        ({**GOOD, "n": [-1, 256]}, "'n' has values from -1 to 256; the model takes uint8"),
    ],
)
def test_inputs_that_are_not_the_model_s(inputs: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        checked_inputs(inputs, SPECS)


@pytest.mark.parametrize(
    "shapes", [1, [("x", (1, 2))], {"x": None}, {"x": "12"}, {"x": (1, -6)}, {"x": (1, 6.5)}]
)
def test_shapes_that_are_none(shapes: Any) -> None:
    with pytest.raises(PartitionError, match="expected (whole numbers|a dict)"):
        given_shapes(shapes)


def test_shapes_of_whole_numbers() -> None:
    assert given_shapes(None) == {}
    assert given_shapes({"x": np.array([1, 2])}) == {"x": (1, 2)}


def test_calibration_does_not_wrap_whole_numbers() -> None:
    with pytest.raises(CalibrationError, match="'n' has values from 3 to 300; expected .* uint8"):
        list(samples_from({"n": np.array([3, 300])}, SPECS[1:]))


@pytest.mark.relay
def test_a_built_model_runs_on_its_inputs_alone() -> None:
    from tests.one_node import model_of
    from tvm_npu.door.models import build_onnx

    x = np.ones((1, 2, 6, 6), np.float32)
    built = build_onnx(model_of("Conv", x, np.ones((3, 2, 1, 1), np.float32)), target=None)
    assert (built.run({"x": x})[0] == 2).all()
    for wrong in ({}, {"y": x}, {"x": x, "y": x}):
        with pytest.raises(RunError, match="input '[xy]'"):
            built.run(wrong)


@pytest.mark.relay
def test_inputs_have_any_name() -> None:
    """Of TVM's executor some are arguments."""
    from onnx import TensorProto, helper

    from tvm_npu.door.models import build_onnx

    names = ["self", "key", "value", "params", "name"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [10])
    joined = helper.make_node("Concat", names, ["y"], axis=0)
    graph = helper.make_graph([joined], "g", inputs, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    given = {name: np.full(2, n, np.float32) for n, name in enumerate(names)}
    (found,) = build_onnx(model, target=None).run(given)
    assert found.tolist() == np.repeat(np.arange(5), 2).tolist()
