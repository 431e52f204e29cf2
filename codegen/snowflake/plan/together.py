"""Plans for a maximum of overlapping windows and the convolution between whose steps it runs.

The convolution's tiles are cut where that leaves the maximum words of the MBufs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.divide import prediction_where_fits
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.made import Maker, hidden_beside
from tvm_npu.codegen.snowflake.plan.pools import (
    PoolCost,
    PoolShape,
    PoolTiles,
    fitting,
    pool_cost,
    tile_count,
)
from tvm_npu.codegen.snowflake.plan.tiling import Geometry, SnowflakePlan, conv_shape, geometry
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

TILE = 300
"""Cycles that the convolution waits for a tile, about: its first stages, its last words."""
BARRIER = 2500
"""Those that clusters wait for each other before a tile that others have made a part of."""
PARTS = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (2, 1), (3, 1), (4, 1))
"""Into which the rows and columns of the convolution's tiles are cut."""
LEAST_ROOM = 0.25
"""Of the MBufs, for the maximum."""
PLACES = 2
"""Tiles of the maximum in that room."""


@dataclass(frozen=True)
class Room:
    """What a convolution leaves: words of the MBufs from ``at`` on, cycles of the memory."""

    at: int
    idle_cycles: float


def room_beside(problem: Any, plan: Any, machine: SnowflakeMachine) -> Room | None:
    """None where nothing can run beside the layer."""
    if not isinstance(problem, ConvProblem) or not isinstance(plan, SnowflakePlan):
        return None
    if problem.is_dense or plan.prediction is None:
        return None
    parts = parts_of(problem, plan.divides, machine.clusters.count)
    found = [geometry(conv_shape(part.problem), plan, machine) for part in parts]
    if not found or any(one.splits_depth for one in found):
        return None
    known = plan.prediction
    idle = known.cycles - known.load_cycles - known.store_cycles
    return Room(max(_end(one) for one in found), max(0.0, idle))


def _end(found: Geometry) -> int:
    """Behind the words of the MBufs that are in use."""
    rooms = found.rooms
    assert rooms is not None, "a plan fits"
    return max(
        max(rooms.maps) + found.maps_words, max(at for _, at in rooms.out) + found.out_words
    )


def together(
    conv: PlannedLayer, pool: PlannedLayer, machine: SnowflakeMachine, saves_bytes: bool = False
) -> tuple[PlannedLayer, PlannedLayer]:
    """Both layers, with plans for the second between the steps of the first where that is expected
    to save time; with ``saves_bytes`` neither moves more than before."""
    shape, plan = pool.problem, conv.plan
    if not isinstance(shape, PoolShape) or not shape.is_max or pool.predicted_cycles is None:
        return conv, pool
    if room_beside(conv.problem, plan, machine) is None:
        return conv, pool
    best = plan.prediction.cycles + pool.predicted_cycles
    makes = conv.layer.outputs[0] in pool.layer.inputs
    most_bytes, most_words = inf, inf
    if saves_bytes:
        most_bytes = plan.prediction.moved_bytes
        most_words = pool_cost(shape, pool.plan, machine).loaded_words
    found = (conv, pool)
    for smaller in _smaller(conv.problem, plan, machine):
        cycles = smaller.prediction.cycles
        if cycles + TILE >= best or smaller.prediction.moved_bytes > most_bytes:
            continue
        room = room_beside(conv.problem, smaller, machine)
        assert room is not None, "the convolution has room for others"
        maker = Maker(conv.problem, smaller, machine.clusters.count) if makes else None
        near = _tiles(shape, room, maker, machine, best - cycles)
        for one in sorted(near, key=lambda one: one.least_cycles):
            if one.cost.loaded_words > most_words:
                continue
            if cycles + one.least_cycles >= best:
                break
            longer = one.cycles(shape, maker)
            if cycles + longer < best:
                best = cycles + longer
                found = (
                    replace(conv, plan=smaller, predicted_cycles=cycles),
                    replace(pool, plan=one.tiles, predicted_cycles=longer),
                )
    return found


def _smaller(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> Iterator[Any]:
    """``plan`` with parts of its rows or columns, predicted."""
    cut = ((-(-plan.tile_r // rows), -(-plan.tile_c // columns)) for rows, columns in PARTS)
    for tile_r, tile_c in dict.fromkeys(cut):
        one = replace(plan, tile_r=tile_r, tile_c=tile_c)
        prediction = prediction_where_fits(problem, one, machine)
        if prediction is not None:
            yield replace(one, prediction=prediction)


@dataclass(frozen=True)
class _Beside:
    """``tiles`` of a maximum in ``room``: what they ``cost``, and how long the convolution
    ``waits_cycles`` for them."""

    tiles: PoolTiles
    room: Room
    cost: PoolCost
    waits_cycles: float

    @property
    def least_cycles(self) -> float:
        """By which both layers take longer than the convolution, where that makes the maximum's
        input early enough."""
        return self._longer(min(self.cost.memory_cycles, self.room.idle_cycles))

    def cycles(self, shape: PoolShape, maker: Maker | None) -> float:
        """By which both layers take longer; ``maker`` is the convolution if it makes the input."""
        if maker is None:
            return self.least_cycles
        idle, memory = self.room.idle_cycles, self.cost.memory_cycles
        return self._longer(hidden_beside(maker, shape, self.tiles, idle, memory))

    def _longer(self, hidden: float) -> float:
        return self.cost.memory_cycles - hidden + self.cost.vector_cycles + self.waits_cycles


def _tiles(
    shape: PoolShape, room: Room, maker: Maker | None, machine: SnowflakeMachine,
    most_cycles: float,
) -> Iterator[_Beside]:  # fmt: skip
    """Tiles in the room that is left, but for those that the convolution waits for longer."""
    free = machine.mbuf_words - room.at
    if free < LEAST_ROOM * machine.mbuf_words:
        return
    smaller = machine.clusters.model_copy(update={"mbuf_bytes": WORD_BYTES * free})
    for tiles in fitting(shape, PLACES, machine.model_copy(update={"clusters": smaller})):
        each = TILE if maker is None or maker.is_divided_like(tiles) else TILE + BARRIER
        waits = each * tile_count(shape, tiles, machine)
        if waits < most_cycles:
            beside = replace(tiles, at=room.at, is_beside=True)
            yield _Beside(beside, room, pool_cost(shape, tiles, machine), waits)
