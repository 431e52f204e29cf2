"""Quantized ONNX models whose zero points are spelled out: TVM 0.19 wants them all."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES = {"QuantizeLinear": np.uint8, "DequantizeLinear": np.int32}
"""Of a zero point that a node leaves out. TVM makes that of a DequantizeLinear int32 itself."""


def with_zero_points(model: Any) -> Any:
    """A copy of a model in which every QuantizeLinear and DequantizeLinear has a zero point (0 is
    what ONNX means without one); the model itself when all have."""
    import onnx
    from onnx import numpy_helper

    if not any(map(_is_bare, model.graph.node)):
        return model
    model = onnx.ModelProto.FromString(model.SerializeToString())
    taken = {tensor.name for tensor in model.graph.initializer}
    taken.update(name for node in model.graph.node for name in node.output)
    names = {}
    for operator, dtype in DTYPES.items():
        name = f"{operator}_zero_point"
        while name in taken:
            name += "_"
        names[operator] = name
        model.graph.initializer.append(numpy_helper.from_array(np.zeros((), dtype), name))
    for node in filter(_is_bare, model.graph.node):
        given = list(node.input[:2])
        del node.input[:]
        node.input.extend([*given, names[node.op_type]])
    return model


def _is_bare(node: Any) -> bool:
    return node.op_type in DTYPES and not any(node.input[2:])
