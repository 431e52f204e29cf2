"""Small tile machines, and planners that answer with any plan that fits."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hypothesis import strategies as st

from tests.codegen.plan.loops.tile_cases import can_keep_rows
from tvm_npu.codegen.plan.loops.plan import LOOPS, Loop, LoopPlan, can_be_touched_only, extent
from tvm_npu.codegen.plan.loops.room import check_loop_plan, no_room
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.machine import TileMachine


def tile_machine(
    memories: tuple[int, ...] = (4096, 4096, 4096),
    words: tuple[int, int, int, int] = (1, 2, 4, 8),
    bias_bytes: int = 4096,
    **parts: dict[str, Any],
) -> TileMachine:
    """setup-a with other memories: three sizes, or one for all tiles."""
    values: dict[str, Any] = load_machine("setup-a").model_dump()
    values["name"] = "small"
    if len(memories) == 1:
        values["memories"] = {"shared_bytes": memories[0]}
    else:
        names = ("input_bytes", "weight_bytes", "output_bytes")
        values["memories"] = dict(zip(names, memories, strict=True))
    values["memories"]["bias_bytes"] = bias_bytes
    names = ("int8_bytes", "int16_bytes", "int8_accumulator_bytes", "int16_accumulator_bytes")
    values["words"] = dict(zip(names, words, strict=True))
    for part, changes in parts.items():
        values[part] |= changes
    machine = machine_from_dict(values)
    assert isinstance(machine, TileMachine)
    return machine


def core_machine(
    name: str, shared_bytes: int, words: tuple[int, int, int, int], bias_bytes: int
) -> TileMachine:
    """A machine with a core and a DMA controller by name, with other memories."""
    values = load_machine(name).model_dump(exclude_none=True)
    values["memories"] = {"shared_bytes": shared_bytes, "bias_bytes": bias_bytes}
    values["words"] = dict(zip(values["words"], words, strict=True))
    machine = machine_from_dict(values)
    assert isinstance(machine, TileMachine)
    return machine


CORE_MACHINES = ("zynq-7020", "zynq-7020-uncached")


@st.composite
def tile_machines(draw: st.DrawFn) -> TileMachine:
    size = st.sampled_from((256, 512, 1024, 4096, 16384))
    count = draw(st.sampled_from((1, 3)))
    memories = tuple(draw(size) for _ in range(count))
    if count == 1:
        memories = (2 * memories[0],)
    words = draw(st.sampled_from(((1, 2, 4, 8), (4, 4, 8, 8), (2, 2, 4, 8))))
    bias_bytes = draw(st.sampled_from((64, 128, 4096)))
    if count == 1 and draw(st.booleans()):
        return core_machine(draw(st.sampled_from(CORE_MACHINES)), memories[0], words, bias_bytes)
    array = draw(st.sampled_from(({}, {"array": {"taps_at_once": 9}})))
    return tile_machine(memories, words, bias_bytes, **array)


@dataclass(frozen=True)
class AnyPlan:
    """Any plan that fits, by ``seed``; Infeasible where the smallest tiles do not."""

    seed: int
    name: str = "any"

    def plan(self, problem: ConvProblem, machine: Any) -> LoopPlan | Infeasible:
        draw = random.Random(f"{self.seed} {problem}")
        order: list[Loop] = list(LOOPS)
        draw.shuffle(order)
        buffers = draw.choice((1, 2))
        extents = [extent(problem, loop) for loop in LOOPS]
        for _ in range(60):
            tile = [draw.randint(1, size) for size in extents]
            groups = 1
            if problem.groups > 1 and draw.random() < 0.5:
                groups, tile[0], tile[1] = draw.randint(1, problem.groups), extents[0], extents[1]
            plan = LoopPlan(*tile, tuple(order), groups, buffers)  # type: ignore[arg-type]
            if can_be_touched_only(problem) and draw.random() < 0.5:
                plan = replace(plan, touched_only=True)
            elif draw.random() < 0.5 and can_keep_rows(problem, plan):
                plan = replace(plan, keeps_rows=True)
            elif draw.random() < 0.5:
                plan = replace(plan, resident=draw.choice(("IN", "W")))
            most = loop_machine(machine).most_taps(plan.tile_n, prod(problem.kernel))
            plan = replace(plan, taps_at_once=draw.randint(1, most))
            if check_loop_plan(problem, plan, loop_machine(machine)) is None:
                return plan
            extents = [max(1, size * 9 // 10) for size in extents] if groups == 1 else extents
        plan = LoopPlan(1, 1, 1, 1, tuple(order))
        return plan if check_loop_plan(problem, plan, loop_machine(machine)) is None else no_room(
            problem, loop_machine(machine)
        )


@dataclass(frozen=True)
class Given:
    """A planner with one answer."""

    answer: LoopPlan
    name: str = "given"

    def plan(self, problem: ConvProblem, machine: Any) -> LoopPlan:
        return self.answer
