"""tvm-npu accuracy on a quantized model: onnxruntime's QLinear operators, results of integers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm.relay", exc_type=ImportError)
onnxruntime = pytest.importorskip("onnxruntime")

from tvm_npu.accuracy import Labelled, measure  # noqa: E402
from tvm_npu.door.models import import_onnx  # noqa: E402
from tvm_npu.options import make_options  # noqa: E402

pytestmark = pytest.mark.relay
SCALES = {
    "q": (0.0213, 120), "a": (0.0517, 110), "b": (0.0634, 140), "s": (0.0829, 128),
    "j": (0.0937, 130), "m": (0.0719, 128), "y": (0.113, 100),
}  # fmt: skip
IMAGES = np.random.default_rng(3).standard_normal((6, 3, 9, 10)).astype(np.float32)


def model() -> onnx.ModelProto:
    """Automatic padding behind an operator of onnxruntime's own; a concatenation of two scales."""
    rng = np.random.default_rng(4)
    tensors = []

    def put(name: str, values: object, dtype: object) -> str:
        tensors.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def scale(name: str) -> list[str]:
        return [f"{name}_scale", f"{name}_zero"]

    def weights(name: str, *shape: int) -> list[str]:
        steps = rng.uniform(0.004, 0.01, shape[0])
        return [
            put(name, rng.integers(-127, 128, shape), np.int8),
            put(f"{name}_scale", steps, np.float32),
            put(f"{name}_zero", np.zeros(shape[0]), np.int8),
        ]

    for name, (step, zero) in SCALES.items():
        put(f"{name}_scale", step, np.float32)
        put(f"{name}_zero", zero, np.uint8)
    one, own = helper.make_node, {"domain": "com.microsoft"}
    nodes = [
        one("QuantizeLinear", ["x", *scale("q")], ["q"]),
        one("QLinearConv", ["q", *scale("q"), *weights("wa", 4, 3, 3, 3), *scale("a")], ["a"],
            name="first", auto_pad="SAME_UPPER"),
        one("QLinearConv", ["q", *scale("q"), *weights("wb", 4, 3, 5, 5), *scale("b")], ["b"],
            name="wide", auto_pad="SAME_LOWER"),
        one("QLinearAdd", ["a", *scale("a"), "b", *scale("b"), *scale("s")], ["s"], **own),
        one("QLinearConcat", [*scale("j"), "s", *scale("s"), "a", *scale("a")], ["j"], axis=1,
            **own),
        one("QLinearConv", ["j", *scale("j"), *weights("wm", 5, 8, 3, 3), *scale("m")], ["m"],
            name="strided", auto_pad="SAME_UPPER", strides=[2, 2]),
        one("Flatten", ["m"], ["f"]),
        one("QLinearMatMul", ["f", *scale("m"), put("wy", rng.integers(-99, 99, (125, 7)), np.int8),
            put("wy_scale", 0.003, np.float32), put("wy_zero", 0, np.int8), *scale("y")], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 9, 10))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, (1, 7))], tensors,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture(scope="module")
def outputs() -> list[np.ndarray]:
    """Of onnxruntime."""
    session = onnxruntime.InferenceSession(
        model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [session.run(None, {"x": image[None]})[0] for image in IMAGES]


def test_qlinear_operators_compute_what_onnxruntime_does(outputs: list[np.ndarray]) -> None:
    partitioned = import_onnx(model(), {}).partition(make_options("nmp-4x8-scale"), None)
    assert len(partitioned.report.regions) == 1
    report = partitioned.report
    assert report.npu_macs == report.total_macs
    samples = [
        Labelled({"x": image[None]}, (int(one.argmax()),), (one,))
        for image, one in zip(IMAGES, outputs, strict=True)
    ]
    found = measure(partitioned, samples)
    assert found.top1_float == found.top1_npu == found.agreement == len(IMAGES)
    assert found.source is not None and found.source.within_one_step == 1.0
    assert found.sqnr_db > 30 and found.simulated == 1
    layers = found.regions[0].layers
    assert {"conv", "concat", "add", "copy"} <= {one.kind for one in layers}
    assert min(one.accumulated_db for one in layers) > 15


def test_accuracy_of_a_quantized_model(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, outputs: list[np.ndarray]
) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    labels = np.array([int(one.argmax()) for one in outputs])
    np.savez(tmp_path / "x.npz", images=IMAGES, labels=labels)
    arguments = ("accuracy", tmp_path / "m.onnx", "--images", tmp_path / "x.npz", "--simulated", 0,
                 "--machine", "nmp-4x8-scale")  # fmt: skip
    code, out, err = run(*arguments, "--json", tmp_path / "a.json")
    assert code == 0 and "ranges come from" not in err, err
    assert f"top-1: 1.000 ({len(labels)} of {len(labels)})" in out
    assert "beside the model's own rounding: 100.000 % of outputs within one step" in out
    source = json.loads((tmp_path / "a.json").read_text())["source"]
    assert source == {"within_one_step": 1.0, "top1_source": 6, "agreement": 6}
    for option in (("--quantization", "equalised"), ("--precision", "auto")):
        code, _, err = run(*arguments, *option)
        assert code == 1 and "the model is quantized and says the scales of all" in err
