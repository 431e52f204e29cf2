"""Every n-th index of any axes, forwards or backwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.move import Axis, MovingOperator, Piece, dense_strides


@dataclass(frozen=True, eq=False)
class StridedSlice(Layer):
    """Along every axis of ``shape`` (the input's, the batch is none) the ``extents`` indices
    ``begin``, ``begin + step``, ...; a step may be negative."""

    shape: Shape
    begins: tuple[int, ...]
    steps: tuple[int, ...]
    extents: Shape


class StridedSliceOperator(MovingOperator[StridedSlice]):
    layer = StridedSlice
    kind = "slice"

    def moved(self, layer: StridedSlice) -> tuple[tuple[Shape, ...], Shape, Iterable[Piece]]:
        axes = zip(layer.shape, layer.begins, layer.steps, layer.extents, strict=True)
        for extent, begin, step, count in axes:
            last = begin + (count - 1) * step
            if not (0 <= begin < extent and 0 <= last < extent and count > 0 and step):
                raise GraphError(
                    f"layer {layer.name!r} takes indices {begin} to {last} of {extent}"
                )
        strides = dense_strides(layer.shape)
        offset = sum(b * stride for b, stride in zip(layer.begins, strides, strict=True))
        source = (step * stride for step, stride in zip(layer.steps, strides, strict=True))
        piece = Piece(tuple(map(Axis, layer.extents, source, dense_strides(layer.extents))), offset)
        return (layer.shape,), layer.extents, [piece]
