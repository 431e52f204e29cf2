"""Concatenation along any axis; along the first one `codegen.ops.concat` needs no moving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.move import Axis, MovingOperator, Piece, dense_strides


@dataclass(frozen=True, eq=False)
class Join(Layer):
    """The inputs, of ``shapes``, one behind the other along ``axis`` (the batch is none)."""

    shapes: tuple[Shape, ...]
    axis: int


class JoinOperator(MovingOperator[Join]):
    layer = Join
    kind = "join"

    def moved(self, layer: Join) -> tuple[tuple[Shape, ...], Shape, Iterable[Piece]]:
        axis = layer.axis
        rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in layer.shapes}
        if len(rest) != 1 or not 0 <= axis < len(layer.shapes[0]):
            raise GraphError(
                f"layer {layer.name!r} puts {list(layer.shapes)} together along axis {axis}; all "
                "other axes must be equal"
            )
        first = layer.shapes[0]
        total = sum(shape[axis] for shape in layer.shapes)
        target = (*first[:axis], total, *first[axis + 1 :])
        return layer.shapes, target, _behind_each_other(layer, dense_strides(target))


def _behind_each_other(layer: Join, target: tuple[int, ...]) -> Iterator[Piece]:
    at = 0
    for number, shape in enumerate(layer.shapes):
        axes = map(Axis, shape, dense_strides(shape), target)
        yield Piece(tuple(axes), 0, at * target[layer.axis], number)
        at += shape[layer.axis]
