"""A convolution that makes several neighbouring results at a time, as filters side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.ops.conv2d import Conv2dOperator, FixedConv
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes

_CONV = Conv2dOperator()


@dataclass(frozen=True, eq=False)
class FixedConvPixels(FixedLayer):
    """``conv``, of one group and with a dilation of 1, whose results are computed in blocks of
    ``pixels`` (rows, columns): inputs, output and values are the convolution's."""

    conv: FixedConv
    pixels: tuple[int, int] = (1, 1)

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of the window of a block."""
        _, _, *size = self.conv.weight.shape
        rows, columns = (
            size[axis] + (self.pixels[axis] - 1) * self.conv.stride[axis] for axis in range(2)
        )
        return rows, columns

    @property
    def stride(self) -> tuple[int, int]:
        """Of blocks."""
        (down, across), (rows, columns) = self.conv.stride, self.pixels
        return down * rows, across * columns

    def weights(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """[block rows x block columns x filters, channels, *kernel] with zeros where a result has
        no tap, and the biases."""
        conv, (rows, columns) = self.conv, self.pixels
        filters, channels, tall, wide = conv.weight.shape
        found = np.zeros((rows, columns, filters, channels, *self.kernel), conv.weight.dtype)
        for row, column in np.ndindex(rows, columns):
            top, left = row * conv.stride[0], column * conv.stride[1]
            found[row, column, :, :, top : top + tall, left : left + wide] = conv.weight
        return found.reshape(-1, *found.shape[3:]), np.tile(conv.bias, rows * columns)


class ConvPixelsOperator(Operator[Layer, FixedConvPixels]):
    fixed = FixedConvPixels

    def shapes(self, layer: Layer | FixedConvPixels, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedConvPixels)
        return _CONV.shapes(layer.conv, inputs, declared)

    def run_fixed(
        self, layer: FixedConvPixels, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return _CONV.run_fixed(layer.conv, arrays, shapes, element_bytes)

    def macs(self, layer: Layer | FixedConvPixels, inputs: Shapes, outputs: Shapes) -> int:
        """Those of the convolution: products with zeros beside its taps are none."""
        assert isinstance(layer, FixedConvPixels)
        return _CONV.macs(layer.conv, inputs, outputs)

    def word(self, layer: FixedConvPixels) -> str:
        return _CONV.word(layer.conv)
