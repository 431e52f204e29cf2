"""Moving elements: what all operators that only rearrange tensors have in common.

An operator says as `Piece`s which element goes where; they are its meaning, float and fixed, and
all that a machine has to know. Every element of the output is in exactly one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Array, Shape
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes


@dataclass(frozen=True)
class Axis:
    """One index of a piece: how many values it takes, and how many elements the source and the
    target go on when it grows by one. Only the source's may be 0 or negative."""

    extent: int
    source: int
    target: int


def joined(axes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """As few axes as it takes to walk the same elements in the same order: ``axes`` are (indices,
    elements from one to the next) of one side, outer ones first."""
    found: list[tuple[int, int]] = []
    for extent, stride in axes:
        if extent == 1:
            continue
        if found and found[-1][1] == stride * extent:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return found


@dataclass(frozen=True)
class Piece:
    """For all values of all axes, element ``source_offset`` + sum of index * source of input
    ``source`` goes to element ``target_offset`` + sum of index * target of the output."""

    axes: tuple[Axis, ...]
    source_offset: int = 0
    target_offset: int = 0
    source: int = 0

    @property
    def elements(self) -> int:
        return prod(axis.extent for axis in self.axes)

    def normalized(self) -> Piece:
        """The same with as few axes as it takes, those with the longest ways in the target
        first."""
        axes = sorted((one for one in self.axes if one.extent > 1), key=lambda one: -one.target)
        merged: list[Axis] = []
        for axis in axes:
            outer = merged[-1] if merged else None
            if (
                outer is not None
                and outer.source == axis.source * axis.extent
                and outer.target == axis.target * axis.extent
            ):
                merged[-1] = Axis(outer.extent * axis.extent, axis.source, axis.target)
            else:
                merged.append(axis)
        return Piece(tuple(merged), self.source_offset, self.target_offset, self.source)


@dataclass(frozen=True, eq=False)
class FixedMove(FixedLayer):
    """Moves integers, at one scale. ``kind`` is the layer table's word for it; ``shapes`` are those
    of the inputs and of the output for which the pieces were made."""

    pieces: tuple[Piece, ...]
    kind: str
    shapes: tuple[Shape, ...]


Moving = TypeVar("Moving", bound=Layer)


class MovingOperator(Operator[Moving, FixedMove]):
    """An operator that moves elements. It says `kind` and `pieces`."""

    fixed = FixedMove
    kind = "move"

    def moved(self, layer: Moving) -> tuple[tuple[Shape, ...], Shape, Iterable[Piece]]:
        """(shapes of the inputs that the layer is for, shape of the output, pieces)."""
        raise NotImplementedError

    def shapes(self, layer: Moving | FixedMove, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, Layer)
        wanted, shape, _ = self.moved(layer)
        return _checked(layer, (*wanted, shape), inputs)

    def run_float(self, layer: Moving, arrays: Arrays, shapes: Shapes) -> Arrays:
        _, shape, pieces = self.moved(layer)
        return (move(arrays, pieces, shape),)

    def ties(self, layer: Moving) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: Moving) -> bool:
        return True

    def quantize(self, layer: Moving, numbers: Numbers) -> FixedMove:
        wanted, shape, pieces = self.moved(layer)
        return FixedMove(
            layer.name, layer.inputs, layer.outputs, tuple(one.normalized() for one in pieces),
            self.kind, (*wanted, shape), source=layer.source,
        )  # fmt: skip


class FixedMoveOperator(Operator[Layer, FixedMove]):
    """What all of them are in fixed point."""

    fixed = FixedMove

    def shapes(self, layer: Layer | FixedMove, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedMove)
        return _checked(layer, layer.shapes, inputs)

    def run_fixed(
        self, layer: FixedMove, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return (move(arrays, layer.pieces, layer.shapes[-1]),)

    def word(self, layer: FixedMove) -> str:
        return layer.kind


def _checked(layer: Layer | FixedMove, shapes: Sequence[Shape], inputs: Shapes) -> Shapes:
    *wanted, shape = shapes
    if [*inputs] != wanted:
        raise GraphError(
            f"layer {layer.name!r} moves elements of {wanted}; its inputs have {list(inputs)}"
        )
    return (shape,)


def move(arrays: Sequence[Array], pieces: Iterable[Piece], shape: Shape) -> Array:
    """The output [B, *shape] for inputs [B, ...]."""
    sources = [np.ascontiguousarray(array).reshape(len(array), -1) for array in arrays]
    target = np.empty((len(arrays[0]), prod(shape)), arrays[0].dtype)
    for piece in pieces:
        source = sources[piece.source]
        _view(target, piece.target_offset, [(one.extent, one.target) for one in piece.axes])[
            ...
        ] = _view(source, piece.source_offset, [(one.extent, one.source) for one in piece.axes])
    return target.reshape(len(target), *shape)


def _view(flat: Array, offset: int, axes: Sequence[tuple[int, int]]) -> Array:
    """Elements of every image of [B, n]. GraphError for one outside of it."""
    reach = [(extent - 1) * stride for extent, stride in axes]
    first = offset + sum(min(0, one) for one in reach)
    last = offset + sum(max(0, one) for one in reach)
    if first < 0 or last >= flat.shape[1]:
        raise GraphError(f"elements {first} to {last} of {flat.shape[1]} are moved")
    size = flat.itemsize
    strides = (flat.strides[0], *(stride * size for _, stride in axes))
    extents = (len(flat), *(extent for extent, _ in axes))
    return as_strided(flat[:, offset:], extents, strides)


def dense_strides(shape: Shape) -> tuple[int, ...]:
    """Elements from one index to the next along every axis of a tensor."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
