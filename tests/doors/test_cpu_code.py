"""What TVM cannot compile is an error that names the operator, through either door."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

from tvm_npu.codegen.errors import PlanningError, QuantizationError  # noqa: E402
from tvm_npu.door.calibrate import UnfitTensorError  # noqa: E402
from tvm_npu.door.cpu_code import MOST_SUSPECTS, cpu_code, is_tvms, reason_of  # noqa: E402
from tvm_npu.door.dataflow import OpCall  # noqa: E402
from tvm_npu.door.models import build_onnx, build_stock  # noqa: E402
from tvm_npu.errors import CpuCodeError, PartitionError  # noqa: E402

RNG = np.random.default_rng(0)
SHAPE = (1, 3, 6, 6)


def scaled_model(scale: float) -> onnx.ModelProto:
    """x / scale, then a convolution: the division stays on the CPU."""
    weights = {
        "scale": np.full((), scale, np.float32),
        "weight": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Div", ["x", "scale"], ["scaled"], name="the_division"),
        helper.make_node("Sin", ["scaled"], ["waves"], name="the_sine"),
        helper.make_node("Conv", ["waves", "weight"], ["y"], name="the_convolution"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 4, 4))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def samples(value: float = 1.0) -> dict[str, Any]:
    return {"x": np.float32(value * RNG.uniform(1, 2, SHAPE))}


@pytest.mark.parametrize("target", ["npu/nmp-4x8", None], ids=["calibrated", "built"])
def test_an_operator_that_tvm_cannot_compile_is_named(target: str | None) -> None:
    with pytest.raises(CpuCodeError) as caught:
        build_onnx(scaled_model(0.0), target, samples())
    said = str(caught.value)
    assert "divide 'the_division' of Tensor[(1, 3, 6, 6), float32]" in said
    assert "Divide by zero" in said and "InternalError: InternalError" not in said
    assert "the_sine" not in said and is_tvms(caught.value.__cause__)  # type: ignore[arg-type]


def test_errors_of_regions_keep_their_class() -> None:
    with pytest.raises(QuantizationError, match="values are nan in calibration") as caught:
        build_onnx(scaled_model(1e-30), "npu/nmp-4x8", samples(1e20))
    assert type(caught.value) is QuantizationError


def test_errors_of_planning_keep_their_class_and_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_fits(*_: object) -> None:
        raise PlanningError("nothing fits", "the_layer")

    monkeypatch.setattr("tvm_npu.door.region.MarkedRegion.compiled", nothing_fits)
    with pytest.raises(PlanningError, match="nothing fits") as caught:
        build_onnx(scaled_model(2.0), "npu/nmp-4x8", samples())
    assert caught.value.layer == "the_layer"


def test_a_model_that_tvm_cannot_import_is_a_partition_error() -> None:
    model = scaled_model(1.0)
    model.graph.node[0].op_type = "NoSuchOperator"
    for build in (build_onnx, build_stock):
        with pytest.raises(PartitionError, match="cannot import the model.*NoSuchOperator"):
            build(model)


def test_errors_that_are_not_tvms_stay() -> None:
    for error in (KeyError("own"), UnfitTensorError("x", None)):  # type: ignore[arg-type]
        with pytest.raises(type(error)), cpu_code():
            raise error
        assert not is_tvms(error)
    assert reason_of(ValueError("a\n\n ValueError: b \n")) == "ValueError: b"
    assert reason_of(ValueError(" \n")) == "ValueError: no further word"


def test_looking_for_the_operator_ends() -> None:
    import tvm

    tried = []

    def fail() -> None:
        tvm.target.Target("no such target")

    def suspects() -> Any:
        for number in range(10 * MOST_SUSPECTS):
            tried.append(number)
            yield OpCall("op", (), ()), lambda: None

    with pytest.raises(CpuCodeError, match="the part of the model that stays on the CPU"):
        with cpu_code(suspects):
            fail()
    assert len(tried) == MOST_SUSPECTS
