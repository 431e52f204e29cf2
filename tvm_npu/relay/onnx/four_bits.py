"""Numbers quantized to four bits, which TVM 0.19 takes for any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tvm_npu.door.onnx.nodes import nodes_of

_ZERO_POINT = 2
_BYTES = {
    TensorProto.UINT4: (TensorProto.UINT8, np.array([0, 15], np.uint8)),
    TensorProto.INT4: (TensorProto.INT8, np.array([-8, 7], np.int8)),
}
"""The element type of bytes that hold one of four bits, and its bounds."""


def with_four_bits_in_bytes(model: Any) -> Any:
    """A copy in which each QuantizeLinear whose zero point is an input of four bits makes bytes
    within their bounds; the model itself where there is none.

    before: QuantizeLinear(x, s, uint4 z)        after: Clip(QuantizeLinear(x, s, uint8 z), 0, 15)
    """
    narrow = {
        one.name: _BYTES[one.type.tensor_type.elem_type]
        for one in model.graph.input
        if one.type.tensor_type.elem_type in _BYTES and _is_zero_point(one.name, model)
    }
    if not narrow:
        return model
    copy = type(model).FromString(model.SerializeToString())
    graph, nodes, types = copy.graph, [], {}
    for node in graph.node:
        nodes.append(node)
        dtype, bounds = narrow.get(_zero_point(node), (None, ()))
        if dtype is None:
            continue
        name = node.output[0]
        wide, *limits = (f"{name}/{part}" for part in ("bytes", "least", "most"))
        node.output[0] = wide
        graph.initializer.extend(map(numpy_helper.from_array, bounds, limits))
        nodes.append(helper.make_node("Clip", [wide, *limits], [name], name=name))
        types[name] = types[_zero_point(node)] = dtype
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.name in types:
            value.type.tensor_type.elem_type = types[value.name]
    return copy


def _zero_point(node: Any) -> str:
    """The name of that of a QuantizeLinear; "" of others."""
    given = node.input if node.op_type == "QuantizeLinear" else ()
    return str(given[_ZERO_POINT]) if len(given) > _ZERO_POINT else ""


def _is_zero_point(tensor: str, model: Any) -> bool:
    """Whether it is one of QuantizeLinear nodes outside of subgraphs, and nothing else."""
    readers = sum(list(node.input).count(tensor) for node in nodes_of(model))
    found = [node for node in model.graph.node if _zero_point(node) == tensor]
    return len(found) == readers > 0
