"""Gelu by its tanh approximation, which TVM's ONNX frontend reads as the exact one."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi, sqrt
from typing import Any

import numpy as np


def with_tanh_gelu_written_out(model: Any) -> Any:
    """A copy of an ONNX model in which a Gelu with ``approximate`` "tanh" is what it stands for;
    the model itself when there is none. Scalars have the type float32.

    before: Gelu(x)        after: x * (0.5 + 0.5 * tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
    """
    import onnx

    if not any(map(_is_approximate, model.graph.node)):
        return model
    model = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = [
        new
        for node in model.graph.node
        for new in (_written_out(node) if _is_approximate(node) else (node,))
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _is_approximate(node: Any) -> bool:
    return (
        node.op_type == "Gelu"
        and node.domain in ("", "ai.onnx")
        and any(item.name == "approximate" and item.s == b"tanh" for item in node.attribute)
    )


def _written_out(node: Any) -> Iterator[Any]:
    from onnx import helper, numpy_helper

    x, y = node.input[0], node.output[0]

    def named(part: str) -> str:
        return f"{y}/{part}"

    for part, value in (("cubic", 0.044715), ("slope", sqrt(2.0 / pi)), ("half", 0.5)):
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        yield helper.make_node("Constant", [], [named(part)], value=tensor)
    for operator, inputs, output in (
        ("Mul", (x, x), named("square")),
        ("Mul", (named("square"), x), named("cube")),
        ("Mul", (named("cube"), named("cubic")), named("term")),
        ("Add", (x, named("term")), named("sum")),
        ("Mul", (named("sum"), named("slope")), named("inner")),
        ("Tanh", (named("inner"),), named("tanh")),
        ("Mul", (named("tanh"), named("half")), named("halved")),
        ("Add", (named("halved"), named("half")), named("gate")),
        ("Mul", (x, named("gate")), y),
    ):
        yield helper.make_node(operator, inputs, [output], name=node.name)
