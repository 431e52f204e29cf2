"""Stock TVM builds, for comparisons, what the LLVM of its wheel rejects at first."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("tvm.relay", reason="the relay extra is not installed")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import ModelProto, TensorProto, helper  # noqa: E402

from tvm_npu.door.find import door  # noqa: E402


def model_of(*nodes: object, shape: list[int]) -> ModelProto:
    rng = np.random.default_rng(5)
    weights = rng.standard_normal((4, 3, 5, 5)).astype(np.float32)
    graph = helper.make_graph(
        list(nodes), "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True),
            helper.make_tensor("scales", TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0]),
        ],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])


PADDED = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2])
RESIZED = helper.make_node(
    "Resize", ["x", "", "scales"], ["y"], mode="linear",
    coordinate_transformation_mode="align_corners",
)  # fmt: skip


@pytest.mark.parametrize(
    ("node", "said"), [(PADDED, "padding in numbers"), (RESIZED, "tir.disable_cse_tir")]
)
def test_models_that_llvm_rejects_are_built(
    node: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    shape = (1, 3, 14, 14)
    model = model_of(node, shape=list(shape))
    image = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    with caplog.at_level(logging.WARNING):
        built = door().stock(model, {"x": shape}, 1)
    assert said in caplog.text
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"x": image})
    np.testing.assert_allclose(built.run({"x": image})[0], want, rtol=1e-4, atol=1e-5)
