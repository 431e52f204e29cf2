"""A convolution and a window operation behind it that run as one layer."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.conv2d import Conv2dOperator, FixedConv
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes
from tvm_npu.codegen.ops.pool import FixedPool, PoolOperator

_CONV, _POOL = Conv2dOperator(), PoolOperator()


@dataclass(frozen=True, eq=False)
class FixedCascade(FixedLayer):
    """A convolution and, behind it, a pool or a depthwise convolution that takes its output tile
    by tile: what lies between the two is never a tensor. Inputs are the convolution's, the output
    is the window's."""

    conv: FixedConv
    window: FixedPool | FixedConv


class CascadeOperator(Operator[Layer, FixedCascade]):
    fixed = FixedCascade

    def shapes(self, layer: Layer | FixedCascade, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedCascade)
        between = (_between(layer, inputs),)
        if isinstance(layer.window, FixedPool):
            return _POOL.shapes(layer.window, between, declared)
        return _CONV.shapes(layer.window, between, declared)

    def run_fixed(
        self, layer: FixedCascade, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        between = _between(layer, [array.shape[1:] for array in arrays])
        middle = _CONV.run_fixed(layer.conv, arrays, (between,), element_bytes)
        if isinstance(layer.window, FixedPool):
            return _POOL.run_fixed(layer.window, middle, shapes, element_bytes)
        return _CONV.run_fixed(layer.window, middle, shapes, element_bytes)

    def macs(self, layer: Layer | FixedCascade, inputs: Shapes, outputs: Shapes) -> int:
        assert isinstance(layer, FixedCascade)
        between = (_between(layer, inputs),)
        macs = _CONV.macs(layer.conv, inputs, between)
        if isinstance(layer.window, FixedPool):
            return macs + _POOL.macs(layer.window, between, outputs)
        return macs + _CONV.macs(layer.window, between, outputs)

    def word(self, layer: FixedCascade) -> str:
        window = layer.window
        behind = _POOL.word(window) if isinstance(window, FixedPool) else _CONV.word(window)
        return f"{_CONV.word(layer.conv)}+{behind}"


def _between(layer: FixedCascade, inputs: Shapes) -> Shape:
    """The shape of what the convolution hands to the window."""
    return _CONV.shapes(layer.conv, inputs, ((1, 1, 1),))[0]
