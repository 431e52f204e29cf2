"""Quantized models have no ReLU where the integers of a tensor end: regions end there, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_npu.door.models import build_onnx

pytestmark = pytest.mark.relay

Node = tuple[str, list[str], str, dict[str, Any]]


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = normal(0, 1, 4, 9, 9)
FIRST: Node = ("Conv", ["x", "w"], "a", {})
FLOWS: dict[str, list[Node]] = {
    "an input": [("Identity", ["x"], "t", {})],
    "a pool": [FIRST, ("MaxPool", ["a"], "t", {"kernel_shape": [2, 2]})],
    "a concatenation": [FIRST, ("Concat", ["a", "a"], "t", {"axis": 1})],
    "a mean": [FIRST, ("AveragePool", ["a"], "t", {"kernel_shape": [3, 3]})],
}


def model_of(flow: list[Node], step: float, zero_point: int) -> onnx.ModelProto:
    """``flow`` makes t, of which a convolution reads what is left after a rounding to uint8."""
    channels = {"Concat": 8}.get(flow[-1][0], 4)
    nodes = [
        *flow,
        ("QuantizeLinear", ["t", "step", "zero"], "q", {}),
        ("DequantizeLinear", ["q", "step", "zero"], "d", {}),
        ("Conv", ["d", "v"], "y", {}),
    ]
    weights = {
        "w": 0.3 * normal(1, 4, 4, 3, 3), "v": 0.3 * normal(2, 3, channels, 3, 3),
        "step": np.float32(step), "zero": np.uint8(zero_point),
    }  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, read, [made], **given) for op, read, made, given in nodes],
        "g", [value("x", TensorProto.FLOAT, X.shape)], [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("machine", "precision"), [("nmp-4x8", "int16"), ("nmp-4x8-scale", "int8")]
)
@pytest.mark.parametrize(("step", "zero_point"), [(0.02, 0), (0.005, 100)])
@pytest.mark.parametrize("name", FLOWS)
def test_what_is_beyond_the_integers_is_cut(
    name: str, step: float, zero_point: int, machine: str, precision: str
) -> None:
    model = model_of(FLOWS[name], step, zero_point)
    (wanted,) = build_onnx(model, target=None).run({"x": X})
    built = build_onnx(model, f"npu/{machine}", {"x": X}, precision=precision)
    assert built.report is not None and built.report.regions
    (found,) = built.run({"x": X})
    noise = ((found - wanted) ** 2).mean() / (wanted**2).mean()
    assert noise < (1e-3 if precision == "int16" else 1e-2)
