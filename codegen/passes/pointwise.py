"""Layers that together are one function of one tensor, element by element, become one table.

Frameworks spell activations as several operators; no machine gains by their intermediate values,
whose ranges may be far wider than the result's (exp(x) of an ELU).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.graph import Array, Graph, Layer
from tvm_npu.codegen.ops import Elementwise, Maximum, ScaleShift, TableFunction
from tvm_npu.codegen.ops.functions import FUNCTIONS, Function, function_called, recognised
from tvm_npu.codegen.passes.rewriting import Uses, swap

Step = Callable[[Sequence[Array]], Array]


def join_pointwise(graph: Graph) -> Graph | None:
    """before: x -> affine(1, 3) -> clip(0, 6) -> a; mul(x, a) -> b -> affine(1 / 6, 0) -> y
    after:  x -> table(hard_swish) -> y

    Where nothing else reads what lies between. What is only scaled, shifted and clipped stays: that
    goes into the layers in front and behind.
    """
    uses = Uses(graph)
    order = {layer: index for index, layer in enumerate(graph.layers)}
    for last in reversed(graph.layers):
        group = _group(last, graph, uses, order)
        if group is None:
            continue
        members = sorted(group.members, key=order.__getitem__)
        made = TableFunction(
            last.name, (group.root,), last.outputs, _function(members, group.root, last.output),
            source=tuple(name for layer in members for name in layer.source),
        )  # fmt: skip
        return swap(graph, {**dict.fromkeys(members), last: made})
    return None


@dataclass(frozen=True)
class _Group:
    """Layers that read nothing but the tensor ``root`` and each other."""

    members: frozenset[Layer]
    root: str

    @property
    def curves(self) -> int:
        return sum(map(_is_curve, self.members))


def _group(
    last: Layer, graph: Graph, uses: Uses, order: Mapping[Layer, int]
) -> _Group | None:
    """The smallest group that ends in ``last`` with all the curves that one can have; None for one
    of a single layer."""
    if _step(last) is None:
        return None
    members = {last}
    best: _Group | None = None
    while True:
        made = {tensor for layer in members for tensor in layer.outputs}
        read = {tensor for layer in members for tensor in layer.inputs} - made
        if len(read) == 1:
            found = _Group(frozenset(members), next(iter(read)))
            if found.curves > (0 if best is None else best.curves):
                best = found
        above = [
            maker
            for tensor in read
            if (maker := uses.producer(tensor)) is not None
            and tensor not in graph.outputs
            and _step(maker) is not None
            and members.issuperset(uses.readers(tensor))
        ]
        if not above:
            return best if best is not None and len(best.members) > 1 else None
        members.add(max(above, key=order.__getitem__))


def _is_curve(layer: Layer) -> bool:
    """Whether it does more than to scale, shift, add and clip."""
    product = isinstance(layer, Elementwise) and layer.op == "mul"
    return product or isinstance(layer, TableFunction | Maximum)


def _step(layer: Layer) -> Step | None:
    """What a layer does with each element of its inputs; None where that hangs on the place."""
    if isinstance(layer, TableFunction):
        function = function_called(layer.function)
        return lambda inputs: function(inputs[0])
    if isinstance(layer, Elementwise):
        joins: dict[str, Step] = {
            "add": lambda inputs: inputs[0] + inputs[1],
            "mul": lambda inputs: inputs[0] * inputs[1],
            "copy": lambda inputs: inputs[0],
        }
        join, activation = joins[layer.op], layer.activation
        return lambda inputs: activation.apply(join(inputs))
    if isinstance(layer, Maximum):
        clip = layer.activation
        return lambda inputs: clip.apply(np.maximum(inputs[0], inputs[1]))
    if isinstance(layer, ScaleShift):
        scale, bias = float(layer.scale[0]), float(layer.bias[0])
        if np.all(layer.scale == layer.scale[0]) and np.all(layer.bias == layer.bias[0]):
            return lambda inputs: inputs[0] * scale + bias
    return None


def _function(members: Sequence[Layer], root: str, output: str) -> str | Function:
    """The name of a listed function where they compute one."""
    steps = [(layer.inputs, layer.output, step) for layer in members if (step := _step(layer))]

    def values(x: Array) -> Array:
        tensors = {root: x}
        for inputs, made, step in steps:
            tensors[made] = step([tensors[tensor] for tensor in inputs])
        return tensors[output]

    found = recognised(values)
    return found.name if found.name in FUNCTIONS else found
