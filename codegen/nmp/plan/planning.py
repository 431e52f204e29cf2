"""The questions that a region's layers ask planners, and the answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import EmitError, PlanningError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.nmp.emit.windows import flat_problem, window_problem
from tvm_npu.codegen.nmp.plan.chains import candidates, window_of, with_chains
from tvm_npu.codegen.nmp.plan.window import (
    FlatPlan,
    FlatProblem,
    WindowPlan,
    WindowProblem,
    plan_flat,
    plan_window,
)
from tvm_npu.codegen.ops import FixedChain, FixedConv, FixedElementwise, FixedPad, FixedPool
from tvm_npu.codegen.plan import Planner, TileLimits
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

Problem = ConvProblem | WindowProblem | FlatProblem
Plan = ConvPlan | WindowPlan | FlatPlan


@dataclass(frozen=True)
class PlannedLayer:
    """A layer to execute, the question that it asks a planner, and the answer."""

    layer: FixedLayer
    problem: Problem
    plan: Plan

    @property
    def predicted_cycles(self) -> float | None:
        if isinstance(self.plan, ConvPlan):
            return None if self.plan.prediction is None else float(self.plan.prediction.cycles)
        return float(self.plan.cycles)


class LayerPlanner:
    """Answers for the layers of a region; equal problems are planned once."""

    def __init__(
        self, element_bytes: int, machine: NmpMachine, chosen: Planner, limits: TileLimits
    ) -> None:
        self.element_bytes, self.machine = element_bytes, machine
        self.chosen, self.limits = chosen, limits
        self._answers: dict[Problem, Plan | Infeasible] = {}

    def plan(self, layer: FixedLayer, shapes: dict[str, Shape]) -> PlannedLayer:
        """Raises PlanningError, with the layer and the Infeasible, when no plan fits."""
        problem, answer = self.answer(layer, shapes)
        if isinstance(answer, Infeasible):
            raise PlanningError(f"layer {layer.name!r}: {answer}", layer.name, answer)
        return PlannedLayer(layer, problem, answer)

    def answer(
        self, layer: FixedLayer, shapes: dict[str, Shape]
    ) -> tuple[Problem, Plan | Infeasible]:
        problem = problem_of(layer, shapes, self.element_bytes)
        if problem not in self._answers:
            if isinstance(problem, ConvProblem):
                found: Plan | Infeasible = self.chosen.plan(problem, self.machine)
            elif isinstance(problem, WindowProblem):
                found = _limited(plan_window(problem, self.machine), self.limits)
            else:
                found = plan_flat(problem, self.machine)
            self._answers[problem] = found
        return problem, self._answers[problem]

    def cycles(self, layer: FixedLayer, shapes: dict[str, Shape]) -> float:
        """Predicted time; infinite where no plan fits or the planner predicts nothing."""
        problem, answer = self.answer(layer, shapes)
        if isinstance(answer, Infeasible):
            return float("inf")
        predicted = PlannedLayer(layer, problem, answer).predicted_cycles
        return float("inf") if predicted is None else predicted


def plan_chains(fixed: FixedGraph, planner: LayerPlanner) -> FixedGraph:
    """The graph with the chains that are faster than their two layers; a layer is in one chain at
    most, the earlier one of two that overlap."""
    if not getattr(planner.chosen, "plans_windows", False) or planner.machine.ring is None:
        return fixed
    taken: list[FixedChain] = []
    used: set[str] = set()
    for chain in candidates(fixed):
        if used & {chain.conv.output, chain.output}:
            continue
        apart = sum(planner.cycles(layer, fixed.shapes) for layer in (chain.conv, chain.window))
        if planner.cycles(chain, fixed.shapes) < apart:
            taken.append(chain)
            used |= {chain.conv.output, chain.output}
    return with_chains(fixed, taken)


def problem_of(layer: FixedLayer, shapes: dict[str, Shape], element_bytes: int) -> Problem:
    """What a planner is asked for ``layer``."""
    if isinstance(layer, FixedChain):
        window = window_of(layer.window, shapes)
        conv = problem_of(layer.conv, shapes, element_bytes)
        assert isinstance(conv, ConvProblem)
        return replace(conv, window=window)
    in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
    if isinstance(layer, FixedConv):
        return conv_problem(layer, in_shape, out_shape, element_bytes)
    if isinstance(layer, FixedPool | FixedPad):
        return window_problem(layer, in_shape, out_shape, element_bytes)
    if isinstance(layer, FixedElementwise):
        return flat_problem(layer, out_shape, element_bytes)
    raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")


def _limited(plan: WindowPlan | Infeasible, limits: TileLimits) -> WindowPlan | Infeasible:
    if isinstance(plan, Infeasible):
        return plan
    return WindowPlan(
        plan.row_slices,
        plan.channel_slices,
        min(plan.tile_channels, limits.max_tile_m or plan.tile_channels),
        min(plan.tile_r, limits.max_tile_r or plan.tile_r),
        min(plan.tile_c, limits.max_tile_c or plan.tile_c),
        plan.cycles,
    )
