"""Tensors whose channels lie beside each other, for machines that want them so.

In memory such a tensor is a list of pixels (rows outside, then columns), each with its ``planes``
channels. A flat tensor is one pixel. A reshape that flattens an image is a view: its elements stay
as they lie, and its form says so. Layers that hang on the order of elements get a copy in the order
that their shape says (a reshape as a computed layer).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.operator import Order, Placement
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.ops.reshape import fixed_reshape


def planes_of(shape: Shape) -> int:
    """Channels of a pixel of a tensor that lies as its shape says."""
    return shape[0] if len(shape) == 3 else prod(shape)


@dataclass(frozen=True)
class Settled:
    """``layers`` with reorderings where they are needed; ``planes`` of every tensor; the names of
    layers that would be layout only and have to be ``computed``."""

    layers: tuple[FixedLayer, ...]
    shapes: dict[str, Shape]
    planes: dict[str, int]
    computed: frozenset[str]


def settle(fixed: FixedGraph) -> Settled:
    """The form of every tensor of ``fixed``."""
    shapes = dict(fixed.shapes)
    planes = {tensor: planes_of(shapes[tensor]) for tensor in shapes}
    layers: list[FixedLayer] = []
    computed: set[str] = set()
    reordered: dict[str, str] = {}

    def plain(tensor: str) -> str:
        """``tensor`` in the order that its shape says."""
        if planes[tensor] == planes_of(shapes[tensor]):
            return tensor
        if tensor not in reordered:
            name = f"{tensor}@order"
            while name in shapes:
                name += "'"
            shapes[name], planes[name] = shapes[tensor], planes_of(shapes[tensor])
            layers.append(fixed_reshape(name, tensor, name))
            computed.add(name)
            reordered[tensor] = name
        return reordered[tensor]

    for layer in fixed.layers:
        operator = operator_of(layer)
        order = operator.order(layer, [shapes[tensor] for tensor in layer.inputs])
        forms = {planes[tensor] for tensor in layer.inputs}
        if order is Order.RESHAPED:
            source, target = layer.inputs[0], layer.output
            single = prod(shapes[target]) == planes_of(shapes[target])
            if single or planes[source] == planes[target]:
                planes[target] = planes[source]
            else:
                computed.add(layer.name)
        elif order is Order.KEPT and len(forms) == 1:
            for tensor in layer.outputs:
                planes[tensor] = planes[layer.inputs[0]]
        else:
            first = 1 if order is Order.FIRST_FREE else 0
            inputs = (*layer.inputs[:first], *map(plain, layer.inputs[first:]))
            if inputs != layer.inputs:
                layer = replace(layer, inputs=inputs)
        layers.append(layer)
    return Settled(tuple(layers), shapes, planes, frozenset(computed))


def is_view(layer: FixedLayer, settled: Settled) -> bool:
    """Nobody has to make the layer's outputs."""
    return operator_of(layer).placement is Placement.VIEW and layer.name not in settled.computed
