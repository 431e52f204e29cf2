"""Tile machines as a kind to generate code for: what `tvm_npu.codegen.backends` knows of them.

Planners, emitters and spaces are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.backend import Emitted, PlannedGraph, PlanTexts
from tvm_npu.codegen.loop_backend import LoopBackend
from tvm_npu.codegen.plan.limits import TileLimits

if TYPE_CHECKING:
    from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
    from tvm_npu.codegen.graph_bound import GraphBound
    from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
    from tvm_npu.codegen.plan.loops.machine import LoopMachine
    from tvm_npu.codegen.plan.loops.plan import LoopPlan
    from tvm_npu.codegen.plan.loops.questions import LoopQuestion
    from tvm_npu.codegen.plan.planner import Planner
    from tvm_npu.codegen.plan.problem import ConvProblem
    from tvm_npu.codegen.tune.space import Space
    from tvm_npu.sim.machine_parts import Precision
    from tvm_npu.sim.tiles.machine import TileMachine

WARM_PLANNERS = ("exact", "eplanner", "double-buffer")
"""With whose plans a warm run of a tuner begins."""
FEWEST_STEPS = 5_000
MACS_PER_STEP = 65_536


def step_budget(problem: ConvProblem) -> int:
    """Steps of a plan above which it is not tried: programs of tile machines have no loops, so
    steps are instructions, and good plans make far fewer."""
    return FEWEST_STEPS + problem.macs // MACS_PER_STEP


class TilesBackend(LoopBackend["TileMachine"]):
    """Plans of tile machines are plans of loops."""

    @property
    def layer_types(self) -> frozenset[type[FixedLayer]]:
        from tvm_npu.codegen import ops

        return frozenset(
            {
                ops.FixedConv, ops.FixedPool, ops.FixedPad, ops.FixedElementwise, ops.FixedMove,
                ops.FixedReflectPad, ops.FixedTransposedConv, ops.FixedMaximum,
                ops.FixedMaxFeatureMap, ops.FixedBroadcast, ops.FixedDifference, ops.FixedBlock,
                ops.FixedRun,
            }
        )  # fmt: skip

    def loop_machine(self, machine: TileMachine) -> LoopMachine:
        from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine

        return loop_machine(machine)

    def accumulator_bytes(self, machine: TileMachine, precision: Precision) -> int:
        return machine.accumulator_bytes(precision)

    def problem(
        self,
        layer: FixedLayer,
        shapes: Mapping[str, Shape],
        precision: Precision,
        machine: TileMachine,
    ) -> Any:
        from tvm_npu.codegen import ops
        from tvm_npu.codegen.tiles.plan.planning import question

        if isinstance(layer, ops.FixedConv):
            return self.conv_problem(layer, shapes, precision, machine)
        return question(layer, shapes, precision, machine)

    def plan(self, problem: Any, machine: TileMachine, chosen: Planner, limits: TileLimits) -> Any:
        from tvm_npu.codegen.tiles.emit.runs import chain_cycles, run_cycles
        from tvm_npu.codegen.tiles.plan.planning import answer

        return answer(problem, machine, chosen, (chain_cycles, run_cycles), limits)

    def rewrite(
        self, fixed: FixedGraph, planner: LayerPlanner, machine: TileMachine
    ) -> FixedGraph:
        from tvm_npu.codegen.tiles.plan.planning import rewritten

        return rewritten(fixed, planner, machine)

    def check_length(self, layers: tuple[PlannedLayer, ...], machine: TileMachine) -> None:
        from tvm_npu.codegen.tiles.emit.length import check_length, fewest_instructions

        fewest = [fewest_instructions(one.problem, one.plan, machine) for one in layers]
        check_length([], [one.layer.name for one in layers], fewest, machine)

    def predicted_cycles(
        self, layer: FixedLayer, problem: Any, plan: Any, machine: TileMachine
    ) -> float | None:
        from tvm_npu.codegen.tiles.emit.layers import predicted_cycles

        return predicted_cycles(layer, problem, plan, machine)

    def graph_bound(self, planned: PlannedGraph, machine: TileMachine) -> GraphBound:
        from tvm_npu.codegen.graph_bound import graph_bound
        from tvm_npu.codegen.tiles.plan.graph_bound import most_bytes_per_cycle

        return graph_bound(planned, most_bytes_per_cycle(machine, planned.precision))

    def loop_questions(
        self, problem: ConvProblem, machine: TileMachine, limits: TileLimits, splits_memory: bool
    ) -> Iterator[LoopQuestion[LoopPlan]]:
        from tvm_npu.codegen.tiles.plan.loop_machine import loop_questions

        return loop_questions(problem, machine, limits, splits_memory)

    def emit(self, planned: PlannedGraph, machine: TileMachine) -> Emitted:
        from tvm_npu.codegen.tiles.emit.compiler import emit

        return emit(planned, machine)

    @property
    def texts(self) -> PlanTexts[TileMachine, LoopPlan]:
        from tvm_npu.codegen.tiles.ir.texts import TileTexts

        return TileTexts()

    is_tunable = True

    def space(self, problem: ConvProblem, machine: TileMachine) -> Space[LoopPlan]:
        from tvm_npu.codegen.tiles.tune.tile_space import TileSpace

        return TileSpace(problem, machine)

    def warm_plans(self, problem: ConvProblem, machine: TileMachine) -> Iterable[LoopPlan]:
        from tvm_npu.codegen.plan.problem import Infeasible
        from tvm_npu.codegen.plan.registry import planner

        answers = (planner(name).plan(problem, machine) for name in WARM_PLANNERS)
        return tuple(plan for plan in answers if not isinstance(plan, Infeasible))

    def trial_fault(
        self, problem: ConvProblem, plan: LoopPlan, machine: TileMachine
    ) -> str | None:
        from tvm_npu.codegen.plan.loops.plan import step_count

        if self.check(problem, plan, machine) is not None:
            return None  # the compiler says what is wrong
        steps, most = step_count(problem, plan), step_budget(problem)
        return f"plan makes {steps:,} steps; at most {most:,} are run" if steps > most else None


BACKEND = TilesBackend()
