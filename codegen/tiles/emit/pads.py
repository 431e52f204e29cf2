"""Padding, cropping and strided slices: a filled tile goes to the border, the rest is copied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tvm_npu.codegen.ops import FixedPad
from tvm_npu.codegen.tiles.emit.boxes import Placed, parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import out_registers
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.emit.pools import window_registers, window_steps
from tvm_npu.codegen.tiles.plan.pads import PadShape, PadTiles, border_boxes
from tvm_npu.codegen.tiles.plan.sizes import Box, even
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TilePool, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine


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
