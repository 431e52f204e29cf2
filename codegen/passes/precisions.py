"""Layers of an int8 graph that compute in int16.

A layer reads operands of one width and multiplies them by weights of that width. What it makes has
the width of its readers where it can requantize to it (`Operator.may_widen`), the wider one of
several; a graph output has that of its layer. Where a reader wants another width, a copy lies in
between:

    before: x -> a -> y -> b (int16) -> z, y -> c -> w
    after:  x -> a -> y (int16) -> b -> z, y -> copy -> y@int8 -> c -> w

Layers that keep the width of their operands (pools, concatenations, moves) and are not chosen are
int16 where all their readers are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tvm_npu.codegen.graph import Graph, Layer
from tvm_npu.codegen.graph.fixed import Width, precision_of_width
from tvm_npu.codegen.ops.elementwise import float_copy
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.calibrate import Ranges, TensorRange
from tvm_npu.codegen.passes.rewriting import Uses

NARROW: Width = 1
WIDE: Width = 2


@dataclass(frozen=True)
class Widened:
    """A float graph with copies between widths, the ranges of its tensors, and the bytes of an
    element of each tensor."""

    graph: Graph
    ranges: Ranges
    widths: dict[str, Width]


def names(layer: Layer) -> frozenset[str]:
    """What users know a layer by: its own name and those of the operators it came from."""
    return frozenset((layer.name, *layer.source))


def with_int16_layers(graph: Graph, ranges: Ranges, chosen: Collection[str]) -> Widened:
    """``graph`` for int8 with the layers of these names in int16."""
    wide = _wide_layers(graph, frozenset(chosen))
    walk = _Walk(graph, wide, Uses(graph), {}, dict(ranges.tensors))
    for tensor in graph.inputs:
        readers = walk.uses.readers(tensor)
        walk.widths[tensor] = WIDE if any(one in wide for one in readers) else NARROW
    for layer in graph.layers:
        walk.step(layer)
    made = graph.with_layers(walk.layers, walk.shapes)
    return Widened(made, replace(ranges, tensors=walk.ranges), walk.widths)


def _wide_layers(graph: Graph, chosen: frozenset[str]) -> frozenset[Layer]:
    uses = Uses(graph)
    wide: set[Layer] = set()
    for layer in reversed(graph.layers):
        readers = [one for tensor in layer.outputs for one in uses.readers(tensor)]
        is_shown = not set(graph.outputs).isdisjoint(layer.outputs)
        follows = not operator_of(layer).may_widen and readers and not is_shown
        if names(layer) & chosen or (follows and wide.issuperset(readers)):
            wide.add(layer)
    return frozenset(wide)


@dataclass
class _Walk:
    graph: Graph
    wide: frozenset[Layer]
    uses: Uses
    widths: dict[str, Width]
    ranges: dict[str, TensorRange]
    layers: list[Layer] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def step(self, layer: Layer) -> None:
        width = WIDE if layer in self.wide else NARROW
        inputs = tuple(self._at(tensor, width) for tensor in layer.inputs)
        self.layers.append(layer if inputs == layer.inputs else replace(layer, inputs=inputs))
        for tensor in layer.outputs:
            self.widths[tensor] = width
            if operator_of(layer).may_widen:
                self.widths[tensor] = self._wanted(tensor, width)

    def _wanted(self, tensor: str, width: Width) -> Width:
        readers = self.uses.readers(tensor)
        wanted = {WIDE if one in self.wide else NARROW for one in readers}
        if tensor in self.graph.outputs:
            wanted.add(width)
        return max(wanted, default=width)

    def _at(self, tensor: str, width: Width) -> str:
        """The tensor, or a copy, of such elements."""
        if self.widths[tensor] == width:
            return tensor
        name = f"{tensor}@{precision_of_width(width)}"
        if name not in self.widths:
            self.layers.append(float_copy(name, tensor, name))
            self.widths[name], self.ranges[name] = width, self.ranges[tensor]
            self.shapes[name] = self.graph.shapes[tensor]
        return name
