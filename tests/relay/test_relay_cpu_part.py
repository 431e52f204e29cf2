"""What stays on the CPU is stock TVM's own work, to the bit, on what the regions hand over."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib import graph_executor

import tvm_npu.runtime as npu_runtime
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor
from tvm_npu.door import build_onnx

pytestmark = pytest.mark.relay

Array = NDArray[Any]


def conv_lrn_conv_softmax() -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, c, 3, 3)).astype(np.float32) / 4, name)
        for name, c in (("w1", 3), ("w2", 8))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="c1", pads=[1, 1, 1, 1]),
        helper.make_node("LRN", ["a"], ["b"], name="lrn", size=5, alpha=0.01),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="c2", strides=[2, 2]),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax", axis=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 5, 5])
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def stock(body: Any, x: relay.Var, value: Array) -> Array:
    module = tvm.IRModule.from_expr(relay.Function([x], body))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=value)
    return np.asarray(executor.get_output(0).numpy())


def test_operators_between_and_after_regions_are_stock_tvm_s() -> None:
    npu_runtime.clear_sessions()
    image = np.random.default_rng(6).standard_normal((1, 3, 12, 12)).astype(np.float32)
    built = build_onnx(conv_lrn_conv_softmax(), calibration={"x": image})
    built.run({"x": image})
    seen: dict[str, tuple[list[Array], list[Array]]] = {}
    sessions = dict(npu_runtime.sessions())
    for name, session in sessions.items():
        session.observer = lambda i, o, name=name: seen.__setitem__(name, (i, o))
    (result,) = built.run({"x": image})
    assert len(seen) == 2
    (first, (_, (before,))), (second, ((after,), (last,))) = sorted(seen.items())

    slot = sessions[first].program.outputs[0]
    x = relay.var("x", shape=before.shape)
    between = stock(
        relay.nn.lrn(x, size=5, axis=1, bias=1.0, alpha=0.01),
        x,
        dequantize_tensor(before, slot.q_point),
    )
    slot = sessions[second].program.inputs[0]
    np.testing.assert_array_equal(after, quantize_tensor(between, slot.q_point, 2))

    slot = sessions[second].program.outputs[0]
    x = relay.var("x", shape=last.shape)
    softmax = stock(relay.nn.softmax(x, axis=1), x, dequantize_tensor(last, slot.q_point))
    np.testing.assert_array_equal(result, softmax)
