"""Clips with one bound, which TVM's ONNX frontend drops without a word, and with bounds that cross,
of which ONNX takes the upper one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.errors import DroppedBoundWarning

FIRST_OPSET = 11
"""Since then bounds are inputs of Clip; before, attributes, which TVM reads."""


def with_bounds_apart(model: Any, opset: int) -> Any:
    """A copy of an ONNX model in which a Clip that has not two constant bounds, the lower one
    first, is a Max and a Min; the model itself when there is none.

    before: Clip(x, "", 6)        after: Min(x, 6)
    """
    import onnx

    if opset < FIRST_OPSET:
        return _with_ordered_attributes(model)
    constants: dict[str, Any] = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            values = (one.t for one in node.attribute if one.name == "value")
            constants[node.output[0]] = next(values, None)
    if not any(_half_open(n, constants) for n in model.graph.node):
        return model
    model = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = [
        new
        for node in model.graph.node
        for new in (_apart(node) if _half_open(node, constants) else (node,))
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _with_ordered_attributes(model: Any) -> Any:
    """A copy of a model in which no Clip has a lower bound above its upper one: that is the lower
    one, too. The model itself where there is none."""
    import onnx

    if not any(map(_crossing, model.graph.node)):
        return model
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for node in model.graph.node:
        bounds = _crossing(node)
        if bounds:
            bounds["min"].f = bounds["max"].f
    return model


def _crossing(node: Any) -> dict[str, Any]:
    """The attributes of a Clip whose bounds cross; else none."""
    bounds = {item.name: item for item in node.attribute} if node.op_type == "Clip" else {}
    crosses = "min" in bounds and "max" in bounds and bounds["min"].f > bounds["max"].f
    return bounds if crosses else {}


def _half_open(node: Any, constants: Mapping[str, Any]) -> bool:
    if node.op_type != "Clip" or node.domain not in ("", "ai.onnx"):
        return False
    bounds = [name for name in node.input[1:] if name]
    if len(bounds) != 2 or not all(name in constants for name in bounds):
        return True
    return _cross(*(constants[name] for name in bounds))


def _cross(low: Any, high: Any) -> bool:
    """Whether two constants, as far as their values are here, are bounds of nothing."""
    from onnx import numpy_helper

    if low is None or high is None or low.data_location or high.data_location:
        return False
    return bool((numpy_helper.to_array(low) > numpy_helper.to_array(high)).any())


def _apart(node: Any) -> Iterator[Any]:
    from onnx import helper

    low, high = (*node.input[1:], "", "")[:2]
    steps = [(name, bound) for name, bound in (("Max", low), ("Min", high)) if bound]
    if not steps:
        yield helper.make_node("Identity", node.input[:1], node.output, name=node.name)
    value = node.input[0]
    for number, (operator, bound) in enumerate(steps, 1):
        last = number == len(steps)
        result = node.output[0] if last else f"{node.output[0]}/{operator}"
        yield helper.make_node(operator, [value, bound], [result], name=node.name)
        value = result


def warn_of_dropped_bounds() -> None:
    """Makes TVM's own ``relay.frontend.from_onnx`` warn where it drops a bound of a Clip."""
    if hasattr(reader.Clip, "npu_warns"):
        return
    convert = reader.Clip._impl_v11.__func__

    def warning(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        bounds = [bound for bound in list(inputs)[1:3] if bound is not None]
        constant = [isinstance(bound, relay.Constant) for bound in bounds]
        if any(constant) and not (all(constant) and len(bounds) == 2):
            warnings.warn(
                "TVM's ONNX frontend drops a constant bound of a Clip that has not two constant "
                "bounds; tvm_npu.relay.from_onnx keeps it",
                DroppedBoundWarning,
                stacklevel=2,
            )
        return convert(cls, inputs, attr, params)

    reader.Clip._impl_v11 = classmethod(warning)
    reader.Clip.npu_warns = True
