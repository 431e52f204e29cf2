"""A layer, a machine and a plan of loops as what `walk` goes through, and what that says."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LOOPS, LoopPlan, extent, seen
from tvm_npu.codegen.plan.loops.room import biases_stay
from tvm_npu.codegen.plan.loops.walk import walk_alone
from tvm_npu.codegen.plan.problem import ConvProblem

MOST_WALKED = 1 << 20
"""Steps of a plan, above which it is estimated in closed form."""


class Walked(NamedTuple):
    """A layer and a machine in numbers: filters and channels of a group; by axis the extent of the
    IFM, strides, what a window spans and padding in front; costs as of `LoopMachine`."""

    filters: int
    channels: int
    groups: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    stride_rows: int
    stride_columns: int
    reach_rows: int
    reach_columns: int
    padding_rows: int
    padding_columns: int
    taps: int
    taps_at_once: int
    """At most."""
    element: int
    accumulator: int
    has_residual: int
    biases_stay: int
    gathers: int
    keeps_rows: int
    resident: int
    start: float
    segment: float
    byte: float
    iteration: float
    setup: float
    pes_filters: int
    pes_channels: int
    pes_rows: int
    pes_columns: int
    pes: int
    """That make elements of results."""


def walked_of(
    problem: ConvProblem, machine: LoopMachine, keeps_rows: bool, gathers: bool, resident: str
) -> Walked:
    """``problem`` is what the tiles of a plan are cut from (`plan.seen`)."""
    transfer, engine = machine.transfer, machine.engine
    reach = _reach(problem, 0), _reach(problem, 1)
    return Walked(
        extent(problem, "M"), extent(problem, "N"), problem.groups, problem.rows, problem.columns,
        problem.in_rows, problem.in_columns, *problem.stride, *reach, *problem.padding[:2],
        prod(problem.kernel), machine.taps_at_once, problem.element_bytes,
        problem.accumulator_bytes, int(problem.has_residual), int(biases_stay(problem, machine)),
        int(gathers), int(keeps_rows), ("", "IN", "W").index(resident), float(transfer.start),
        float(transfer.segment), float(transfer.byte), float(engine.iteration),
        float(engine.setup), *machine.pes, max(1, round(1 / engine.output)),
    )  # fmt: skip


def can_be_walked(problem: ConvProblem, machine: LoopMachine) -> bool:
    """The machine has such clocks, and every row and column of the OFM sees some of the IFM."""
    axes = ((problem.rows, problem.in_rows), (problem.columns, problem.in_columns))
    return machine.interlocked and all(
        _reach(problem, axis) > problem.padding[axis]
        and (total - 1) * problem.stride[axis] - problem.padding[axis] < size
        for axis, (total, size) in enumerate(axes)
    )


def _reach(problem: ConvProblem, axis: int) -> int:
    """Rows or columns that a window spans."""
    return (problem.kernel[axis] - 1) * problem.dilation[axis] + 1


def walked_cycles(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> float:
    """Of a sound plan, where it `can_be_walked`."""
    source = seen(problem, plan)
    walk = walked_of(source, machine, plan.keeps_rows, plan.touched_only, plan.resident)
    sizes = np.array([plan.tile(loop) for loop in LOOPS], np.int64)
    order = np.array([LOOPS.index(loop) for loop in plan.order], np.int64)
    passes = -(-walk.taps // plan.taps_at_once)
    return float(walk_alone(walk, sizes, order, plan.tile_groups, passes, plan.buffers))
