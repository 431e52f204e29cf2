"""What layers need at least, whatever machine and plan: products and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedLayer
from tvm_npu.codegen.graph.tensors import Shape, chw
from tvm_npu.codegen.ops.registry import layer_macs
from tvm_npu.sim.snowflake.isa import WORD_BYTES

BIAS_BYTES = 4
Shapes = Mapping[str, Shape]


def layers_in(layer: FixedLayer) -> tuple[FixedLayer, ...]:
    """The graph's layers that run as this one."""
    if isinstance(layer, ops.FixedConvMaxima):
        return layer.conv, *layer.behind
    if isinstance(layer, ops.FixedConvPixels):
        return (layer.conv,)
    return (layer,)


def useful_macs(layer: FixedLayer, shapes: Shapes) -> int:
    """Products that are no products with padding."""
    if isinstance(layer, ops.FixedConvMaxima | ops.FixedConvPixels):
        return useful_macs(layer.conv, shapes)
    if not isinstance(layer, ops.FixedConv):
        return layer_macs(layer, shapes)
    if layer.is_dense:
        return prod(layer.weight.shape)
    _, *source = chw(shapes[layer.inputs[0]])
    _, *target = chw(shapes[layer.output])
    taps = [
        _taps(source[axis], target[axis], layer.weight.shape[2 + axis], layer.stride[axis],
              layer.dilation[axis], layer.padding[axis])
        for axis in range(2)
    ]  # fmt: skip
    return prod(layer.weight.shape[:2]) * prod(taps)


def _taps(size: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> int:
    """Pairs of a result and a tap along an axis that meet an element of the map."""
    places = (
        result * stride + tap * dilation - before for result in range(out) for tap in range(kernel)
    )
    return sum(0 <= place < size for place in places)


def least_bytes(layer: FixedLayer, shapes: Shapes) -> int:
    """Every tensor once: maps, weights, biases, results."""
    tensors: list[Shape] = [shapes[name] for name in (*layer.inputs, *layer.outputs)]
    words = sum(map(prod, tensors))
    biases = 0
    if isinstance(layer, ops.FixedConv | ops.FixedTransposedConv):
        words += layer.weight.size
        biases = layer.bias.size
    return WORD_BYTES * words + BIAS_BYTES * biases
