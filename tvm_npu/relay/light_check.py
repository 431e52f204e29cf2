"""ONNX's checker, which TVM's frontend asks about every model, without the weights.

It writes the whole model into one piece of memory and reads it again from there: three times the
weights at once, and seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LARGE_BYTES = 1 << 16


def light_check(whole: Callable[..., Any]) -> Callable[..., Any]:
    """``onnx.checker.check_model`` with large weights declared as inputs of the graph."""

    def check_model(model: Any, *arguments: Any, **named: Any) -> Any:
        return whole(without_weights(model), *arguments, **named)

    return check_model


def without_weights(model: Any) -> Any:
    """A model of the same nodes, whose weights of more than LARGE_BYTES are inputs."""
    import onnx

    graph = model.graph
    inputs = {value.name for value in graph.input}
    large = [tensor for tensor in graph.initializer if len(tensor.raw_data) > LARGE_BYTES]
    names = {tensor.name for tensor in large}
    light = onnx.GraphProto(name=graph.name)
    light.node.extend(graph.node)
    light.input.extend(graph.input)
    light.output.extend(graph.output)
    light.value_info.extend(graph.value_info)
    light.sparse_initializer.extend(graph.sparse_initializer)
    light.initializer.extend(one for one in graph.initializer if one.name not in names)
    light.input.extend(
        onnx.helper.make_tensor_value_info(one.name, one.data_type, list(one.dims))
        for one in large
        if one.name not in inputs
    )
    return onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
        graph=light,
    )
