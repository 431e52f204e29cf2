"""Sums, differences and products with one number a channel as commands.

A convolution of a row of ones by the numbers puts each of them at all positions of its channel. The
accumulators that it leaves are exact: a sum takes the feature map as a residual tile, a difference
likewise with ones that are -1. A product needs them as elements, which they are without a shift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from tvm_npu.codegen.ops import FixedBroadcast
from tvm_npu.codegen.tiles.emit.boxes import Placed, parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import Operands, out_registers, requantize_registers
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.plan.broadcast import BroadcastShape, BroadcastTiles, tile_bytes
from tvm_npu.codegen.tiles.plan.sizes import sizes
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import Accumulate, Finish, TileMemory, TileRegister, TileVector
from tvm_npu.sim.tiles.machine import TileMachine

TO_INPUT = TileMemory.INPUT | TileMemory.WEIGHT << 3 | TileMemory.INPUT << 6
"""The OPERANDS register of a tfill in the input memory."""
BY_OUTPUT = TileMemory.INPUT | TileMemory.OUTPUT << 3 | TileMemory.OUTPUT << 6
"""Of a product with what lies in the output memory."""
ONE_BY_ONE = {
    TileRegister.IN_CHANNELS: 1, TileRegister.IN_ROWS: 1, TileRegister.GROUPS: 1,
    TileRegister.KERNEL_ROWS: 1, TileRegister.KERNEL_COLUMNS: 1,
    TileRegister.STRIDE_ROWS: 1, TileRegister.STRIDE_COLUMNS: 1,
    TileRegister.DILATION_ROWS: 1, TileRegister.DILATION_COLUMNS: 1,
    TileRegister.PAD_TOP: 0, TileRegister.PAD_LEFT: 0,
}  # fmt: skip
"""Registers of a convolution of one channel and one row by filters of one weight."""


def broadcast_steps(
    layer: FixedBroadcast,
    shape: BroadcastShape,
    tiles: BroadcastTiles,
    machine: TileMachine,
    numbers: tuple[int, int],
    operands: Operands,
) -> Iterator[StepCommands]:
    """``numbers`` are the smallest and largest of an element."""
    size, room = shape.element_bytes, sizes(machine, tiles.buffers)
    most = tile_bytes(shape, tiles.tile_channels, tiles.tile_positions)
    source, target = (
        Placed(TileMemory.ACTIVATIONS, at, (shape.channels, 1, shape.positions), size)
        for at in (operands.inputs[0], operands.output)
    )
    places = product(
        parts((0, shape.channels), tiles.tile_channels),
        parts((0, shape.positions), tiles.tile_positions),
    )
    for turn, (channels, positions) in enumerate(places):
        in_at, number_at, out_at = room.offsets(
            turn % tiles.buffers, most.tensor + most.ones, most.numbers
        )
        box = (channels, (0, 1), positions)
        row = Runs(
            TileMemory.ACTIVATIONS, operands.inputs[1] + channels[0] * size, channels[1] * size
        )
        loads = (
            Transfer(True, TileMemory.INPUT, in_at, source.box(*box), Stream.IN),
            Transfer(True, TileMemory.WEIGHT, number_at, row, Stream.IN),
        )
        held = tile_bytes(shape, channels[1], positions[1])
        tile = _Tile(
            (channels[1], 1, positions[1]),
            ChipRange(TileMemory.INPUT, in_at, held.tensor),
            ChipRange(TileMemory.INPUT, in_at + most.tensor, held.ones),
            ChipRange(TileMemory.WEIGHT, number_at, held.numbers),
            ChipRange(TileMemory.OUTPUT, out_at, held.sums),
        )
        store = Transfer(False, TileMemory.OUTPUT, out_at, target.box(*box), Stream.OUT)
        yield StepCommands(loads, _work(layer, tile, numbers), (store,))


@dataclass(frozen=True)
class _Tile:
    """Its extents, and where its parts lie on chip; the sums become the ``result`` in place."""

    extents: tuple[int, int, int]
    tensor: ChipRange
    ones: ChipRange
    numbers: ChipRange
    sums: ChipRange

    @property
    def elements(self) -> int:
        return prod(self.extents)

    @property
    def row(self) -> int:
        return self.extents[2]

    @property
    def out(self) -> dict[TileRegister, int]:
        return out_registers(self.sums.begin, *self.extents)

    @property
    def result(self) -> ChipRange:
        return ChipRange(TileMemory.OUTPUT, self.sums.begin, self.tensor.size_bytes)


def _work(layer: FixedBroadcast, tile: _Tile, numbers: tuple[int, int]) -> tuple[Work, ...]:
    ones = {
        TileRegister.OPERANDS: int(TO_INPUT),
        **out_registers(tile.ones.begin, 1, 1, tile.row),
        TileRegister.FILL: -1 if layer.op == "sub" else 1,
    }
    spread = {
        TileRegister.IN_OFFSET: tile.ones.begin,
        TileRegister.W_OFFSET: tile.numbers.begin,
        **tile.out, **ONE_BY_ONE, TileRegister.IN_COLUMNS: tile.row,
    }  # fmt: skip
    work = (
        Work("tfill", None, ones, (), tile.ones, tile.row),
        Work("tconv", Accumulate.ZERO, spread, (tile.ones, tile.numbers), tile.sums, tile.elements),
    )
    in_tensor = {TileRegister.IN_OFFSET: tile.tensor.begin}
    no_shifts = {TileRegister.SHIFT_A: 0, TileRegister.SHIFT_B: 0}
    requantized = {**tile.out, **requantize_registers(layer), **no_shifts}
    if layer.op != "mul":
        registers = {**in_tensor, **requantized}
        return (
            *work,
            Work("tfinish", Finish.RESIDUAL, registers, (tile.tensor,), tile.sums, tile.elements),
        )
    elements = {
        **tile.out, **no_shifts,
        TileRegister.SHIFT: 0, TileRegister.LOW: numbers[0], TileRegister.HIGH: numbers[1],
    }  # fmt: skip
    registers = {
        TileRegister.OPERANDS: int(BY_OUTPUT),
        **in_tensor, TileRegister.W_OFFSET: tile.result.begin, **requantized,
    }  # fmt: skip
    return (
        *work,
        Work("tfinish", Finish.PLAIN, elements, (), tile.sums, tile.elements),
        Work("tvec", TileVector.MULTIPLY, registers, (tile.tensor,), tile.result, tile.elements),
    )
