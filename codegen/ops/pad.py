"""Constant padding, cropping and strided slices of images."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Shape, chw
from tvm_npu.codegen.ops.arithmetic import images, pad_tensor
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take


@dataclass(frozen=True, eq=False)
class Pad(Layer):
    """Constant padding of (C, H, W); negative amounts crop; ``stride`` then keeps every n-th
    row and column (a strided slice is a Pad with negative amounts and a stride)."""

    before: tuple[int, int, int]
    after: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    value: float = 0.0


@dataclass(frozen=True, eq=False)
class FixedPad(FixedLayer):
    """As `Pad`, with an integer fill value at the tensor's Q-point."""

    before: tuple[int, int, int]
    after: tuple[int, int, int]
    stride: tuple[int, int]
    value: int


class PadOperator(Operator[Pad, FixedPad]):
    layer = Pad
    fixed = FixedPad

    def shapes(self, layer: Pad | FixedPad, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        extents = [
            extent + before + after
            for extent, before, after in zip(chw(inputs[0]), layer.before, layer.after, strict=True)
        ]
        rows, columns = (-(-extents[i + 1] // layer.stride[i]) for i in range(2))
        shape: Shape = (extents[0], rows, columns)
        return (shape if len(inputs[0]) == 3 else (extents[0] * rows * columns,),)

    def run_float(self, layer: Pad, arrays: Arrays, shapes: Shapes) -> Arrays:
        return _padded(layer, arrays)

    def run_fixed(
        self, layer: FixedPad, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return _padded(layer, arrays)

    def ties(self, layer: Pad) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: Pad) -> bool:
        return True

    def fills(self, layer: Pad) -> tuple[float, ...]:
        return (layer.value,)

    def quantize(self, layer: Pad, numbers: Numbers) -> FixedPad:
        fill = numbers.constant(layer, layer.value, layer.output)
        return FixedPad(
            layer.name, layer.inputs, layer.outputs, layer.before, layer.after, layer.stride, fill,
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedPad) -> str:
        return "pad"


def _padded(layer: Pad | FixedPad, arrays: Arrays) -> Arrays:
    x = arrays[0]
    padded = pad_tensor(images(x), layer.before, layer.after, layer.stride, layer.value)
    return (padded if x.ndim == 4 else padded.reshape(len(x), -1),)
