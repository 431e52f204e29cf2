"""The fixed-point meaning once more, in Python integers and plain loops, to test the fast one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Requantized, chw
from tvm_npu.codegen.ops import (
    FixedChannelSlice,
    FixedConcat,
    FixedConv,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedPad,
    FixedPool,
    FixedReflectPad,
    FixedReshape,
    FixedTable,
    FixedTransposedConv,
)

Index = tuple[int, ...]


def more(layer: Requantized, filter_: int) -> int:
    """What a filter's shifts are beyond the layer's."""
    if not isinstance(layer, FixedConv) or layer.filter_shifts is None:
        return 0
    return int(layer.filter_shifts[filter_])


def finish(layer: Requantized, acc: int, element_bytes: int, filter_: int = 0) -> int:
    shift = layer.shift + more(layer, filter_)
    if shift > 0:
        acc = (acc + 2 ** (shift - 1)) // 2**shift
    else:
        acc = acc * 2**-shift
    limit = 2 ** (8 * element_bytes - 1)
    acc = max(-limit, min(limit - 1, acc))
    return max(layer.low, min(layer.high, acc))


class SlowRun:
    """Runs one image; ``largest_accumulator`` is the largest abs(acc) seen."""

    def __init__(self, fixed: FixedGraph, inputs: dict[str, np.ndarray]) -> None:
        self.fixed = fixed
        self.largest_accumulator = 0
        self.tensors = {name: value.astype(object) for name, value in inputs.items()}
        for layer in fixed.layers:
            self.tensors[layer.output] = self._layer(layer)

    def _layer(self, layer: FixedLayer) -> np.ndarray:
        shape = self.fixed.shapes[layer.output]
        inputs = [self.tensors[tensor] for tensor in layer.inputs]
        if isinstance(layer, FixedConcat):
            return np.array([row for tensor in inputs for row in tensor], object).reshape(shape)
        if isinstance(layer, FixedReshape):
            return np.array(list(inputs[0].flat), object).reshape(shape)
        if isinstance(layer, FixedChannelSlice):
            return inputs[0][layer.begin : layer.begin + shape[0]]
        out = np.zeros(chw(shape), object)
        images = [tensor.reshape(chw(tensor.shape)) for tensor in inputs]
        for index in np.ndindex(out.shape):
            if isinstance(layer, FixedPad | FixedReflectPad):
                pad = self._pad if isinstance(layer, FixedPad) else self._reflect
                out[index] = pad(layer, images[0], index)  # type: ignore[operator]
                continue
            if isinstance(layer, FixedTable):
                out[index] = self._look_up(layer, int(images[0][index]))
                continue
            assert isinstance(layer, Requantized)
            acc = self._accumulate(layer, images, index)
            self.largest_accumulator = max(self.largest_accumulator, abs(acc))
            out[index] = finish(layer, acc, self.fixed.element_bytes, index[0])
        return out.reshape(shape)

    def _accumulate(self, layer: Requantized, images: list[np.ndarray], index: Index) -> int:
        if isinstance(layer, FixedConv):
            return self._conv(layer, images, index)
        if isinstance(layer, FixedPool):
            return self._pool(layer, images[0], index)
        if isinstance(layer, FixedTransposedConv):
            return self._transposed(layer, images[0], index)
        if isinstance(layer, FixedMaximum):
            return max(int(images[0][index]), int(images[1][index]))
        if isinstance(layer, FixedMaxFeatureMap):
            above = (index[0] + len(images[0]) // 2, *index[1:])
            return max(int(images[0][index]), int(images[0][above]))
        assert isinstance(layer, FixedElementwise)
        a, b = int(images[0][index]), int(images[-1][index])
        if layer.op == "add":
            return a * 2**layer.shift_a + b * 2**layer.shift_b
        return a * b if layer.op == "mul" else a

    def _conv(self, layer: FixedConv, images: list[np.ndarray], index: Index) -> int:
        m, row, column = index
        filters, depth, kernel_h, kernel_w = layer.weight.shape
        group = m // (filters // layer.groups)
        acc = int(layer.bias[m])
        for n, i, j in product(range(depth), range(kernel_h), range(kernel_w)):
            r = row * layer.stride[0] - layer.padding[0] + i * layer.dilation[0]
            c = column * layer.stride[1] - layer.padding[1] + j * layer.dilation[1]
            if 0 <= r < images[0].shape[1] and 0 <= c < images[0].shape[2]:
                acc += int(layer.weight[m, n, i, j]) * int(images[0][group * depth + n, r, c])
        if len(images) > 1:
            residual_shift = layer.residual_shift + more(layer, m)
            acc = acc * 2**layer.accumulator_shift + int(images[1][index]) * 2**residual_shift
        return acc

    @staticmethod
    def _window(layer: FixedPool, row: int, column: int) -> Iterator[tuple[int, int]]:
        for i, j in product(range(layer.kernel[0]), range(layer.kernel[1])):
            yield (
                row * layer.stride[0] - layer.padding[0] + i,
                column * layer.stride[1] - layer.padding[1] + j,
            )

    def _pool(self, layer: FixedPool, image: np.ndarray, index: Index) -> int:
        channel, row, column = index
        _, rows, columns = image.shape
        positions = list(self._window(layer, row, column))
        inside = [
            int(image[channel, r, c]) for r, c in positions if 0 <= r < rows and 0 <= c < columns
        ]
        if layer.kind == "max":
            return max(inside)
        top, left, bottom, right = layer.counted_padding if layer.count_include_pad else [0] * 4
        n = sum(-top <= r < rows + bottom and -left <= c < columns + right for r, c in positions)
        return (2 * sum(inside) + n) // (2 * n)

    @staticmethod
    def _pad(layer: FixedPad, image: np.ndarray, index: Index) -> int:
        scale = (1, *layer.stride)
        at = tuple(i * s - b for i, s, b in zip(index, scale, layer.before, strict=True))
        if all(0 <= i < extent for i, extent in zip(at, image.shape, strict=True)):
            return int(image[at])
        return layer.value

    @staticmethod
    def _reflect(layer: FixedReflectPad, image: np.ndarray, index: Index) -> int:
        at = [index[0]]
        for axis in (1, 2):
            place = abs(index[axis] - layer.padding[axis - 1])
            last = image.shape[axis] - 1
            at.append(place if place <= last else 2 * last - place)
        return int(image[tuple(at)])

    def _look_up(self, layer: FixedTable, a: int) -> int:
        table = layer.table
        limit = 2 ** (8 * self.fixed.element_bytes - 1)
        x = max(-limit, min(limit - 1, a * 2**-table.shift)) + limit
        segment, rest = divmod(x, 2**table.bits)
        low, high = int(table.values[segment]), int(table.values[segment + 1])
        return low + (2 * (high - low) * rest + 2**table.bits) // 2 ** (table.bits + 1)

    @staticmethod
    def _transposed(layer: FixedTransposedConv, image: np.ndarray, index: Index) -> int:
        m, row, column = index
        filters, depth, kernel_h, kernel_w = layer.weight.shape
        first = m // (filters // layer.groups) * depth
        acc = int(layer.bias[m])
        for n, i, j in product(range(depth), range(kernel_h), range(kernel_w)):
            y, odd_y = divmod(row + layer.padding[0] - i, layer.stride[0])
            z, odd_z = divmod(column + layer.padding[1] - j, layer.stride[1])
            inside = 0 <= y < image.shape[1] and 0 <= z < image.shape[2]
            if inside and not odd_y and not odd_z:
                acc += int(layer.weight[m, n, i, j]) * int(image[first + n, y, z])
        return acc
