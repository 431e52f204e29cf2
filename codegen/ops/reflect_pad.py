"""Reflection padding of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Padding, chw
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take


@dataclass(frozen=True, eq=False)
class ReflectPad(Layer):
    """(C, R, C') widened by ``padding`` (top, left, bottom, right) rows and columns that mirror
    those inside; the outermost are not repeated: row -k is row k. Each amount is at least 0 and
    below the extent."""

    padding: Padding


@dataclass(frozen=True, eq=False)
class FixedReflectPad(FixedLayer):
    """As `ReflectPad`: moves integers, at one scale."""

    padding: Padding


class ReflectPadOperator(Operator[ReflectPad, FixedReflectPad]):
    layer = ReflectPad
    fixed = FixedReflectPad

    def shapes(
        self, layer: ReflectPad | FixedReflectPad, inputs: Shapes, declared: Shapes
    ) -> Shapes:
        take(layer, inputs, 1)
        channels, rows, columns = chw(inputs[0])
        top, left, bottom, right = layer.padding
        is_inside = max(top, bottom) < rows and max(left, right) < columns
        if len(inputs[0]) != 3 or min(layer.padding) < 0 or not is_inside:
            raise GraphError(
                f"layer {layer.name!r} reflects {layer.padding} rows and columns of {inputs[0]}; "
                "each amount must be at least 0 and below the extent"
            )
        return ((channels, rows + top + bottom, columns + left + right),)

    def run_float(self, layer: ReflectPad, arrays: Arrays, shapes: Shapes) -> Arrays:
        return _reflected(layer, arrays)

    def run_fixed(
        self, layer: FixedReflectPad, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return _reflected(layer, arrays)

    def ties(self, layer: ReflectPad) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: ReflectPad) -> bool:
        return True

    def quantize(self, layer: ReflectPad, numbers: Numbers) -> FixedReflectPad:
        return FixedReflectPad(
            layer.name, layer.inputs, layer.outputs, layer.padding, source=layer.source
        )

    def word(self, layer: FixedReflectPad) -> str:
        return "reflect_pad"


def _reflected(layer: ReflectPad | FixedReflectPad, arrays: Arrays) -> Arrays:
    top, left, bottom, right = layer.padding
    return (np.pad(arrays[0], ((0, 0), (0, 0), (top, bottom), (left, right)), mode="reflect"),)
