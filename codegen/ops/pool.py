"""Max and average pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph.activation import NO_CLIP, Activation
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.graph.tensors import Array, Padding, chw, output_extent
from tvm_npu.codegen.ops.arithmetic import pad_spatial, window_counts, windows
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take


@dataclass(frozen=True, eq=False)
class Pool(Layer):
    """Max or average pooling. ``padding`` already contains what ceil_mode adds at the end.

    The divisor of an average is the part of the window that lies inside the tensor, or, with
    ``count_include_pad``, inside the tensor widened by ``counted_padding`` (the padding that the
    user gave, without what ceil_mode added).
    """

    kind: Literal["max", "avg"]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    count_include_pad: bool = False
    counted_padding: Padding = (0, 0, 0, 0)
    activation: Activation = NO_CLIP


@dataclass(frozen=True, eq=False)
class FixedPool(Requantized):
    """Pooling at the input's scale (shift is 0). Average: floor((2*sum + n) / (2*n)), or with
    ``halves_away`` the same of the sum's magnitude, with its sign: so rounds TensorFlow Lite, whose
    averages of 8 bits lie between two integers often."""

    kind: Literal["max", "avg"]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    count_include_pad: bool = False
    counted_padding: Padding = (0, 0, 0, 0)
    halves_away: bool = False


class PoolOperator(Operator[Pool, FixedPool]):
    layer = Pool
    fixed = FixedPool
    halves_away = True

    def shapes(self, layer: Pool | FixedPool, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        channels, *extents = chw(inputs[0])
        rows, columns = (
            output_extent(
                extents[i], layer.kernel[i], layer.stride[i], 1,
                layer.padding[i] + layer.padding[i + 2],
            )
            for i in range(2)
        )  # fmt: skip
        return ((channels, rows, columns),)

    def run_float(self, layer: Pool, arrays: Arrays, shapes: Shapes) -> Arrays:
        x = arrays[0]
        if layer.kind == "max":
            view, _ = _windows(layer, x, -np.inf)
            return (layer.activation.apply(view.max(axis=(2, 3))),)
        view, counts = _windows(layer, x, 0.0)
        mean = view.sum(axis=(2, 3), dtype=np.float64) / counts
        return (layer.activation.apply(mean.astype(np.float32)),)

    def run_fixed(
        self, layer: FixedPool, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        x = arrays[0]
        if layer.kind == "max":
            view, _ = _windows(layer, x, element_limits(element_bytes)[0])
            acc = view.max(axis=(2, 3))
        else:
            view, counts = _windows(layer, x, 0)
            total = view.sum(axis=(2, 3), dtype=np.int64)
            sign = np.where(total < 0, -1, 1) if layer.halves_away else 1
            acc = sign * ((2 * sign * total + counts) // (2 * counts))
        return (layer.requantized(acc, element_bytes),)

    def ties(self, layer: Pool) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: Pool) -> bool:
        return True

    def is_mean(self, layer: Pool) -> bool:
        return layer.kind == "avg"

    def quantize(self, layer: Pool, numbers: Numbers) -> FixedPool:
        low, high = numbers.bounds(layer, layer.activation)
        return FixedPool(
            layer.name, layer.inputs, layer.outputs, layer.kind, layer.kernel, layer.stride,
            layer.padding, layer.count_include_pad, layer.counted_padding,
            layer.kind == "avg" and not numbers.are_q_points(layer), shift=0, low=low, high=high,
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedPool) -> str:
        return f"{layer.kind}_pool"


def _windows(layer: Pool | FixedPool, x: Array, outside: float) -> tuple[Array, NDArray[np.int64]]:
    """Windows of ``x`` (``outside`` in the padding) and the divisor of each."""
    view = windows(pad_spatial(x, layer.padding, outside), layer.kernel, layer.stride)
    counted = layer.counted_padding if layer.count_include_pad else (0, 0, 0, 0)
    counts = window_counts(
        x.shape[2:], view.shape[4:], layer.kernel, layer.stride, layer.padding,
        counted if layer.kind == "avg" else (0, 0, 0, 0),
    )  # fmt: skip
    if counts.min() < 1:
        row, column = np.argwhere(counts < 1)[0]
        raise GraphError(f"the pooling window at row {row}, column {column} covers no element")
    return view, counts
