"""Two convolutions whose results are added, that run as one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.conv2d import Conv2dOperator, FixedConv
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes

_CONV = Conv2dOperator()


@dataclass(frozen=True, eq=False)
class FixedConvSum(FixedLayer):
    """``second`` adds what ``first`` makes, which is never a tensor. Inputs are that of ``first``
    and the one that ``second`` multiplies; the output is that of ``second``."""

    first: FixedConv
    second: FixedConv


class ConvSumOperator(Operator[Layer, FixedConvSum]):
    fixed = FixedConvSum

    def shapes(self, layer: Layer | FixedConvSum, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedConvSum)
        return _CONV.shapes(layer.second, (inputs[1], _between(layer, inputs)), declared)

    def run_fixed(
        self, layer: FixedConvSum, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        between = _between(layer, [array.shape[1:] for array in arrays])
        (middle,) = _CONV.run_fixed(layer.first, arrays[:1], (between,), element_bytes)
        return _CONV.run_fixed(layer.second, (arrays[1], middle), shapes, element_bytes)

    def macs(self, layer: Layer | FixedConvSum, inputs: Shapes, outputs: Shapes) -> int:
        assert isinstance(layer, FixedConvSum)
        between = _between(layer, inputs)
        macs = _CONV.macs(layer.first, inputs[:1], (between,))
        return macs + _CONV.macs(layer.second, (inputs[1], between), outputs)

    def word(self, layer: FixedConvSum) -> str:
        return f"{_CONV.word(layer.first)}+{_CONV.word(layer.second)}"


def _between(layer: FixedConvSum, inputs: Sequence[Any]) -> Shape:
    """The shape of what the first convolution makes."""
    return _CONV.shapes(layer.first, inputs[:1], ((1, 1, 1),))[0]
