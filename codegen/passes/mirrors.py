"""Reflection padding as moving elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.ops import FixedMove, FixedReflectPad
from tvm_npu.codegen.ops.move import Axis, Piece


def with_moved_mirrors(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` with a `FixedMove` in place of every reflection padding."""
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if isinstance(layer, FixedReflectPad):
            source, target = fixed.shapes[layer.inputs[0]], fixed.shapes[layer.output]
            layer = FixedMove(
                layer.name, layer.inputs, layer.outputs,
                tuple(one.normalized() for one in _pieces(layer, chw(source), target)),
                "reflect_pad", (source, target), source=layer.source,
            )  # fmt: skip
        layers.append(layer)
    return replace(fixed, layers=tuple(layers))


def _pieces(layer: FixedReflectPad, source: Shape, target: Shape) -> Iterator[Piece]:
    """The image, and strips and corners around it that mirror it."""
    channels, rows, columns = source
    top, left, bottom, right = layer.padding
    parts = product(_parts(rows, top, bottom), _parts(columns, left, right))
    for (row, at_row, row_count, row_step), (column, at_column, count, step) in parts:
        axes = (
            Axis(channels, rows * columns, target[1] * target[2]),
            Axis(row_count, row_step * columns, target[2]),
            Axis(count, step, 1),
        )
        yield Piece(axes, row * columns + column, at_row * target[2] + at_column)


def _parts(extent: int, before: int, after: int) -> Iterator[tuple[int, int, int, int]]:
    """(first row of the source, first row of the target, rows, step in the source)."""
    if before:
        yield before, 0, before, -1
    yield 0, before, extent, 1
    if after:
        yield extent - 2, before + extent, after, -1
