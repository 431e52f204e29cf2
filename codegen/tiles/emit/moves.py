"""Layers that move elements as commands: loads and stores, nothing in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from tvm_npu.codegen.ops.move import Axis, Piece
from tvm_npu.codegen.tiles.emit.boxes import parts
from tvm_npu.codegen.tiles.emit.commands import Runs, Transfer
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.plan.moves import MoveShape, MoveTiles, PieceTiles, runs_of_tile
from tvm_npu.codegen.tiles.plan.sizes import sizes
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine

Indices = tuple[tuple[int, int], ...]
"""(first, how many) of each axis."""


def move_steps(
    shape: MoveShape, tiles: MoveTiles, machine: TileMachine, operands: Operands
) -> Iterator[StepCommands]:
    """Piece by piece, tile by tile."""
    room, size = sizes(machine, tiles.buffers), shape.element_bytes
    turn = 0
    for piece, plan in zip(shape.pieces, tiles.pieces, strict=True):
        source, most = operands.inputs[piece.source], prod(plan.tile) * size
        for loaded, stored in _tiles(piece, plan):
            at, _, _ = room.offsets(turn % tiles.buffers, most, 0)
            loads = _transfers(True, at, source, piece.source_offset, loaded, size)
            stores = tuple(
                one
                for target in stored
                for one in _transfers(
                    False, at, operands.output, piece.target_offset, target, size
                )
            )
            yield StepCommands(tuple(loads), (), stores)
            turn += 1


Side = tuple[int, list[tuple[int, int]]]
"""A tile in source or target: its first element, and its axes as `runs_of_tile` takes them."""


def _tiles(piece: Piece, plan: PieceTiles) -> Iterator[tuple[Side, list[Side]]]:
    """Of every tile: where it comes from, and all the places where it goes."""
    axes = [piece.axes[k] for k in plan.order]
    others = [axis for k, axis in enumerate(piece.axes) if k not in plan.order]
    backwards = [axis for axis in others if axis.source]
    again = [axis for axis in others if not axis.source]
    cuts = (list(parts((0, axis.extent), n)) for axis, n in zip(axes, plan.tile, strict=True))
    for walked, *indices in product(list(_walks(backwards)), *cuts):
        counts = [count for _, count in indices]
        begins = [*walked, *(begin for begin, _ in indices)]
        source, target = _first([*backwards, *axes], begins)
        loaded = list(zip(counts, (axis.source for axis in axes), strict=True))
        stored = list(zip(counts, (axis.target for axis in axes), strict=True))
        places = (target + _first(again, repeated)[1] for repeated in _walks(again))
        yield (source, loaded), [(place, stored) for place in places]


def _walks(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    return product(*(range(axis.extent) for axis in axes))


def _first(axes: Sequence[Axis], indices: Sequence[int]) -> tuple[int, int]:
    """Elements further in source and target."""
    pairs = list(zip(axes, indices, strict=True))
    return sum(k * axis.source for axis, k in pairs), sum(k * axis.target for axis, k in pairs)


def _transfers(
    to_chip: bool, at: int, address: int, offset: int, tile: Side, size: int
) -> Iterator[Transfer]:
    """Of a tile at byte ``at`` of the input memory and, outside, element ``offset`` and its own
    first one of the tensor at ``address``."""
    first, axes = tile
    for one in runs_of_tile(axes):
        begin = address + (offset + first + one.outside) * size
        runs = Runs(
            TileMemory.ACTIVATIONS, begin, one.run * size, one.inner, one.stride_inner * size,
            one.outer, one.stride_outer * size,
        )  # fmt: skip
        stream = Stream.IN if to_chip else Stream.OUT
        yield Transfer(to_chip, TileMemory.INPUT, at + one.on_chip * size, runs, stream)
