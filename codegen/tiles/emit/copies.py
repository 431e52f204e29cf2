"""What moves on chip: the engine copies tiles by tpools over windows of one element, which read
everything before they write."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import Slide, Tile
from tvm_npu.codegen.tiles.emit.boxes import Placed
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Command, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import out_registers
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TilePool, TileRegister

_LARGEST_ELEMENT = (1 << 15) - 1
_ONE_BY_ONE = {
    TileRegister.KERNEL_ROWS: 1, TileRegister.KERNEL_COLUMNS: 1,
    TileRegister.STRIDE_ROWS: 1, TileRegister.STRIDE_COLUMNS: 1,
    TileRegister.PAD_TOP: 0, TileRegister.PAD_LEFT: 0,
    TileRegister.LOW: -_LARGEST_ELEMENT - 1, TileRegister.HIGH: _LARGEST_ELEMENT,
}  # fmt: skip


def copied(
    source: tuple[TileMemory, int],
    target: tuple[TileMemory, int],
    shape: tuple[int, int, int],
    element_bytes: int,
) -> Work:
    """Elements [channels][rows][columns] from one (memory, offset) to another, packed in both."""
    channels, rows, columns = shape
    count = channels * rows * columns
    registers = {
        TileRegister.OPERANDS: int(source[0] | TileMemory.WEIGHT << 3 | target[0] << 6),
        TileRegister.IN_OFFSET: source[1],
        **out_registers(target[1], channels, rows, columns),
        TileRegister.IN_CHANNELS: channels,
        TileRegister.IN_ROWS: rows,
        TileRegister.IN_COLUMNS: columns,
        **_ONE_BY_ONE,
    }
    read = ChipRange(*source, count * element_bytes)
    written = ChipRange(*target, count * element_bytes)
    return Work("tpool", TilePool.MAX, registers, (read,), written, count)


def slid(problem: ConvProblem, address: int, action: Slide) -> Iterator[Command]:
    """Copies and transfers, a channel at a time, as each has rows of both; the IFM is at
    ``address``. Where the tile grows, the last channel moves first: it leaves the rows of those in
    front of it as they are."""
    tile, before = action.held.tile, action.before.tile
    channels, size = range(tile.first[1]), problem.element_bytes
    in_order = reversed(channels) if tile.rows[1] > before.rows[1] else channels
    for channel in in_order:
        source = action.before.offset + _row_bytes(problem, before, channel, tile.rows[0])
        target = action.held.offset + _row_bytes(problem, tile, channel, tile.rows[0])
        yield copied(
            (TileMemory.INPUT, source), (TileMemory.INPUT, target),
            (1, action.kept, tile.columns[1]), size,
        )  # fmt: skip
    row = tile.rows[0] + action.kept
    coming = (row, sum(tile.rows) - row)
    if not coming[1]:
        return
    shape = (problem.channels, problem.in_rows, problem.in_columns)
    source_map = Placed(TileMemory.ACTIVATIONS, address, shape, size)
    for channel in channels:
        runs = source_map.box((tile.first[0] + channel, 1), coming, tile.columns)
        at = action.held.offset + _row_bytes(problem, tile, channel, row)
        yield Transfer(True, TileMemory.INPUT, at, runs, Stream.IN)


def _row_bytes(problem: ConvProblem, tile: Tile, channel: int, row: int) -> int:
    """From the begin of an INPUT tile to a row of the IFM in its ``channel``-th channel."""
    rows_before = channel * tile.rows[1] + row - tile.rows[0]
    return rows_before * tile.columns[1] * problem.element_bytes
