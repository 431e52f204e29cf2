"""The questions that a region's layers ask a backend, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.planner import Planner
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.plan.registry import planner_on
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision


@dataclass(frozen=True)
class PlannedLayer:
    """A layer to execute, the question that it asks, and the answer: of the backend's types."""

    layer: FixedLayer
    problem: Any
    plan: Any
    predicted_cycles: float | None = None


def question_of(layer: FixedLayer, fixed: FixedGraph, machine: MachineDescription) -> Any:
    """What is asked about a layer of ``fixed``: see `Backend.problem`."""
    return backend_of(machine).problem(layer, fixed.shapes, fixed.precision_of(layer), machine)


class LayerPlanner:
    """Answers for the layers of a region on a machine; equal questions are answered once.

    Layers that compute with another precision than that of the region come with theirs."""

    def __init__(
        self,
        precision: Precision,
        machine: MachineDescription,
        chosen: Planner,
        limits: TileLimits = NO_LIMITS,
    ) -> None:
        self.precision, self.machine, self.limits = precision, machine, limits
        self.backend = backend_of(machine)
        self.chosen = planner_on(chosen, machine)
        self._answers: dict[Any, Any] = {}

    def plan(
        self, layer: FixedLayer, shapes: Mapping[str, Shape], precision: Precision | None = None
    ) -> PlannedLayer:
        """Raises PlanningError, with the layer and the Infeasible, when no plan fits; EmitError for
        a layer without code."""
        return self.predicted(self.without_cycles(layer, shapes, precision))

    def without_cycles(
        self, layer: FixedLayer, shapes: Mapping[str, Shape], precision: Precision | None = None
    ) -> PlannedLayer:
        """`plan` without the predicted time, which takes long where tiles are many."""
        problem, answer = self.answer(layer, shapes, precision)
        if isinstance(answer, Infeasible):
            raise PlanningError(f"layer {layer.name!r}: {answer}", layer.name, answer)
        return PlannedLayer(layer, problem, answer)

    def predicted(self, one: PlannedLayer) -> PlannedLayer:
        """``one`` with its predicted time."""
        cycles = self.backend.predicted_cycles(one.layer, one.problem, one.plan, self.machine)
        return replace(one, predicted_cycles=cycles)

    def answer(
        self, layer: FixedLayer, shapes: Mapping[str, Shape], precision: Precision | None = None
    ) -> tuple[Any, Any]:
        """The question of ``layer``, and the plan or Infeasible."""
        problem = self.backend.problem(layer, shapes, precision or self.precision, self.machine)
        if problem not in self._answers:
            self._answers[problem] = self.backend.plan(
                problem, self.machine, self.chosen, self.limits
            )
        return problem, self._answers[problem]

    def cycles(
        self, layer: FixedLayer, shapes: Mapping[str, Shape], precision: Precision | None = None
    ) -> float:
        """Predicted time; infinite where no plan fits or nothing is predicted."""
        problem, answer = self.answer(layer, shapes, precision)
        if isinstance(answer, Infeasible):
            return float("inf")
        cycles = self.backend.predicted_cycles(layer, problem, answer, self.machine)
        return float("inf") if cycles is None else cycles
