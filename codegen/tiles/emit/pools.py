"""Pooling: windows over tiles as commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.ops import FixedPool
from tvm_npu.codegen.tiles.emit.boxes import Placed, parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import out_registers
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.plan.pools import WindowShape, WindowTiles, window_bytes
from tvm_npu.codegen.tiles.plan.sizes import sizes
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TilePool, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine


def window_steps(
    shape: WindowShape,
    tiles: WindowTiles,
    machine: TileMachine,
    source: Placed,
    target: Placed,
    registers: dict[TileRegister, int],
    sub: TilePool,
    corner: tuple[int, int, int] = (0, 0, 0),
    from_corner: tuple[int, int, int] = (0, 0, 0),
) -> Iterator[StepCommands]:
    """tpool over all tiles of a box of ``target`` that begins at ``corner``; ``from_corner`` is
    the channel, row and column of ``source`` at which the input begins. ``registers`` are those
    that are the same for all tiles."""
    room = sizes(machine, tiles.buffers)
    most = window_bytes(shape, (tiles.tile_channels, tiles.tile_r, tiles.tile_c))
    places = product(
        parts((0, shape.channels), tiles.tile_channels),
        parts((0, shape.rows), tiles.tile_r),
        parts((0, shape.columns), tiles.tile_c),
    )
    for turn, (channels, rows, columns) in enumerate(places):
        in_at, _, out_at = room.offsets(turn % tiles.buffers, most[0], 0)
        in_rows = shape.inside(0, *rows)
        in_columns = shape.inside(1, *columns)
        runs = source.box(
            (from_corner[0] + channels[0], channels[1]),
            (from_corner[1] + in_rows[0], in_rows[1]),
            (from_corner[2] + in_columns[0], in_columns[1]),
        )
        out = (channels[1], rows[1], columns[1])
        size = shape.element_bytes
        result = ChipRange(TileMemory.OUTPUT, out_at, out[0] * out[1] * out[2] * size)
        own = {
            **registers,
            TileRegister.IN_OFFSET: in_at,
            **out_registers(out_at, *out),
            TileRegister.IN_CHANNELS: channels[1],
            TileRegister.IN_ROWS: in_rows[1],
            TileRegister.IN_COLUMNS: in_columns[1],
            TileRegister.PAD_TOP: in_rows[2],
            TileRegister.PAD_LEFT: in_columns[2],
        }
        if sub == TilePool.AVERAGE:
            own[TileRegister.ORIGIN_ROW] = in_rows[0]
            own[TileRegister.ORIGIN_COLUMN] = in_columns[0]
        window = shape.kernel[0] * shape.kernel[1]
        operations = out[0] * out[1] * out[2] * window
        box = target.box(
            (corner[0] + channels[0], channels[1]),
            (corner[1] + rows[0], rows[1]),
            (corner[2] + columns[0], columns[1]),
        )
        store = Transfer(False, TileMemory.OUTPUT, out_at, box, Stream.OUT)
        if runs.size_bytes == 0:  # an average over padding that counts: zero, clipped
            fill = min(max(0, registers[TileRegister.LOW]), registers[TileRegister.HIGH])
            own = {**out_registers(out_at, *out), TileRegister.FILL: fill}
            work = Work("tfill", None, own, (), result, operations // window)
            yield StepCommands((), (work,), (store,))
            continue
        reads = (ChipRange(TileMemory.INPUT, in_at, runs.size_bytes),)
        yield StepCommands(
            (Transfer(True, TileMemory.INPUT, in_at, runs, Stream.IN),),
            (Work("tpool", sub, own, reads, result, operations),),
            (store,),
        )


def window_registers(shape: WindowShape, low: int, high: int) -> dict[TileRegister, int]:
    return {
        TileRegister.KERNEL_ROWS: shape.kernel[0],
        TileRegister.KERNEL_COLUMNS: shape.kernel[1],
        TileRegister.STRIDE_ROWS: shape.stride[0],
        TileRegister.STRIDE_COLUMNS: shape.stride[1],
        TileRegister.LOW: low,
        TileRegister.HIGH: high,
    }


def pool_steps(
    layer: FixedPool,
    shape: WindowShape,
    tiles: WindowTiles,
    machine: TileMachine,
    source: Placed,
    target: Placed,
) -> Iterator[StepCommands]:
    """A pooling layer. Raises EmitError for one that shifts, which tpool does not."""
    if layer.shift != 0:
        raise EmitError(f"layer {layer.name!r}: a pool with shift {layer.shift}; tpool has 0")
    registers = window_registers(shape, layer.low, layer.high)
    sub = TilePool.MAX
    if layer.kind == "avg":
        sub = TilePool.AVERAGE
        widened = layer.counted_padding if layer.count_include_pad else (0, 0, 0, 0)
        registers |= {
            TileRegister.COUNT_ROW_BEGIN: -widened[0],
            TileRegister.COUNT_ROW_END: shape.in_rows + widened[2],
            TileRegister.COUNT_COLUMN_BEGIN: -widened[1],
            TileRegister.COUNT_COLUMN_END: shape.in_columns + widened[3],
        }
    return window_steps(shape, tiles, machine, source, target, registers, sub)
