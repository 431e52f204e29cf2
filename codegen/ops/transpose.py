"""Axes in another order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.move import Axis, MovingOperator, Piece, dense_strides


@dataclass(frozen=True, eq=False)
class Transpose(Layer):
    """Axis k of the output is axis ``axes[k]`` of the input, whose shape is ``shape``; both without
    the batch."""

    shape: Shape
    axes: tuple[int, ...]


class TransposeOperator(MovingOperator[Transpose]):
    layer = Transpose
    kind = "transpose"

    def moved(self, layer: Transpose) -> tuple[tuple[Shape, ...], Shape, Iterable[Piece]]:
        if sorted(layer.axes) != list(range(len(layer.shape))):
            raise GraphError(
                f"layer {layer.name!r} puts the axes of {layer.shape} in the order {layer.axes}"
            )
        target = tuple(layer.shape[axis] for axis in layer.axes)
        strides = dense_strides(layer.shape)
        axes = (
            Axis(layer.shape[axis], strides[axis], stride)
            for axis, stride in zip(layer.axes, dense_strides(target), strict=True)
        )
        return (layer.shape,), target, [Piece(tuple(axes))]
