"""Maxima of overlapping windows beside a convolution: their steps run between those of the layer
before, so that the memory brings them while the MACs work.

That takes words of the MBufs that the convolution's tiles leave free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedConv, FixedPool
from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.pools import (
    PoolShape,
    PoolTiles,
    pool_cost,
    pool_tiles,
)
from tvm_npu.codegen.snowflake.plan.tiling import Geometry, SnowflakePlan, conv_shape, geometry
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

TILE = 700
"""Cycles that the convolution waits for a tile, at most: its first stages, its last words."""
LEAST_ROOM = 0.25
"""Of the MBufs."""
LAYERS_BESIDE = 1
"""Layers behind one that may run at the same time."""


def runs_beside(plan: Any) -> bool:
    """The layer's steps run between those of the one before."""
    return isinstance(plan, PoolTiles) and plan.is_beside


@dataclass(frozen=True)
class _Room:
    """What a convolution leaves: words of the MBufs from ``at`` on, cycles of the memory."""

    at: int
    idle_cycles: float


def _room(problem: Any, plan: Any, machine: SnowflakeMachine) -> _Room | None:
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
    return _Room(max(_end(one) for one in found), max(0.0, idle))


def _end(found: Geometry) -> int:
    """Behind the words of the MBufs that are in use."""
    rooms = found.rooms
    assert rooms is not None, "a plan fits"
    return max(
        max(rooms.maps) + found.maps_words, max(at for _, at in rooms.out) + found.out_words
    )


def _tiles_beside(
    shape: Any, plan: Any, room: _Room | None, machine: SnowflakeMachine
) -> tuple[PoolTiles, float] | None:
    """Tiles of a maximum in the room that is left, and by how many cycles both layers take longer
    than the convolution; None where they are not expected to save time."""
    if not isinstance(shape, PoolShape) or not isinstance(plan, PoolTiles) or room is None:
        return None
    free = machine.mbuf_words - room.at
    if not shape.is_max or free < LEAST_ROOM * machine.mbuf_words:
        return None
    clusters = machine.clusters.model_copy(update={"mbuf_bytes": 2 * free})
    tiles = pool_tiles(shape, machine.model_copy(update={"clusters": clusters}))
    if not isinstance(tiles, PoolTiles):
        return None
    cost = pool_cost(shape, tiles, machine)
    longer = max(0.0, cost.memory_cycles - room.idle_cycles) + cost.vector_cycles
    longer += TILE * cost.tiles
    if longer >= pool_cost(shape, plan, machine).cycles:
        return None
    return replace(tiles, at=room.at, is_beside=True), longer


def beside(
    layers: tuple[PlannedLayer, ...], machine: SnowflakeMachine
) -> tuple[PlannedLayer, ...]:
    """``layers`` with maxima that run beside the convolution before, where that does not make
    their input."""
    found = list(layers)
    for at in range(1, len(layers)):
        before, one = found[at - 1], found[at]
        if before.layer.outputs[0] in one.layer.inputs:
            continue
        room = _room(before.problem, before.plan, machine)
        answer = _tiles_beside(one.problem, one.plan, room, machine)
        if answer is not None:
            tiles, longer = answer
            found[at] = replace(one, plan=tiles, predicted_cycles=longer)
    return tuple(found)


# --- order --------------------------------------------------------------------------------------


def with_neighbours(
    fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
) -> FixedGraph:
    """``fixed`` with every maximum behind the convolution that leaves the memory idle for longest,
    of those between it and what makes its input that have room for it."""
    layers = list(fixed.layers)
    taken: set[str] = set()
    for pool in fixed.layers:
        if not isinstance(pool, FixedPool) or pool.kind != "max":
            continue
        at = layers.index(pool)
        idle = {
            number: _idle(layers[number], fixed, planner, machine)
            for number in range(_behind(layers, pool.inputs[0]), at)
            if layers[number].outputs[0] not in taken
        }
        best = max(idle, key=lambda number: idle[number], default=-1)
        if best >= 0 and idle[best] > 0:
            taken.add(layers[best].outputs[0])
            layers.insert(best + 1, layers.pop(at))
    return replace(fixed, layers=tuple(layers))


def _behind(layers: list[FixedLayer], tensor: str) -> int:
    return next((at + 1 for at, layer in enumerate(layers) if tensor in layer.outputs), 0)


def _idle(
    layer: FixedLayer, fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
) -> float:
    """Cycles; 0 where there is no room."""
    if not isinstance(layer, FixedConv):
        return 0.0
    room = _room(*planner.answer(layer, fixed.shapes), machine)
    if room is None or machine.mbuf_words - room.at < LEAST_ROOM * machine.mbuf_words:
        return 0.0
    return room.idle_cycles
