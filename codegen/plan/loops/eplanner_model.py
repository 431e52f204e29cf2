"""The models of the e-PlaNNer thesis (chapter 6), equation by equation.

They choose plans; what a plan really moves and takes is `traffic` and `cost`. Arguments may be
numbers or arrays of them. Trips are iterations of the off-chip loops, ceil(extent / tile).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import Loop
from tvm_npu.codegen.plan.problem import ConvProblem

Dataflow = Literal["IS", "WS", "OS"]
"""Input, weight and output stationary."""
DATAFLOWS: tuple[Dataflow, ...] = ("IS", "WS", "OS")

INNERMOST: dict[Dataflow, tuple[Loop, ...]] = {"IS": ("M",), "WS": ("C", "R"), "OS": ("N",)}
"""Loops at the innermost position (5.3), innermost first: OC, OW and OH, IC."""


class Reloads(NamedTuple):
    """How often each tensor crosses the chip's border, on average over its elements; ``sums`` are
    partial sums of both ways."""

    inputs: Any
    weights: Any
    sums: Any


def reload_factors(dataflow: Dataflow, m: Any, n: Any, r: Any, c: Any) -> Reloads:
    """Reload factors from the trips over filters, channels, rows and columns; the kernel is never
    cut (KW_t = KW, KH_t = KH).

    Equation 6.2: input, ceil(OC / OC_t); one under input stationary, overlaps of tiles ignored.
    Equation 6.3: weights, ceil(OW / OW_t) * ceil(OH / OH_t); one under weight stationary.
    Equation 6.4: partial sums, 2 * (ceil(IC / IC_t) - 1); none under output stationary.
    """
    return Reloads(
        1 if dataflow == "IS" else m,
        1 if dataflow == "WS" else r * c,
        0 if dataflow == "OS" else 2 * (n - 1),
    )


def access_bytes(problem: ConvProblem, reloads: Reloads) -> Any:
    """Equation 6.1: the sum of volume_d * reload_d over input, weights and output; Equation 6.5:
    the output's factor is that of its partial sums plus one (the final write)."""
    size = problem.element_bytes
    taps = problem.kernel[0] * problem.kernel[1]
    inputs = problem.channels * problem.in_rows * problem.in_columns
    weights = problem.filters * (problem.channels // problem.groups) * taps
    outputs = problem.filters * problem.rows * problem.columns
    return (
        inputs * size * reloads.inputs
        + weights * size * reloads.weights
        + outputs * (problem.accumulator_bytes * reloads.sums + size)
    )


def pe_utilization(machine: LoopMachine, m: Any, n: Any, r: Any, c: Any) -> Any:
    """Equations 6.7 to 6.9 for tiles of m filters, n channels, r rows and c columns: MACs of a tile
    (the product of its factors) over iterations (the product of ceil(factor_t / factor_p)) times
    PEs. The kernel's loops are not spread and cancel."""
    used: Any = 1.0
    loops: tuple[tuple[Loop, Any], ...] = (("M", m), ("N", n), ("R", r), ("C", c))
    for loop, size in loops:
        pes = machine.pes_on(loop)
        used = used * (size / (-(-size // pes) * pes))
    return used


def performance(problem: ConvProblem, machine: LoopMachine, utilization: Any, moved: Any) -> Any:
    """MACs a cycle. Equation 6.12: the smaller of perf_compute (6.6: active PEs) and perf_memory
    (6.10 and 6.11: bandwidth * operations / bytes); both without the clock frequency."""
    compute = machine.macs_per_cycle * utilization
    return np.minimum(compute, problem.macs / (machine.transfer.byte * moved))


def metric(problem: ConvProblem, machine: LoopMachine, utilization: Any, moved: Any) -> Any:
    """Equation 6.13: estimated performance / off-chip memory access size."""
    return performance(problem, machine, utilization, moved) / moved


def interchanged(dataflow: Dataflow, trips: dict[Loop, int]) -> tuple[Loop, ...]:
    """Algorithm 3: loops sorted by iterations, the most at the innermost position, behind the loops
    that make the dataflow. Outermost first."""
    inner = INNERMOST[dataflow]
    others = [loop for loop in trips if loop not in inner]
    others.sort(key=lambda loop: trips[loop])
    return (*others, *reversed(inner))
