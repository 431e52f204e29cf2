"""Clips with one bound, which TVM's ONNX frontend drops without a word."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.errors import DroppedBoundWarning

FIRST_OPSET = 11
"""Since then bounds are inputs of Clip; before, attributes, which TVM reads."""


def with_bounds_apart(model: Any, opset: int) -> Any:
    """A copy of an ONNX model in which a Clip that has not two constant bounds is a Max and a Min;
    the model itself when there is none.

    before: Clip(x, "", 6)        after: Min(x, 6)
    """
    import onnx

    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {n.output[0] for n in model.graph.node if n.op_type == "Constant"}
    if opset < FIRST_OPSET or not any(_half_open(n, constants) for n in model.graph.node):
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


def _half_open(node: Any, constants: set[str]) -> bool:
    bounds = [name for name in node.input[1:] if name]
    both = len(bounds) == 2 and constants.issuperset(bounds)
    return node.op_type == "Clip" and node.domain in ("", "ai.onnx") and not both


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
