"""Dilated convolutions that bring only what they use.

`with_live_taps` leaves out rows and columns of a kernel that lie in the padding wherever the window
is. `with_rows_together` puts rows whose distance is the dilation beside each other:

    before: x -> conv, dilation d in rows -> y
    after:  x -> one more row of zeros -> rows in d blocks -> conv, rows not dilated -> rows back

A block holds the rows y, y + d, y + 2d, ... of x that some rows of y need, with zeros in front and
behind where the padding was. Windows that reach from one block into the next give rows that nobody
takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.ops import FixedConv, FixedMove, FixedPad
from tvm_npu.codegen.ops.move import Axis, Piece


def with_live_taps(fixed: FixedGraph) -> FixedGraph:
    """The same values with smaller kernels, of dilated convolutions only."""
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if isinstance(layer, FixedConv):
            source, target = chw(fixed.shapes[layer.inputs[0]]), chw(fixed.shapes[layer.output])
            layer = _live(layer, source, target)
        layers.append(layer)
    return replace(fixed, layers=tuple(layers))


def live_taps(
    source: Sequence[int], target: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int], before: Sequence[int],
) -> tuple[range, range]:  # fmt: skip
    """Rows and columns of a kernel that `with_live_taps` keeps, of maps of ``source`` and results
    of ``target`` (rows, columns); ``before`` is the padding in front."""
    every = range(kernel[0]), range(kernel[1])
    if max(dilation) == 1:
        return every
    kept = [
        _live_along(source[axis], target[axis], every[axis], stride[axis], dilation[axis],
                    before[axis])
        for axis in range(2)
    ]  # fmt: skip
    if not all(kept):  # nothing but bias
        return every
    return kept[0], kept[1]


def _live_along(
    size: int, out: int, taps: range, stride: int, dilation: int, before: int
) -> range:
    used = [
        tap
        for tap in taps
        if any(0 <= at * stride + tap * dilation - before < size for at in range(out))
    ]
    return range(used[0], used[-1] + 1) if used else range(0)


def _live(layer: FixedConv, source: Shape, target: Shape) -> FixedConv:
    kernel, padding = layer.weight.shape[2:], list(layer.padding)
    kept = live_taps(
        source[1:], target[1:], kernel, layer.stride, layer.dilation, layer.padding[:2]
    )
    for axis, taps in enumerate(kept):
        padding[axis] -= taps.start * layer.dilation[axis]
        padding[axis + 2] -= (kernel[axis] - taps.stop) * layer.dilation[axis]
    rows, columns = (slice(taps.start, taps.stop) for taps in kept)
    weight = np.ascontiguousarray(layer.weight[:, :, rows, columns])
    if weight.shape == layer.weight.shape:
        return layer
    top, left, bottom, right = padding
    totals = [one.sum(axis=(1, 2, 3), dtype=np.int64) for one in (layer.weight, weight)]
    gone = totals[0] - totals[1]
    gone -= layer.weight_zero_point * (layer.weight[0].size - weight[0].size)
    bias = (layer.bias + layer.fill * gone).astype(np.int32)
    return replace(layer, weight=weight, bias=bias, padding=(top, left, bottom, right))


@dataclass(frozen=True)
class RowsTogether:
    """Layers in place of a dilated convolution, and the shapes of the tensors between them."""

    layers: tuple[FixedLayer, ...]
    shapes: dict[str, Shape]

    def like(self, layer: FixedConv, tensor: str) -> str:
        """The tensor of ``layer`` whose scale ``tensor`` has."""
        if tensor.endswith("@residual"):
            return layer.inputs[1]
        return layer.output if tensor.endswith("@rows") else layer.inputs[0]


def rows_together(
    layer: FixedConv, source: tuple[int, int, int], target: tuple[int, int, int]
) -> RowsTogether | None:
    """None for a convolution whose rows are not dilated, or have a stride."""
    dilation, taps = layer.dilation[0], layer.weight.shape[2]
    if dilation == 1 or taps == 1 or layer.stride[0] != 1:
        return None
    blocks = min(dilation, target[1])
    rows = -(-target[1] // dilation) + taps - 1
    padded, parted, made = (f"{layer.output}@{part}" for part in ("zero", "blocks", "rows"))
    shapes: dict[str, Shape] = {
        padded: (source[0], source[1] + 1, source[2]),
        parted: (source[0], blocks * rows, source[2]),
        made: (target[0], blocks * rows - taps + 1, target[2]),
    }
    pad = FixedPad(
        f"{layer.name}@zero", layer.inputs[:1], (padded,), (0, 0, 0), (0, 1, 0), (1, 1),
        layer.fill,
    )
    residuals: tuple[FixedMove, ...] = ()
    for residual in layer.inputs[1:]:
        moved = f"{layer.output}@residual"
        shapes[moved] = shapes[made]
        pieces = _residual_to_blocks(target, dilation, blocks, rows, shapes[made])
        whole = {**shapes, residual: target}
        residuals += (_move(layer, "residual", residual, moved, pieces, whole),)
    apart = _move(layer, "blocks", padded, parted, _to_blocks(layer, source, blocks, rows), shapes)
    conv = replace(
        layer, name=f"{layer.name}@rows", inputs=(parted, *(one.output for one in residuals)),
        outputs=(made,), dilation=(1, layer.dilation[1]),
        padding=(0, layer.padding[1], 0, layer.padding[3]),
    )  # fmt: skip
    pieces = _from_blocks(target, dilation, blocks, rows, shapes[made])
    back = _move(layer, "back", made, layer.output, pieces, {**shapes, layer.output: target})
    return RowsTogether((pad, apart, *residuals, conv, back), shapes)


def _move(
    layer: FixedConv,
    name: str,
    source: str,
    target: str,
    pieces: Iterator[Piece],
    shapes: dict[str, Shape],
) -> FixedMove:
    return FixedMove(
        f"{layer.name}@{name}", (source,), (target,),
        tuple(piece.normalized() for piece in pieces), "rows", (shapes[source], shapes[target]),
    )  # fmt: skip


def _to_blocks(
    layer: FixedConv, source: tuple[int, int, int], blocks: int, rows: int
) -> Iterator[Piece]:
    """Blocks that have zeros in the same places are moved together."""
    channels, extent, columns = source
    dilation, top = layer.dilation[0], layer.padding[0]

    def inside(block: int) -> tuple[int, int, int]:
        """(zeros in front, rows of the tensor, how many rows of its block are in front of them)."""
        further, rest = divmod(block - top, dilation)
        count = max(0, -(-(extent - rest) // dilation))
        begin = min(max(-further, 0), rows)
        end = min(max(count - further, begin), rows)
        return begin, end - begin, further

    plane = (extent + 1) * columns
    whole = Axis(channels, plane, blocks * rows * columns)
    for (front, count, _), members in groupby(range(blocks), key=inside):
        found = list(members)
        first, at = found[0], found[0] * rows * columns
        if count:
            row = (first - top) + front * dilation
            axes = (
                whole, Axis(len(found), columns, rows * columns),
                Axis(count, dilation * columns, columns), Axis(columns, 1, 1),
            )  # fmt: skip
            yield Piece(axes, row * columns, at + front * columns)
        for begin, zeros in ((0, front), (front + count, rows - front - count)):
            if zeros:
                axes = (
                    whole, Axis(len(found), 0, rows * columns), Axis(zeros, 0, columns),
                    Axis(columns, 1, 1),
                )  # fmt: skip
                yield Piece(axes, extent * columns, at + begin * columns)


def _residual_to_blocks(
    target: tuple[int, int, int], dilation: int, blocks: int, rows: int, made: Shape
) -> Iterator[Piece]:
    """The other way round; rows that nobody takes get the first row."""
    channels, extent, columns = target
    for piece in _from_blocks(target, dilation, blocks, rows, made):
        axes = tuple(Axis(one.extent, one.target, one.source) for one in piece.axes)
        yield Piece(axes, piece.target_offset, piece.source_offset)
    whole, rest = divmod(extent, dilation)
    last = made[1] - (blocks - 1) * rows
    for first, count, begin, end in (
        (0, min(rest, blocks - 1), whole + 1, rows),
        (rest, blocks - 1 - rest, whole, rows),
        (blocks - 1, 1, whole + (rest == blocks), last),
    ):
        if count > 0 and end > begin:
            axes = (
                Axis(channels, extent * columns, made[1] * columns),
                Axis(count, 0, rows * columns), Axis(end - begin, 0, columns),
                Axis(columns, 1, 1),
            )  # fmt: skip
            yield Piece(axes, 0, (first * rows + begin) * columns)


def _from_blocks(
    target: tuple[int, int, int], dilation: int, blocks: int, rows: int, made: Shape
) -> Iterator[Piece]:
    channels, extent, columns = target
    whole, rest = divmod(extent, dilation)
    for first, count, members in ((0, whole, blocks), (whole, 1, rest)):
        if count and members:
            axes = (
                Axis(channels, made[1] * columns, extent * columns),
                Axis(count, columns, dilation * columns),
                Axis(members, rows * columns, columns),
                Axis(columns, 1, 1),
            )
            yield Piece(axes, first * columns, first * dilation * columns)
