"""Max feature map: the larger one of the two halves of the channels.

"A light CNN for deep face representation with noisy labels" (Wu et al.), Equation 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.activation import NO_CLIP, Activation
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.graph.tensors import Array
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take


@dataclass(frozen=True, eq=False)
class MaxFeatureMap(Layer):
    """(2 C, ...) -> (C, ...): channel c is max(x[c], x[C + c]); then the activation. `fuse` makes
    it from a `Maximum` of two channel slices."""

    activation: Activation = NO_CLIP


@dataclass(frozen=True, eq=False)
class FixedMaxFeatureMap(Requantized):
    """max(x[c], x[C + c]), clipped; input and output share a scale (shift is 0)."""


class MaxFeatureMapOperator(Operator[MaxFeatureMap, FixedMaxFeatureMap]):
    layer = MaxFeatureMap
    fixed = FixedMaxFeatureMap

    def shapes(
        self, layer: MaxFeatureMap | FixedMaxFeatureMap, inputs: Shapes, declared: Shapes
    ) -> Shapes:
        take(layer, inputs, 1)
        channels, *extents = inputs[0]
        if channels % 2:
            raise GraphError(
                f"layer {layer.name!r}: the max feature map of {inputs[0]} needs an even number "
                "of channels"
            )
        return ((channels // 2, *extents),)

    def run_float(self, layer: MaxFeatureMap, arrays: Arrays, shapes: Shapes) -> Arrays:
        return (layer.activation.apply(_larger_half(arrays[0])),)

    def run_fixed(
        self, layer: FixedMaxFeatureMap, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        larger = _larger_half(arrays[0])
        return (layer.requantized(larger, element_bytes),)

    def ties(self, layer: MaxFeatureMap) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: MaxFeatureMap) -> bool:
        return True

    def quantize(self, layer: MaxFeatureMap, numbers: Numbers) -> FixedMaxFeatureMap:
        low, high = numbers.bounds(layer, layer.activation)
        return FixedMaxFeatureMap(
            layer.name, layer.inputs, layer.outputs, shift=0, low=low, high=high,
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedMaxFeatureMap) -> str:
        return "max_feature_map"


def _larger_half(x: Array) -> Array:
    half = x.shape[1] // 2
    larger: Array = np.maximum(x[:, :half], x[:, half:])
    return larger
