"""Maxima of two tensors, or of the halves of one, as commands: runs of both are two rows of a
window."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.graph import Requantized
from tvm_npu.codegen.tiles.emit.boxes import parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Transfer, Work
from tvm_npu.codegen.tiles.emit.flat import flat_run
from tvm_npu.codegen.tiles.emit.layer import out_registers
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.plan.flat import FlatShape, FlatTiles
from tvm_npu.codegen.tiles.plan.sizes import sizes
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TilePool, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine

TWO_ROWS = {
    TileRegister.IN_CHANNELS: 1, TileRegister.IN_ROWS: 2,
    TileRegister.KERNEL_ROWS: 2, TileRegister.KERNEL_COLUMNS: 1,
    TileRegister.STRIDE_ROWS: 1, TileRegister.STRIDE_COLUMNS: 1,
    TileRegister.PAD_TOP: 0, TileRegister.PAD_LEFT: 0,
}  # fmt: skip


def maximum_steps(
    layer: Requantized, shape: FlatShape, tiles: FlatTiles, machine: TileMachine,
    sources: tuple[int, int], target: int,
) -> Iterator[StepCommands]:  # fmt: skip
    """tpool over all runs of the tensors at bytes ``sources``; both share the result's scale."""
    room, size = sizes(machine, tiles.buffers), shape.element_bytes
    most = 2 * tiles.tile_elements * size
    for turn, (begin, count) in enumerate(parts((0, shape.elements), tiles.tile_elements)):
        in_at, _, out_at = room.offsets(turn % tiles.buffers, most, 0)
        run = count * size
        loads = tuple(
            Transfer(
                True, TileMemory.INPUT, in_at + row * run, flat_run(source, begin, count, size),
                Stream.IN,
            )
            for row, source in enumerate(sources)
        )
        registers = {
            TileRegister.IN_OFFSET: in_at,
            TileRegister.IN_COLUMNS: count,
            **TWO_ROWS,
            **out_registers(out_at, 1, 1, count),
            TileRegister.LOW: layer.low,
            TileRegister.HIGH: layer.high,
        }
        reads = tuple(one.on_chip for one in loads)
        result = ChipRange(TileMemory.OUTPUT, out_at, run)
        work = Work("tpool", TilePool.MAX, registers, reads, result, 2 * count)
        runs = flat_run(target, begin, count, size)
        store = Transfer(False, TileMemory.OUTPUT, out_at, runs, Stream.OUT)
        yield StepCommands(loads, (work,), (store,))
