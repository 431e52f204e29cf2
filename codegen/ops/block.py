"""A convolution, or a cascade, and a pointwise convolution behind it that run as one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.cascade import CascadeOperator, FixedCascade
from tvm_npu.codegen.ops.conv2d import Conv2dOperator, FixedConv
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes

_CONV, _CASCADE = Conv2dOperator(), CascadeOperator()


@dataclass(frozen=True, eq=False)
class FixedBlock(FixedLayer):
    """``head`` and, behind it, the pointwise convolution ``point`` that takes its output tile by
    tile: what lies between them is never a tensor. Inputs are those of ``head``, then the tensor
    that ``point`` adds, if it adds one; the output is that of ``point``."""

    head: FixedConv | FixedCascade
    point: FixedConv


class BlockOperator(Operator[Layer, FixedBlock]):
    fixed = FixedBlock

    def shapes(self, layer: Layer | FixedBlock, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedBlock)
        between = _between(layer, inputs)
        return _CONV.shapes(layer.point, (between, *_added(layer, inputs)), declared)

    def run_fixed(
        self, layer: FixedBlock, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        between = _between(layer, [array.shape[1:] for array in arrays])
        own = arrays[: len(layer.head.inputs)]
        (middle,) = _head(layer).run_fixed(layer.head, own, (between,), element_bytes)
        inputs = (middle, *_added(layer, arrays))
        return _CONV.run_fixed(layer.point, inputs, shapes, element_bytes)

    def macs(self, layer: Layer | FixedBlock, inputs: Shapes, outputs: Shapes) -> int:
        assert isinstance(layer, FixedBlock)
        between = _between(layer, inputs)
        macs = _head(layer).macs(layer.head, inputs[: len(layer.head.inputs)], (between,))
        return macs + _CONV.macs(layer.point, (between, *_added(layer, inputs)), outputs)

    def word(self, layer: FixedBlock) -> str:
        return f"{_head(layer).word(layer.head)}+{_CONV.word(layer.point)}"


def _head(layer: FixedBlock) -> Operator[Any, Any]:
    return _CASCADE if isinstance(layer.head, FixedCascade) else _CONV


def _added(layer: FixedBlock, operands: Sequence[Any]) -> Sequence[Any]:
    """Of the layer's operands, what the pointwise convolution adds."""
    return operands[len(layer.head.inputs) :]


def _between(layer: FixedBlock, inputs: Shapes) -> Shape:
    """The shape of what the head hands to the pointwise convolution."""
    own = inputs[: len(layer.head.inputs)]
    return _head(layer).shapes(layer.head, own, ((1, 1, 1),))[0]
