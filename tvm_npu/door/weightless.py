"""ONNX models without their large weights, for whoever asks about shapes and nodes alone.

ONNX's checker and its shape inference write the whole model into one piece of memory and read it
again from there: three times the weights at once, and seconds.
"""

from __future__ import annotations

import math
from typing import Any

KEPT_ELEMENTS = 64
"""Weights of so many may be the shape of a Reshape, which inference must know."""


def without_weights(model: Any, kept_elements: int = KEPT_ELEMENTS) -> Any:
    """A copy of an onnx.ModelProto in which weights of more than ``kept_elements`` are inputs of
    the graph."""
    import onnx

    whole = model.graph
    large = {
        tensor.name: tensor for tensor in whole.initializer
        if math.prod(tensor.dims) > kept_elements
    }  # fmt: skip
    graph = onnx.GraphProto(name=whole.name)
    graph.node.extend(whole.node)
    graph.input.extend(value for value in whole.input if value.name not in large)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        for name, tensor in large.items()
    )
    graph.output.extend(whole.output)
    graph.value_info.extend(whole.value_info)
    graph.initializer.extend(one for one in whole.initializer if one.name not in large)
    graph.sparse_initializer.extend(whole.sparse_initializer)
    return onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
        graph=graph,
    )
