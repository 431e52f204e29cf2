"""The same elements under another shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Order, Placement, Shapes, take


@dataclass(frozen=True, eq=False)
class Reshape(Layer):
    """The same elements in the same order under another shape."""


@dataclass(frozen=True, eq=False)
class FixedReshape(FixedLayer):
    """Layout only."""


class ReshapeOperator(Operator[Reshape, FixedReshape]):
    layer = Reshape
    fixed = FixedReshape
    placement = Placement.VIEW

    def shapes(self, layer: Reshape | FixedReshape, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        if prod(inputs[0]) != prod(declared[0]):
            raise GraphError(
                f"layer {layer.name!r} reshapes {inputs[0]} to {declared[0]}; the numbers of "
                f"elements, {prod(inputs[0])} and {prod(declared[0])}, differ"
            )
        return (declared[0],)

    def run_float(self, layer: Reshape, arrays: Arrays, shapes: Shapes) -> Arrays:
        return (arrays[0].reshape(len(arrays[0]), *shapes[0]),)

    def run_fixed(
        self, layer: FixedReshape, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return (arrays[0].reshape(len(arrays[0]), *shapes[0]),)

    def ties(self, layer: Reshape) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: Reshape) -> bool:
        return True

    def quantize(self, layer: Reshape, numbers: Numbers) -> FixedReshape:
        return FixedReshape(layer.name, layer.inputs, layer.outputs, source=layer.source)

    def word(self, layer: FixedReshape) -> str:
        return "reshape"

    def order(self, layer: FixedReshape, inputs: Shapes) -> Order:
        return Order.RESHAPED

    def view_offsets(self, layer: FixedReshape, shapes: Mapping[str, Shape]) -> tuple[int, ...]:
        return (0,)


def fixed_reshape(name: str, source: str, target: str) -> FixedReshape:
    """A layer that gives the elements of ``source`` the shape of ``target``."""
    return FixedReshape(name, (source,), (target,))
