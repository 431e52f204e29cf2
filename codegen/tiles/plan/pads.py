"""Padding, cropping and strided slices: the box that is copied, and what lies around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.ops import FixedPad
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.pools import WindowShape, WindowTiles, window_tiles
from tvm_npu.codegen.tiles.plan.sizes import Box, largest, sizes
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class PadShape:
    """``source`` and ``result`` are channels, rows and columns of input and output; ``inner``: the
    box of the result that comes from the input (a count may be 0); ``from_corner`` the channel, row
    and column of the input that its first element is."""

    source: tuple[int, int, int]
    result: tuple[int, int, int]
    inner: Box
    from_corner: tuple[int, int, int]
    stride: tuple[int, int]
    element_bytes: int

    @property
    def window(self) -> WindowShape:
        """The copy as a layer of 1x1 windows over the box of the input that it needs."""
        channels, rows, columns = (count for _, count in self.inner)
        needed = ((rows - 1) * self.stride[0] + 1, (columns - 1) * self.stride[1] + 1)
        return WindowShape(
            channels, rows, columns, *needed, (1, 1), self.stride, (0, 0), self.element_bytes
        )

    @property
    def is_empty(self) -> bool:
        return min(count for _, count in self.inner) == 0


@dataclass(frozen=True)
class PadTiles:
    """``copy`` cuts the inner box; ``fill_elements`` are those of the filled tile (0: there is no
    border)."""

    copy: WindowTiles | None
    fill_elements: int
    buffers: int


def pad_shape(
    layer: FixedPad,
    in_shape: tuple[int, int, int],
    out_shape: tuple[int, int, int],
    element_bytes: int,
) -> PadShape:
    strides = (1, *layer.stride)
    inner, corner = [], []
    for size, count, before, step in zip(in_shape, out_shape, layer.before, strides, strict=True):
        begin = min(-(-max(before, 0) // step), count)
        end = min(count, (size - 1 + before) // step + 1)
        inner.append((begin, max(end - begin, 0)))
        corner.append(begin * step - before)
    return PadShape(
        in_shape, out_shape, (inner[0], inner[1], inner[2]), (corner[0], corner[1], corner[2]),
        layer.stride, element_bytes,
    )  # fmt: skip


def pad_tiles(shape: PadShape, machine: TileMachine) -> PadTiles | Infeasible:
    copy = None
    if not shape.is_empty:
        found = window_tiles(shape.window, machine)
        if isinstance(found, Infeasible):
            return found
        copy = found
    border = max((count_of(box) for box in border_boxes(shape)), default=0)
    room = sizes(machine, 1)
    most = largest(border, lambda n: room.fits(0, 0, n * shape.element_bytes))
    return PadTiles(copy, most, 1 if copy is None else copy.buffers)


def border_boxes(shape: PadShape) -> Iterator[Box]:
    """The result without its inner box: in front of it and behind it along channels, then along
    rows, then along columns."""
    whole: Box = ((0, shape.result[0]), (0, shape.result[1]), (0, shape.result[2]))
    if shape.is_empty:
        yield whole
        return
    box = list(whole)
    for axis in range(3):
        begin, count = shape.inner[axis]
        end = begin + count
        for border in ((0, begin), (end, shape.result[axis] - end)):
            if border[1]:
                made = [*box[:axis], border, *box[axis + 1 :]]
                yield made[0], made[1], made[2]
        box[axis] = shape.inner[axis]


def count_of(box: Box) -> int:
    return box[0][1] * box[1][1] * box[2][1]
