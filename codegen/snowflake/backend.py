"""Snowflake machines as a kind to generate code for: what `tvm_npu.codegen.backends` knows of
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.backend import Backend, Emitted, PlannedGraph, PlannerFactory
from tvm_npu.codegen.plan.limits import TileLimits

if TYPE_CHECKING:
    from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
    from tvm_npu.codegen.graph_bound import GraphBound
    from tvm_npu.codegen.least import LeastNeeds
    from tvm_npu.codegen.passes.storage import Layout
    from tvm_npu.codegen.plan.faults import PlanFault
    from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
    from tvm_npu.codegen.plan.loops.questions import LoopQuestion
    from tvm_npu.codegen.plan.planner import Planner
    from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
    from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
    from tvm_npu.sim.machine_parts import Precision
    from tvm_npu.sim.snowflake.machine import SnowflakeMachine


LAYERS_ALONE = "exact-layers"
"""The planner whose layers run one by one: none becomes one with another, none beside another."""
LEAST_BYTES = "exact-traffic"
"""The planner of which none runs beside another where that moves more."""
EXACT = ("exact", "exact-dma", LAYERS_ALONE, LEAST_BYTES)


def _greedy(name: str, limits: TileLimits) -> Planner:
    from tvm_npu.codegen.snowflake.plan.planner import GreedyPlanner

    return GreedyPlanner(name, limits)


def _exact(name: str, limits: TileLimits) -> Planner:
    from tvm_npu.codegen.snowflake.plan.exact import ExactPlanner

    return ExactPlanner(name, limits)


class SnowflakeBackend(Backend["SnowflakeMachine", "SnowflakePlan"]):
    """Plans are tiles and a mode."""

    @property
    def layer_types(self) -> frozenset[type[FixedLayer]]:
        from tvm_npu.codegen.snowflake.emit.layers import BUILDERS

        return frozenset(BUILDERS)

    @property
    def layout(self) -> Layout:
        return "channels last"

    @property
    def layers_beside(self) -> int:
        from tvm_npu.codegen.snowflake.plan.beside import LAYERS_BESIDE

        return LAYERS_BESIDE

    def least_needs(self, machine: SnowflakeMachine, precision: Precision) -> LeastNeeds:
        from tvm_npu.codegen.snowflake.plan.least import SnowflakeNeeds

        return SnowflakeNeeds(machine)

    def problem(
        self,
        layer: FixedLayer,
        shapes: Mapping[str, Shape],
        precision: Precision,
        machine: SnowflakeMachine,
    ) -> Any:
        from tvm_npu.codegen.snowflake.plan.questions import question

        return question(layer, shapes)

    def plan(
        self, problem: Any, machine: SnowflakeMachine, chosen: Planner, limits: TileLimits
    ) -> Any:
        from tvm_npu.codegen.snowflake.plan.questions import answer

        return answer(problem, machine, chosen)

    def planners(self) -> Mapping[str, PlannerFactory]:
        return {"snowflake": _greedy, **dict.fromkeys(EXACT, _exact)}

    def loop_questions(
        self,
        problem: ConvProblem,
        machine: SnowflakeMachine,
        limits: TileLimits,
        splits_memory: bool,
    ) -> Iterator[LoopQuestion[SnowflakePlan]]:
        from tvm_npu.codegen.snowflake.plan.loop_machine import loop_questions

        return loop_questions(problem, machine, limits)

    def otherwise(
        self, problem: ConvProblem, machine: SnowflakeMachine, limits: TileLimits
    ) -> SnowflakePlan | Infeasible | None:
        """The paper's own choice, or why there is none."""
        found: SnowflakePlan | Infeasible = _greedy("snowflake", limits).plan(problem, machine)
        return found

    def rewrite(
        self, fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
    ) -> FixedGraph:
        from tvm_npu.codegen.snowflake.plan.behind import with_maxima
        from tvm_npu.codegen.snowflake.plan.beside import with_neighbours
        from tvm_npu.codegen.snowflake.plan.borders import with_padded_maps
        from tvm_npu.codegen.snowflake.plan.maxima_apart import with_maxima_apart
        from tvm_npu.codegen.snowflake.plan.reshapes import with_joined_reshapes
        from tvm_npu.codegen.snowflake.plan.side_by_side import with_pixels_side_by_side

        made = with_padded_maps(with_joined_reshapes(fixed))
        if planner.chosen.name == LAYERS_ALONE:
            return with_pixels_side_by_side(made, planner, machine)
        made = with_pixels_side_by_side(with_maxima(made, planner, machine), planner, machine)
        return with_neighbours(with_maxima_apart(made), planner, machine)

    def check(
        self, problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
    ) -> PlanFault | None:
        from tvm_npu.codegen.snowflake.plan.check import plan_fault

        return plan_fault(problem, plan, machine)

    def predict(
        self, problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
    ) -> Prediction:
        from tvm_npu.codegen.snowflake.plan.divide import predict

        return predict(problem, plan, machine)

    def predicted_cycles(
        self, layer: FixedLayer, problem: Any, plan: Any, machine: SnowflakeMachine
    ) -> float | None:
        from tvm_npu.codegen.snowflake.plan.questions import expected_cycles

        return expected_cycles(problem, plan, machine)

    def in_sequence(
        self, layers: tuple[PlannedLayer, ...], machine: SnowflakeMachine
    ) -> tuple[PlannedLayer, ...]:
        """Maxima run beside convolutions, unless these were planned alone. The first layer waits
        for its kernels; those of others come in the layer before."""
        from dataclasses import replace

        from tvm_npu.codegen.plan.problem import ConvProblem
        from tvm_npu.codegen.snowflake.plan.beside import beside
        from tvm_npu.codegen.snowflake.plan.divide import first_cycles

        layers = beside(layers, machine, alone=LAYERS_ALONE, least_bytes=LEAST_BYTES)
        if not layers or not isinstance(layers[0].problem, ConvProblem):
            return layers
        first = layers[0]
        cycles = first_cycles(first.problem, first.plan, machine)
        return (replace(first, predicted_cycles=cycles), *layers[1:])

    def graph_bound(self, planned: PlannedGraph, machine: SnowflakeMachine) -> GraphBound:
        """With an image a cluster, clusters load weights together."""
        from tvm_npu.codegen.graph_bound import graph_bound

        images = machine.clusters.count if planned.images == "apart" else 1
        return graph_bound(planned, machine.memory_bytes_per_cycle, images)

    def apart(self, machine: SnowflakeMachine) -> SnowflakeMachine | None:
        from tvm_npu.codegen.snowflake.plan.divide import one_cluster

        clusters = machine.clusters.count
        return None if clusters == 1 else one_cluster(machine, 1 / clusters)

    def emit(self, planned: PlannedGraph, machine: SnowflakeMachine) -> Emitted:
        from tvm_npu.codegen.snowflake.emit.region import SnowflakeRegion

        return SnowflakeRegion(planned, machine)


BACKEND = SnowflakeBackend()
