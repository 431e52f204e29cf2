"""What a cost model sees of a tile plan: its choices, what its loops do and move, and what the
analytic model expects of it.

Numbers are base-2 logarithms unless they are shares or flags. ``M_outside_N`` and the like say
which of two loops is the outer one: six flags tell all 24 orders apart, and a tree needs one split
for what a load hangs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

import numpy as np

from tvm_npu.codegen.plan.loops.cost import engine_cycles, predicted
from tvm_npu.codegen.plan.loops.plan import LOOPS, LoopPlan, group_runs, trips
from tvm_npu.codegen.plan.loops.traffic import tile_traffic
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.codegen.tiles.tune.tile_room import fill_shares
from tvm_npu.codegen.tune.space import Features
from tvm_npu.sim.tiles.machine import TileMachine

LAYER_NAMES = (
    "filters", "channels", "groups", "rows", "columns", "taps", "stride", "element_bytes",
    "accumulator_bytes", "macs", "residual", "dense",
)  # fmt: skip
STREAMS = (
    "inputs", "residual", "weights", "biases", "outputs", "partial_loads", "partial_stores",
)  # fmt: skip
PAIRS = tuple(combinations(LOOPS, 2))
LOG_NAMES = (
    *(f"tile_{loop.lower()}" for loop in LOOPS), "tile_groups",
    *(f"trips_{loop.lower()}" for loop in LOOPS), "group_runs", "steps",
    *(f"{stream}_bytes" for stream in STREAMS), "moved_bytes", "transfers", "segments",
    "engine_cycles", "load_cycles", "store_cycles", "predicted_cycles",
)  # fmt: skip
SHARE_NAMES = ("input_fill", "weight_fill", "output_fill", "engine_share")
FLAG_NAMES = (
    *(f"innermost_{loop}" for loop in LOOPS), *(f"{a}_outside_{b}" for a, b in PAIRS),
    "two_buffers",
)  # fmt: skip
FEATURE_NAMES = (*LAYER_NAMES, *LOG_NAMES, *SHARE_NAMES, *FLAG_NAMES)


def tile_features(
    problem: ConvProblem, plans: Sequence[LoopPlan], machine: TileMachine
) -> Features:
    """[len(plans), len(FEATURE_NAMES)], for plans that fit. ``engine_share`` is the least that the
    layer's products could take the engine over what they do take it."""
    if not plans:
        return np.zeros((0, len(FEATURE_NAMES)), np.float32)
    layer = _layer(problem)
    numbers, rest = zip(*(_numbers(problem, plan, machine) for plan in plans), strict=True)
    columns = np.concatenate(
        (
            np.repeat(np.array([layer]), len(plans), 0),
            np.log2(np.maximum(np.array(numbers, np.float64), 1.0)),
            np.array(rest, np.float64),
        ),
        axis=1,
    )
    return columns.astype(np.float32)


def _layer(problem: ConvProblem) -> list[float]:
    numbers = (
        problem.filters, problem.channels // problem.groups, problem.groups, problem.rows,
        problem.columns, problem.kernel[0] * problem.kernel[1],
        problem.stride[0] * problem.stride[1], problem.element_bytes, problem.accumulator_bytes,
        problem.macs,
    )  # fmt: skip
    return [*np.log2(numbers), float(problem.has_residual), float(problem.is_dense)]


def _numbers(
    problem: ConvProblem, plan: LoopPlan, machine: TileMachine
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(the columns `LOG_NAMES`, shares and flags)."""
    counts = [trips(problem, plan, loop) for loop in LOOPS]
    runs = group_runs(problem, plan)
    steps = runs
    for count in counts:
        steps *= count
    view = loop_machine(machine)
    traffic = tile_traffic(problem, plan, view)
    total, expected = traffic.total, predicted(problem, plan, view)
    engine = engine_cycles(problem, plan, view)
    least = view.engine.iteration * problem.macs / prod(view.pes)
    logs = (
        *(plan.tile(loop) for loop in LOOPS), plan.tile_groups, *counts, runs, steps,
        *(getattr(traffic, stream).size_bytes for stream in STREAMS),
        total.size_bytes, total.transfers, total.segments,
        engine, expected.load_cycles, expected.store_cycles, expected.cycles,
    )  # fmt: skip
    order = plan.order
    flags = (
        *(order[-1] == loop for loop in LOOPS),
        *(order.index(a) < order.index(b) for a, b in PAIRS),
        plan.buffers == 2,
    )
    return logs, (*fill_shares(problem, plan, machine), least / engine, *map(float, flags))
