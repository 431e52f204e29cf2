"""The larger one of two tensors, element by element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.activation import NO_CLIP, Activation
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take


@dataclass(frozen=True, eq=False)
class Maximum(Layer):
    """max(a, b), element by element, of two tensors of one shape; then the activation."""

    activation: Activation = NO_CLIP


@dataclass(frozen=True, eq=False)
class FixedMaximum(Requantized):
    """max(a, b), clipped; both inputs and the output share a scale (shift is 0)."""


class MaximumOperator(Operator[Maximum, FixedMaximum]):
    layer = Maximum
    fixed = FixedMaximum

    def shapes(self, layer: Maximum | FixedMaximum, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 2)
        if inputs[0] != inputs[1]:
            raise GraphError(
                f"layer {layer.name!r}: maximum of {inputs[0]} and {inputs[1]}; the shapes must "
                "be equal"
            )
        return (inputs[0],)

    def run_float(self, layer: Maximum, arrays: Arrays, shapes: Shapes) -> Arrays:
        return (layer.activation.apply(np.maximum(*arrays)),)

    def run_fixed(
        self, layer: FixedMaximum, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        larger = np.maximum(*arrays)
        return (layer.requantized(larger, element_bytes),)

    def ties(self, layer: Maximum) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: Maximum) -> bool:
        return True

    def quantize(self, layer: Maximum, numbers: Numbers) -> FixedMaximum:
        low, high = numbers.bounds(layer, layer.activation)
        return FixedMaximum(
            layer.name, layer.inputs, layer.outputs, shift=0, low=low, high=high,
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedMaximum) -> str:
        return "max"
