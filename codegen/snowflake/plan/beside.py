"""Maxima of overlapping windows beside a convolution: their steps run between those of the layer
before, so that the memory brings them while the MACs work.

`plan.together` plans both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedConv, FixedPool
from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
from tvm_npu.codegen.snowflake.plan.pools import PoolTiles
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
from tvm_npu.codegen.snowflake.plan.together import room_beside, together
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

LAYERS_BESIDE = 1
"""Layers behind one that may run at the same time."""


def runs_beside(plan: Any) -> bool:
    """The layer's steps run between those of the one before."""
    return isinstance(plan, PoolTiles) and plan.is_beside


def beside(
    layers: tuple[PlannedLayer, ...], machine: SnowflakeMachine, alone: str, least_bytes: str
) -> tuple[PlannedLayer, ...]:
    """``layers`` with maxima that run beside the convolution before, where both together are
    expected to take less time; not beside those of the planner called ``alone``, and beside those
    of ``least_bytes`` where that moves no more."""
    found = list(layers)
    for at in range(1, len(layers)):
        plan = found[at - 1].plan
        if isinstance(plan, SnowflakePlan) and plan.planner == alone:
            continue
        saves_bytes = isinstance(plan, SnowflakePlan) and plan.planner == least_bytes
        found[at - 1 : at + 1] = together(found[at - 1], found[at], machine, saves_bytes)
    return tuple(found)


# --- order --------------------------------------------------------------------------------------


def with_neighbours(
    fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
) -> FixedGraph:
    """``fixed`` with every maximum behind the convolution that leaves the memory idle for longest,
    of those between what makes its input and it; where there is none, behind what makes it."""
    layers = list(fixed.layers)
    taken: set[str] = set()
    for pool in fixed.layers:
        if not isinstance(pool, FixedPool) or pool.kind != "max":
            continue
        at, first = layers.index(pool), _behind(layers, pool.inputs[0])
        idle = {
            number: _idle(layers[number], fixed, planner, machine)
            for number in range(max(0, first - 1), at)
            if layers[number].outputs[0] not in taken
        }
        free = {number for number in idle if idle[number] > 0}
        best = max(free - {first - 1} or free, key=lambda number: idle[number], default=-1)
        if best >= 0:
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
    room = room_beside(*planner.answer(layer, fixed.shapes), machine)
    return 0.0 if room is None else room.idle_cycles
