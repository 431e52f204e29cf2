"""Moved elements: tiles of a piece that are loaded from one place and stored to another.

Only transfers work: what they bring lies packed on chip, in the order of the loops that load it,
and goes in the same order. Of the two orders that make one of the sides contiguous a plan has the
one that takes less time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tvm_npu.codegen.ops import FixedMove, Piece
from tvm_npu.codegen.ops.move import joined
from tvm_npu.codegen.plan.loops.machine import TransferCost
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.loop_machine import transfer_cost
from tvm_npu.codegen.tiles.plan.sizes import even, sizes
from tvm_npu.sim.parts.pl330.isa import LARGEST_LOOP
from tvm_npu.sim.tiles.machine import TileMachine

MOST_ELEMENTS = 1 << 15
"""Of a tile, so that a row of runs has at most `MOST_LOOPS` of these loops."""
MOST_LOOPS = 128
"""Of a transfer: a DMA controller's program has one for each 256 runs of a row of runs, and has
room for so many."""


@dataclass(frozen=True)
class MoveShape:
    """``pieces``, normalized, between tensors of ``element_bytes`` each element."""

    pieces: tuple[Piece, ...]
    element_bytes: int


@dataclass(frozen=True)
class PieceTiles:
    """Tiles of a piece: on chip axis ``order[0]`` is the outermost, and a tile has ``tile[k]``
    indices of axis ``order[k]``. Axes that are not in ``order`` are walked index by index: those
    that go backwards in the source, and those that repeat it, for which a tile is stored again."""

    order: tuple[int, ...]
    tile: tuple[int, ...]


@dataclass(frozen=True)
class MoveTiles:
    """``buffers`` as in a LoopPlan."""

    pieces: tuple[PieceTiles, ...]
    buffers: int


@dataclass(frozen=True)
class RunsOfTile:
    """One transfer of a tile: ``outer`` rows of ``inner`` runs of ``run`` elements, at elements
    ``outside`` and ``on_chip`` from those with which the tile begins."""

    outside: int
    on_chip: int
    run: int
    inner: int
    stride_inner: int
    outer: int
    stride_outer: int


def runs_of_tile(axes: Sequence[tuple[int, int]]) -> Iterator[RunsOfTile]:
    """The transfers of a tile whose ``axes`` (indices, elements from one to the next outside of the
    chip) lie on chip in this order. Runs of a transfer do not overlap and go forwards."""
    merged = joined(axes)
    run = merged.pop()[0] if merged and merged[-1][1] == 1 else 1
    inner, stride_inner, outer, stride_outer = 1, 0, 1, 0
    if merged and merged[-1][1] >= run:
        inner, stride_inner = merged.pop()
        if merged and merged[-1][1] >= inner * stride_inner:
            outer, stride_outer = merged.pop()
    most = max(1, MOST_LOOPS // -(-inner // LARGEST_LOOP))
    on_chip = 0
    for walked in product(*(range(extent) for extent, _ in merged)):
        outside = sum(k * stride for k, (_, stride) in zip(walked, merged, strict=True))
        for begin in range(0, outer, most):
            rows = min(most, outer - begin)
            yield RunsOfTile(
                outside + begin * stride_outer, on_chip, run, inner, stride_inner, rows,
                stride_outer,
            )  # fmt: skip
            on_chip += run * inner * rows


def move_shape(layer: FixedMove, element_bytes: int) -> MoveShape:
    return MoveShape(tuple(piece.normalized() for piece in layer.pieces), element_bytes)


def move_tiles(shape: MoveShape, machine: TileMachine) -> MoveTiles | Infeasible:
    """Two buffers; one where two elements do not fit."""
    size = shape.element_bytes
    for buffers in (2, 1):
        room = min(MOST_ELEMENTS, sizes(machine, buffers).first // size)
        if room:
            cost = transfer_cost(machine)
            pieces = tuple(_fastest(piece, room, size, cost) for piece in shape.pieces)
            return MoveTiles(pieces, buffers)
    return Infeasible(
        "input memory", size, sizes(machine, 1).first, "one element",
        "use a machine with a larger memory",
    )  # fmt: skip


def _fastest(piece: Piece, room: int, size: int, cost: TransferCost) -> PieceTiles:
    by_target = tuple(k for k, axis in enumerate(piece.axes) if axis.source > 0)
    by_source = tuple(sorted(by_target, key=lambda k: -piece.axes[k].source))
    found = (_filled(piece, order, room) for order in (by_target, by_source))
    return min(found, key=lambda tiles: _cycles(piece, tiles, size, cost))


def _filled(piece: Piece, order: tuple[int, ...], room: int) -> PieceTiles:
    """Whole inner axes, and a part of the next one."""
    tile = [1] * len(order)
    for place in reversed(range(len(order))):
        extent = piece.axes[order[place]].extent
        tile[place] = even(extent, min(extent, room // prod(tile)))
        if tile[place] < extent:
            break
    return PieceTiles(order, tuple(tile))


def _cycles(piece: Piece, tiles: PieceTiles, size: int, cost: TransferCost) -> float:
    """Of all transfers one after the other, if every tile is a whole one."""
    axes = [piece.axes[k] for k in tiles.order]
    others = [axis for k, axis in enumerate(piece.axes) if k not in tiles.order]
    backwards = prod(axis.extent for axis in others if axis.source)
    again = prod(axis.extent for axis in others if not axis.source)
    steps = backwards * prod(
        -(-axis.extent // count) for axis, count in zip(axes, tiles.tile, strict=True)
    )
    load, store = (
        sum(
            cost.start + cost.segment * one.inner * one.outer
            + cost.byte * one.run * one.inner * one.outer * size
            for one in runs_of_tile(list(zip(tiles.tile, strides, strict=True)))
        )
        for strides in ([axis.source for axis in axes], [axis.target for axis in axes])
    )  # fmt: skip
    return float(steps * (load + again * store))
