"""The planners that the e-PlaNNer thesis compares with, helped as its Table 8.3 says.

All have OW whole where it fits. The other factors of Zhang are those that e-PlaNNer finds once its
dataflow is given; those of Ma the best by e-PlaNNer's metric among all tilings that the rule
leaves; the rules of SmartShuttle leave one tiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.eplanner import (
    EPlanner,
    best_by_metric,
    chosen_plan,
    initial_factors,
)
from tvm_npu.codegen.plan.loops.eplanner_model import DATAFLOWS, Dataflow
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import Loop, LoopPlan
from tvm_npu.codegen.plan.loops.questions import Measure
from tvm_npu.codegen.plan.loops.room import no_room
from tvm_npu.codegen.plan.loops.space import Tilings, candidate_sizes, tilings
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible


def whole_width(
    problem: ConvProblem, machine: LoopMachine, limits: TileLimits = NO_LIMITS
) -> Tilings | None:
    """All tilings with OW whole, or as wide as fits; None where nothing fits."""
    initial = initial_factors(problem, machine, limits, fills_array=False)
    if initial is None:
        return None
    sizes: dict[Loop, Sequence[int]] = {"C": (initial["C"],)}
    for loop in ("M", "N", "R"):
        sizes[loop] = candidate_sizes(problem, loop, machine.pes_on(loop), limits)  # type: ignore[index, arg-type]
    return tilings(problem, machine, sizes)


def largest_first(tiles: Tilings, loops: Sequence[Loop]) -> Tilings:
    """The tilings with the largest factor of the first loop, among these of the second, and so
    on."""
    for loop in loops:
        sizes = tiles.sizes(loop)
        tiles = tiles.where(sizes == sizes.max())
    return tiles


def zhang(limits: TileLimits = NO_LIMITS) -> EPlanner:
    """`zhang`: output stationary, IC at the innermost position (Zhang et al., FPGA 2015); all else
    comes from e-PlaNNer, its pruned space included."""
    return EPlanner(limits, "zhang", ("OS",))


@dataclass(frozen=True)
class Ma:
    """`ma`: KW, KH and IC whole before anything else, so that no partial sum leaves the chip (Ma et
    al., FPGA 2017); IC as large as fits where it does not fit whole."""

    limits: TileLimits = NO_LIMITS
    name: str = "ma"
    measure: Measure = "metric"
    splits_memory: bool = False

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible:
        tiles = whole_width(problem, machine, self.limits)
        if tiles is None:
            return no_room(problem, machine)
        tiles = largest_first(tiles, ("N",))
        choice = best_by_metric(problem, machine, tiles, DATAFLOWS)
        return chosen_plan(problem, machine, tiles, choice, self.name)


@dataclass(frozen=True)
class SmartShuttle:
    """`smartshuttle` (Li et al., DATE 2018): output stationary where OW * OH > IC * KW * KH, else
    weight stationary. Output stationary makes OC, then OH, then IC as large as fits; weight
    stationary OC, IC, then OH, in this order."""

    limits: TileLimits = NO_LIMITS
    name: str = "smartshuttle"
    measure: Measure = "metric"
    splits_memory: bool = False

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible:
        tiles = whole_width(problem, machine, self.limits)
        if tiles is None:
            return no_room(problem, machine)
        channels = problem.channels // problem.groups
        taps = channels * problem.kernel[0] * problem.kernel[1]
        dataflow: Dataflow = "OS" if problem.rows * problem.columns > taps else "WS"
        priority: tuple[Loop, ...] = ("M", "R", "N") if dataflow == "OS" else ("M", "N", "R")
        tiles = largest_first(tiles, priority)
        choice = best_by_metric(problem, machine, tiles, (dataflow,))
        return chosen_plan(problem, machine, tiles, choice, self.name)
