"""Padding, cropping and strided slices: a filled tile goes to the border, the rest is copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tvm_npu.codegen.ops import FixedPad
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.emit.boxes import Box, Placed, even, largest, parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import out_registers, sizes
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.emit.pools import (
    WindowShape,
    WindowTiles,
    window_registers,
    window_steps,
    window_tiles,
)
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TilePool, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class PadShape:
    """``inner``: the box of the result that comes from the input (a count may be 0);
    ``from_corner`` the channel, row and column of the input that its first element is."""

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
        out_shape, (inner[0], inner[1], inner[2]), (corner[0], corner[1], corner[2]),
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


def copy_steps(
    shape: PadShape,
    tiles: PadTiles,
    machine: TileMachine,
    source: Placed,
    target: Placed,
    limits: tuple[int, int],
) -> Iterator[StepCommands]:
    """The inner box: what moves with its neighbours goes through the input memory alone, what is
    strided through 1x1 windows. ``limits`` are the smallest and largest number of an element."""
    if tiles.copy is None:
        return
    corner = (shape.inner[0][0], shape.inner[1][0], shape.inner[2][0])
    registers = window_registers(shape.window, *limits)
    steps = window_steps(
        shape.window, tiles.copy, machine, source, target, registers, TilePool.MAX, corner,
        shape.from_corner,
    )  # fmt: skip
    if shape.stride != (1, 1):
        yield from steps
        return
    for step in steps:
        (load,), (store,) = step.loads, step.stores
        assert isinstance(load, Transfer) and isinstance(store, Transfer)
        moved = Transfer(False, load.memory, load.chip_offset, store.runs, Stream.OUT)
        yield StepCommands((load,), (), (moved,))


def border_steps(
    layer: FixedPad, shape: PadShape, tiles: PadTiles, target: Placed
) -> tuple[StepCommands, ...]:
    """The border, stored from one filled tile; to be done before anything else is on chip."""
    most, size = tiles.fill_elements, shape.element_bytes
    if most == 0:
        return ()
    filled = ChipRange(TileMemory.OUTPUT, 0, most * size)
    registers = {**out_registers(0, most, 1, 1), TileRegister.FILL: layer.value}
    stores = tuple(
        Transfer(False, TileMemory.OUTPUT, 0, target.box(*box), Stream.OUT)
        for whole in border_boxes(shape)
        for box in _pieces(whole, most)
    )
    return (StepCommands((), (Work("tfill", None, registers, (), filled, most),), stores),)


def _pieces(box: Box, most: int) -> Iterator[Box]:
    """Parts of a box of at most ``most`` elements: whole channels, else whole rows, else runs."""
    channels, rows, columns = box
    plane = rows[1] * columns[1]
    sizes_of = (
        max(1, min(channels[1], most // plane)),
        rows[1] if plane <= most else max(1, min(rows[1], most // columns[1])),
        columns[1] if columns[1] <= most else most,
    )
    even_sizes = (even(one[1], size) for one, size in zip(box, sizes_of, strict=True))
    yield from product(*(parts(one, size) for one, size in zip(box, even_sizes, strict=True)))
