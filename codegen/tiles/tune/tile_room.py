"""Which choices of a tile plan take the room that there is not. Says the same as
`plan.loops.room.check_loop_plan`, which counts tile by tile, but in closed form: tuners ask often.
"""

from __future__ import annotations

from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.loops.room import aligned, memory_needs, part_bytes, place_bytes
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

_ALL = ("tile_groups", "tile_m", "tile_n", "tile_r", "tile_c")
_INPUT = ("tile_groups", "tile_n", "tile_r", "tile_c")
_WEIGHT = ("tile_groups", "tile_m", "tile_n")
_OUTPUT = ("tile_groups", "tile_m", "tile_r", "tile_c")
_BIAS = ("tile_groups", "tile_m")


def excess_of(problem: ConvProblem, plan: LoopPlan, machine: TileMachine) -> tuple[str, ...] | None:
    """The choices that fill the first memory that is too small; None where all tiles fit."""
    sizes, memories = place_bytes(problem, plan), loop_machine(machine).memories
    inputs = aligned(sizes.in_bytes) + aligned(sizes.residual_bytes)
    weights, out = aligned(sizes.weight_bytes), aligned(sizes.out_bytes)
    if plan.tile_groups * plan.tile_m * BIAS_BYTES > machine.memories.bias_bytes:
        return _BIAS
    needs = memory_needs(memories, inputs, weights, out)
    choices = (_ALL if problem.has_residual or len(needs) == 1 else _INPUT, _WEIGHT, _OUTPUT)
    for (_, needed, room), filled in zip(needs, choices, strict=False):
        if needed > part_bytes(room, plan.buffers):
            return filled
    return None


def fill_shares(
    problem: ConvProblem, plan: LoopPlan, machine: TileMachine
) -> tuple[float, float, float]:
    """How much of the memories that one set of tiles may take it does take: input and residual,
    weights, output; of a shared memory, each kind's part of it."""
    sizes, memories = place_bytes(problem, plan), machine.memories
    needed = (sizes.in_bytes + sizes.residual_bytes, sizes.weight_bytes, sizes.out_bytes)
    rooms = (
        (memories.shared_bytes,) * 3
        if isinstance(memories, SharedMemory)
        else (memories.input_bytes, memories.weight_bytes, memories.output_bytes)
    )
    one, two, three = (
        size / max(part_bytes(room, plan.buffers), 1)
        for size, room in zip(needed, rooms, strict=True)
    )
    return one, two, three
