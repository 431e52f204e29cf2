"""The layers of an ONNX model that a planner schedules, and which of them are identical.

Two layers are identical when their tensors have the same parameters (input, weights, strides,
padding, dilations and groups; names, values and activations do not count) and when as many layers
read the result of one as of the other: what is read again later has to be kept, so its schedule
does not stand for one whose result is consumed at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx

from ._macs import shape_of, static_shapes

_SCHEDULED = ("Conv", "Gemm", "MatMul")
_ELEMENTWISE = ("BatchNormalization", "Clip", "LeakyRelu", "Relu")
"""Operators that become part of the layer in front of them."""


@dataclass(frozen=True)
class LayerShape:
    """One convolution or fully connected layer; shapes [N, C, H, W], [K, C / groups, R, S] and
    [N, K, H', W'], or [N, C], [K, C] and [N, K]. `readers` counts the operators that read the
    result behind the layer's own normalization and activation.
    """

    operator: str
    input: tuple[int, ...]
    weights: tuple[int, ...]
    output: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    readers: int


def layer_shapes(
    model: onnx.ModelProto, *, without: Collection[str] = ()
) -> list[tuple[str, LayerShape]]:
    """(node name, shape) of every layer in graph order.

    Nodes whose names end in one of `without` are left out, also as readers. Raises
    ModelShapeError for a layer without static shapes.
    """
    return list(_layers(model, tuple(without)))


def distinct_layers(
    layers: Sequence[tuple[str, LayerShape]],
) -> dict[LayerShape, list[str]]:
    """Names of the layers by shape, both in order of first appearance."""
    groups: dict[LayerShape, list[str]] = {}
    for name, shape in layers:
        groups.setdefault(shape, []).append(name)
    return groups


def _layers(model: onnx.ModelProto, without: tuple[str, ...]) -> Iterator[tuple[str, LayerShape]]:
    shapes = static_shapes(model)
    kept = [node for node in model.graph.node if not node.name.endswith(without or ("\0",))]
    readers = Counter(name for node in kept for name in node.input)
    activations = {node.input[0]: node.output[0] for node in kept if node.op_type in _ELEMENTWISE}
    for node in kept:
        if node.op_type not in _SCHEDULED:
            continue
        result = node.output[0]
        while readers[result] == 1 and result in activations:
            result = activations[result]
        data, weights, output = (shape_of(shapes, n) for n in (*node.input[:2], node.output[0]))
        found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Gemm" and not found.get("transB"):
            weights = weights[::-1]
        spatial = len(data) - 2
        yield (
            node.name or node.output[0],
            LayerShape(
                operator=node.op_type,
                input=data,
                weights=weights,
                output=output,
                strides=tuple(found.get("strides", (1,) * spatial)),
                pads=tuple(found.get("pads", (0,) * 2 * spatial)),
                dilations=tuple(found.get("dilations", (1,) * spatial)),
                groups=int(found.get("group", 1)),
                readers=readers[result],
            ),
        )
