"""Transposed convolutions as convolutions, phase by phase, and their results put together.

Output rows whose distance is the stride (a *phase*) meet the same rows of the kernel: each phase of
rows and columns is a convolution with stride 1 by a part of the kernel, and the input is never
expanded. Phases that see the same rows and columns of the input are filters of one convolution.
All phases get the same extents, lie one after the other, and one `FixedMove` takes from each what
the output has of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

import numpy as np

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import Padding, chw
from tvm_npu.codegen.ops import FixedConcat, FixedConv, FixedMove, FixedTransposedConv
from tvm_npu.codegen.ops.move import Axis, Piece


@dataclass(frozen=True)
class Phase:
    """Rows (or columns) ``number``, ``number`` + stride, ... of the output: ``taps`` of the kernel,
    in the order in which a convolution reads them, the first of them at input row ``first`` for the
    phase's first row. A phase without taps is the bias alone."""

    number: int
    taps: tuple[int, ...]
    first: int

    @property
    def window(self) -> tuple[int, int]:
        """Phases of equal windows read the same rows of the input."""
        return self.first, max(1, len(self.taps))


@dataclass(frozen=True)
class PhasedAxis:
    """Rows (or columns) of a transposed convolution: runs of phases of equal windows, all equally
    long, and the ``extent`` that the longest phase has."""

    runs: tuple[tuple[Phase, ...], ...]
    stride: int
    extent: int
    out: int

    @property
    def members(self) -> int:
        """Phases of a run."""
        return len(self.runs[0])

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """(first index in a phase, indices, runs that have them): all but the last index, which
        not every phase may have, are in all of them."""
        whole, rest = divmod(self.out, self.stride)
        if whole:
            yield 0, whole, len(self.runs)
        if rest:
            yield whole, 1, rest


def phased_axis(kernel: int, stride: int, before: int, out: int) -> PhasedAxis:
    """``before`` rows of padding are taken away in front of ``out`` ones."""
    found = []
    for number in range(min(stride, out)):
        further, rest = divmod(number + before, stride)
        taps = tuple(reversed(range(rest, kernel, stride)))
        found.append(Phase(number, taps, further - max(0, len(taps) - 1)))
    runs = tuple(tuple(run) for _, run in groupby(found, key=lambda one: one.window))
    if out % stride or len({len(run) for run in runs}) > 1:
        runs = tuple((one,) for one in found)
    return PhasedAxis(runs, stride, -(-out // stride), out)


def with_phases(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` without transposed convolutions; its tensors keep their names and values."""
    if not any(isinstance(layer, FixedTransposedConv) for layer in fixed.layers):
        return fixed
    layers: list[FixedLayer] = []
    shapes, scales = dict(fixed.shapes), dict(fixed.scales)
    for layer in fixed.layers:
        if not isinstance(layer, FixedTransposedConv):
            layers.append(layer)
            continue
        for made, shape in _expanded(layer, chw(shapes[layer.inputs[0]]), shapes[layer.output]):
            layers.append(made)
            shapes[made.output], scales[made.output] = shape, scales[layer.output]
    return replace(fixed, layers=tuple(layers), shapes=shapes, scales=scales)


def _expanded(
    layer: FixedTransposedConv, source: tuple[int, int, int], target: Shape
) -> Iterator[tuple[FixedLayer, Shape]]:
    """Layers that compute ``layer``, each with the shape of its output."""
    down, across = (
        phased_axis(layer.kernel[axis], layer.stride[axis], layer.padding[axis], target[axis + 1])
        for axis in range(2)
    )
    extent = (down.extent, across.extent)
    shape = (target[0] * down.members * across.members, *extent)
    names = []
    for number, (rows, columns) in enumerate(product(down.runs, across.runs)):
        names.append(f"{layer.output}@phase{number}")
        name = f"{layer.name}@phase{number}"
        yield _convolution(layer, name, names[-1], source, extent, rows, columns), shape
    gathered = names[0]
    whole = (shape[0] * len(names), *extent)
    if len(names) > 1:
        gathered = f"{layer.output}@phases"
        yield FixedConcat(f"{layer.name}@phases", tuple(names), (gathered,)), whole
    pieces = _pieces(target, down, across, layer.groups)
    moved = FixedMove(
        f"{layer.name}@interleave", (gathered,), layer.outputs,
        tuple(piece.normalized() for piece in pieces), "interleave", (whole, target),
        source=layer.source,
    )  # fmt: skip
    yield moved, target


def _convolution(
    layer: FixedTransposedConv,
    name: str,
    output: str,
    source: tuple[int, int, int],
    extent: tuple[int, int],
    rows: Sequence[Phase],
    columns: Sequence[Phase],
) -> FixedConv:
    """Phases of equal windows: in every group the filters of one phase after the other."""
    filters, depth = layer.weight.shape[:2]
    per_group, members = filters // layer.groups, len(rows) * len(columns)
    (top, down), (left, across) = rows[0].window, columns[0].window
    weight = np.zeros((layer.groups, members, per_group, depth, down, across), layer.weight.dtype)
    parted = layer.weight.reshape(layer.groups, per_group, depth, *layer.kernel)
    for number, (row, column) in enumerate(product(rows, columns)):
        if row.taps and column.taps:
            weight[:, number] = parted[..., row.taps, :][..., column.taps]
    bias = np.repeat(layer.bias.reshape(layer.groups, 1, per_group), members, axis=1)
    bottom = extent[0] - 1 + down + top - source[1]
    right = extent[1] - 1 + across + left - source[2]
    padding: Padding = (-top, -left, bottom, right)
    return FixedConv(
        name, layer.inputs, (output,), weight.reshape(-1, depth, down, across), bias.reshape(-1),
        padding=padding, groups=layer.groups, weight_q_point=layer.weight_q_point,
        source=layer.source, shift=layer.shift, low=layer.low, high=layer.high, table=layer.table,
    )  # fmt: skip


def _pieces(target: Shape, down: PhasedAxis, across: PhasedAxis, groups: int) -> Iterator[Piece]:
    """From [run of rows, run of columns, group, phase in the runs, filter, row, column]."""
    filters, rows, columns = target
    plane, image = down.extent * across.extent, rows * columns
    per_group, members = filters // groups, down.members * across.members
    run = members * filters * plane
    for (row, row_count, row_runs), (column, column_count, column_runs) in product(
        down.parts(), across.parts()
    ):
        axes = (
            Axis(groups, members * per_group * plane, per_group * image),
            Axis(per_group, plane, image),
            Axis(row_count, across.extent, down.stride * columns),
            Axis(row_runs, len(across.runs) * run, down.members * columns),
            Axis(down.members, across.members * per_group * plane, columns),
            Axis(column_count, 1, across.stride),
            Axis(column_runs, run, across.members),
            Axis(across.members, per_group * plane, 1),
        )
        begin = row * down.stride * columns + column * across.stride
        yield Piece(axes, row * across.extent + column, begin)
