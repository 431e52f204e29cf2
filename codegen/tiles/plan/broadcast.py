"""Sums, differences and products of a feature map and one number a channel: tiles of both."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.sizes import Sizes, even, largest, sizes
from tvm_npu.sim.tiles.isa import LARGEST_EXTENT
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class BroadcastShape:
    """A feature map of ``positions`` elements in each of ``channels``; the numbers of the channels
    become as large a tile on chip, as accumulators first."""

    channels: int
    positions: int
    element_bytes: int
    accumulator_bytes: int


@dataclass(frozen=True)
class BroadcastTiles:
    """``buffers`` as in a LoopPlan."""

    tile_channels: int
    tile_positions: int
    buffers: int


@dataclass(frozen=True)
class TileBytes:
    """Of a tile: the feature map's and, behind it in the input memory, a row of ones; the numbers
    of the channels; the sums."""

    tensor: int
    ones: int
    numbers: int
    sums: int


def tile_bytes(shape: BroadcastShape, channels: int, positions: int) -> TileBytes:
    size, elements = shape.element_bytes, channels * positions
    return TileBytes(
        elements * size, positions * size, channels * size, elements * shape.accumulator_bytes
    )


def broadcast_tiles(shape: BroadcastShape, machine: TileMachine) -> BroadcastTiles | Infeasible:
    """All at once where that fits; else two buffers (one, if two do not fit) with as many positions
    of one channel as fit, then as many channels, in even parts."""
    if _fit(shape, shape.channels, shape.positions, sizes(machine, 1)):
        return BroadcastTiles(shape.channels, shape.positions, 1)
    for buffers in (2, 1):
        tiles = _with_buffers(shape, sizes(machine, buffers), buffers)
        if tiles is not None:
            return tiles
    return Infeasible(
        "memory", shape.accumulator_bytes, sizes(machine, 1).result, "one element of each operand",
        "use a machine with a larger memory",
    )  # fmt: skip


def _with_buffers(shape: BroadcastShape, room: Sizes, buffers: int) -> BroadcastTiles | None:
    most = largest(shape.positions, lambda n: _fit(shape, 1, n, room))
    if most == 0:
        return None
    positions, channels = even(shape.positions, most), 1
    if most == shape.positions:
        channels = largest(shape.channels, lambda n: _fit(shape, n, most, room))
    return BroadcastTiles(even(shape.channels, channels), positions, buffers)


def _fit(shape: BroadcastShape, channels: int, positions: int, room: Sizes) -> bool:
    if max(channels, positions) > LARGEST_EXTENT:
        return False
    tile = tile_bytes(shape, channels, positions)
    return room.fits(tile.tensor + tile.ones, tile.numbers, tile.sums)
