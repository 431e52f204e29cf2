"""A convolution, or a cascade, and a pointwise convolution behind it that run as one layer; with a
second convolution beside the first, whose results lie beside those of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
    that ``point`` adds, if it adds one; the output is that of ``point``.

    ``twin``: a convolution of the same input whose output, through the window of ``head`` if that
    is a cascade, has its channels behind those of ``head``, or in front where it ``leads``."""

    head: FixedConv | FixedCascade
    point: FixedConv
    twin: FixedConv | None = None
    twin_leads: bool = False


class BlockOperator(Operator[Layer, FixedBlock]):
    fixed = FixedBlock

    def shapes(self, layer: Layer | FixedBlock, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedBlock)
        between = _between(layer, inputs)
        return _CONV.shapes(layer.point, (between, *_added(layer, inputs)), declared)

    def run_fixed(
        self, layer: FixedBlock, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        own = arrays[: len(layer.head.inputs)]
        in_shapes = [array.shape[1:] for array in own]
        parts = [
            _head(layer).run_fixed(
                head, own, _head(layer).shapes(head, in_shapes, ((1, 1, 1),)), element_bytes
            )[0]
            for head in heads_of(layer)
        ]
        inputs = (np.concatenate(parts, axis=1), *_added(layer, arrays))
        return _CONV.run_fixed(layer.point, inputs, shapes, element_bytes)

    def macs(self, layer: Layer | FixedBlock, inputs: Shapes, outputs: Shapes) -> int:
        assert isinstance(layer, FixedBlock)
        between = _between(layer, inputs)
        own = inputs[: len(layer.head.inputs)]
        macs = sum(
            _head(layer).macs(head, own, _head(layer).shapes(head, own, ((1, 1, 1),)))
            for head in heads_of(layer)
        )
        return macs + _CONV.macs(layer.point, (between, *_added(layer, inputs)), outputs)

    def word(self, layer: FixedBlock) -> str:
        words = [_head(layer).word(head) for head in heads_of(layer)]
        return "+".join((*words, _CONV.word(layer.point)))


def _head(layer: FixedBlock) -> Operator[Any, Any]:
    return _CASCADE if isinstance(layer.head, FixedCascade) else _CONV


def heads_of(layer: FixedBlock) -> list[FixedConv | FixedCascade]:
    """The head and, where it has a twin, that with the same window, in the order of channels."""
    if layer.twin is None:
        return [layer.head]
    twin: FixedConv | FixedCascade = layer.twin
    if isinstance(layer.head, FixedCascade):
        twin = replace(layer.head, conv=layer.twin)
    return [twin, layer.head] if layer.twin_leads else [layer.head, twin]


def _added(layer: FixedBlock, operands: Sequence[Any]) -> Sequence[Any]:
    """Of the layer's operands, what the pointwise convolution adds."""
    return operands[len(layer.head.inputs) :]


def _between(layer: FixedBlock, inputs: Shapes) -> Shape:
    """The shape of what the head, with its twin, hands to the pointwise convolution."""
    own = inputs[: len(layer.head.inputs)]
    shapes = [_head(layer).shapes(head, own, ((1, 1, 1),))[0] for head in heads_of(layer)]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])
