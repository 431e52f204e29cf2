"""A Snowflake cluster as planners of loops see it, and their answers as its own plans.

There is a question a mode, since the modes share buffers differently, and a division of the MBufs
between maps and results:

  coop  every MBuf holds the same maps, each WBuf other kernels; results are in one MBuf
  indp  each MBuf holds other rows of maps and results, the WBufs of a CU all kernels of a tile
  lane  likewise, for depthwise convolutions: the groups of a tile are its filters

An answer's rows and columns are kept. Its filters become whole groups of those that are computed at
a time. A tile has all channels, as partial sums stay in the vMACs; what does not fit then is cut
smaller. Of the loops over filters and over rows and columns the outer one says what stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.loops.machine import (
    EngineCost,
    LoopMachine,
    SplitMemories,
    TransferCost,
)
from tvm_npu.codegen.plan.loops.plan import LoopPlan, trips
from tvm_npu.codegen.plan.loops.questions import LoopQuestion
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.divide import best_division
from tvm_npu.codegen.snowflake.plan.refused import modes_of, refusal
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Mode,
    SnowflakePlan,
    Stays,
    conv_shape,
    geometry,
    together,
)
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES, VMACS
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

DIVISIONS = ((3, 1), (1, 1))
"""Parts of the MBufs for maps and for results that are tried."""


@lru_cache(maxsize=64)
def loop_machine(
    machine: SnowflakeMachine, mode: Mode, division: tuple[int, int] = DIVISIONS[0]
) -> LoopMachine:
    """What planners of loops may know of a cluster in a mode. A run of memory costs half of a
    64-byte unit on average, a transfer the instructions that issue it."""
    parts = machine.clusters
    coop = mode == "coop"
    maps = parts.mbuf_bytes * (1 if coop else parts.cus)
    weights = VMACS * parts.wbuf_bytes * (parts.cus if coop else 1)
    share = [maps * part // sum(division) for part in division]
    rate = machine.memory_bytes_per_cycle
    pes = (VMACS * parts.cus, LANES, 1, 1) if coop else (VMACS * LANES, 1, parts.cus, 1)
    return LoopMachine(
        name=f"a cluster of {machine.name} in mode {mode}",
        memories=SplitMemories(share[0], weights, share[1]),
        bias_bytes=weights,
        pes=pes,
        macs_per_cycle=machine.macs_per_cycle(1),
        engine=EngineCost(1.0, float(timeline.CHUNK), 0.0),
        transfer=TransferCost(float(timeline.MOVE), MEMORY_UNIT_BYTES / 2 / rate, 1 / rate),
        outside_bytes_per_cycle=rate,
        sums_leave=False,
        groups_together=mode == "lane",
    )


def loop_questions(
    problem: ConvProblem, machine: SnowflakeMachine, limits: TileLimits
) -> Iterator[LoopQuestion[SnowflakePlan]]:
    """One a mode that the layer has and a division of the MBufs. Results are as wide as elements:
    sums do not lie in buffers."""
    shape = conv_shape(problem)
    asked = replace(problem, accumulator_bytes=problem.element_bytes)
    for mode in modes_of(shape):
        for division in DIVISIONS:
            view = loop_machine(machine, mode, division)
            realize = partial(realized, problem, machine, mode, limits)
            yield LoopQuestion(asked, view, realize)


def realized(
    problem: ConvProblem, machine: SnowflakeMachine, mode: Mode, limits: TileLimits, tile: LoopPlan
) -> SnowflakePlan | Infeasible:
    """``tile`` as a plan of the cluster, predicted, or why there is none."""
    refused = refusal(problem, machine, limits)
    if refused is not None:
        return refused
    shape = conv_shape(problem)
    filters = tile.tile_groups if mode == "lane" else tile.tile_m
    rows, columns = _pixels(problem, shape, tile)
    plan = SnowflakePlan(
        mode, _whole_groups(filters, shape, mode, machine, limits), rows, columns,
        _stays(problem, tile),
    )  # fmt: skip
    cut = _cut_smaller(shape, plan, machine)
    fitting = None if cut is None else best_division(problem, cut, machine)
    if fitting is None:
        return Infeasible(
            "MBuf or WBuf", 0, 0,
            f"no tiles of this layer fit a cluster of {machine.name} in mode {mode}",
            "choose a planner of the machine's own plans",
        )  # fmt: skip
    return fitting


def _pixels(problem: ConvProblem, shape: ConvShape, tile: LoopPlan) -> tuple[int, int]:
    """Rows and columns of a tile; of a layer that is seen as one row, its pixels."""
    if shape.rows.out == problem.rows:
        return tile.tile_r, tile.tile_c
    return 1, min(shape.columns.out, tile.tile_r * tile.tile_c)


def _whole_groups(
    filters: int, shape: ConvShape, mode: Mode, machine: SnowflakeMachine, limits: TileLimits
) -> int:
    unit = LANES if mode == "lane" else together(mode, machine)
    whole = max(unit, filters // unit * unit)
    most = limits.max_tile_m or shape.filters
    return min(shape.filters, most, whole if filters < shape.filters else filters)


def _stays(problem: ConvProblem, tile: LoopPlan) -> Stays:
    moving = [loop for loop in tile.order if trips(problem, tile, loop) > 1]
    return "maps" if moving and moving[0] in ("R", "C") else "kernels"


def _cut_smaller(
    shape: ConvShape, plan: SnowflakePlan, machine: SnowflakeMachine
) -> SnowflakePlan | None:
    """``plan``, or smaller tiles: half of the filters where kernels do not fit, else of the rows,
    then of the columns."""
    unit = LANES if plan.mode == "lane" else together(plan.mode, machine)
    while True:
        found = geometry(shape, plan, machine)
        if found.rooms is not None:
            return plan
        kernels_fit = found.kernels_words <= machine.wbuf_words and not found.splits_depth
        if plan.tile_m > unit and (not kernels_fit or plan.tile_r * plan.tile_c == 1):
            plan = replace(plan, tile_m=max(unit, plan.tile_m // 2 // unit * unit))
        elif plan.tile_r > 1:
            plan = replace(plan, tile_r=-(-plan.tile_r // 2))
        elif plan.tile_c > 1:
            plan = replace(plan, tile_c=-(-plan.tile_c // 2))
        else:
            return None
