"""The questions that the layers of a region ask on a tile machine, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm_npu.codegen.errors import EmitError, PlanningError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, chw
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPad, FixedPool
from tvm_npu.codegen.plan import Planner
from tvm_npu.codegen.plan.loops.plan import TilePlan
from tvm_npu.codegen.plan.loops.room import check_tile_plan
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.emit.commands import Command
from tvm_npu.codegen.tiles.emit.convolution import ConvCommands, partial_bytes, plan_actions
from tvm_npu.codegen.tiles.emit.direct import direct_commands
from tvm_npu.codegen.tiles.emit.flat import FlatShape, flat_steps, flat_tiles
from tvm_npu.codegen.tiles.emit.layer import LayerSteps, Operands, feature_map
from tvm_npu.codegen.tiles.emit.pads import (
    PadShape,
    border_steps,
    copy_steps,
    pad_shape,
    pad_tiles,
)
from tvm_npu.codegen.tiles.emit.pools import (
    WindowShape,
    pool_steps,
    window_tiles,
)
from tvm_npu.codegen.tiles.plan.direct import DirectPlan
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import TileMachine

Plan = Any
"""A dataclass: TilePlan, WindowTiles, PadTiles, FlatTiles, or what stands for a plan."""


@dataclass(frozen=True)
class PlannedLayer:
    """A layer to execute, its plan, and its commands once its operands have places."""

    layer: FixedLayer
    plan: Plan
    macs: int
    partial_bytes: int
    commands: Callable[[Operands], Iterable[Command]]
    predicted_cycles: float | None


def precision_of(fixed: FixedGraph) -> Precision:
    return "int8" if fixed.element_bytes == 1 else "int16"


def stored_problem(layer: FixedConv, fixed: FixedGraph, machine: TileMachine) -> ConvProblem:
    """What a planner is asked for a convolution: widths are those in the machine's memories."""
    shapes, precision = fixed.shapes, precision_of(fixed)
    in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
    problem = conv_problem(layer, in_shape, out_shape, machine.element_bytes(precision))
    return replace(problem, accumulator_bytes=machine.accumulator_bytes(precision))


class LayerPlanner:
    """Answers for the layers of a region; equal convolutions are planned once."""

    def __init__(self, fixed: FixedGraph, machine: TileMachine, chosen: Planner) -> None:
        self.fixed, self.machine, self.chosen = fixed, machine, chosen
        self.numbers = element_limits(fixed.element_bytes)
        self.stored_bytes = machine.element_bytes(precision_of(fixed))
        self._answers: dict[ConvProblem, TilePlan | DirectPlan] = {}

    def plan(self, layer: FixedLayer, shapes: dict[str, Shape]) -> PlannedLayer:
        """Raises PlanningError, with the layer and the Infeasible, when no plan fits, EmitError
        for a plan that the machine cannot run or a layer without code."""
        make = _KINDS.get(type(layer))
        if make is None:
            raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")
        try:
            return make(self, layer, shapes)
        except _NoPlan as stop:
            found = stop.infeasible
            raise PlanningError(f"layer {layer.name!r}: {found}", layer.name, found) from None

    def _conv(self, layer: FixedConv, shapes: dict[str, Shape]) -> PlannedLayer:
        problem = stored_problem(layer, self.fixed, self.machine)
        if problem not in self._answers:
            self._answers[problem] = self._answer(layer.name, problem)
        plan = self._answers[problem]
        if isinstance(plan, DirectPlan):
            return PlannedLayer(
                layer, plan, problem.macs, 0,
                lambda operands: direct_commands(layer, problem, operands), None,
            )  # fmt: skip
        tiled = plan

        def commands(operands: Operands) -> Iterable[Command]:
            actions = plan_actions(problem, tiled, self.machine)
            return ConvCommands(layer, problem, operands).commands(actions)

        return PlannedLayer(
            layer, plan, problem.macs, partial_bytes(problem, plan), commands,
            None if plan.prediction is None else float(plan.prediction.cycles),
        )  # fmt: skip

    def _answer(self, name: str, problem: ConvProblem) -> TilePlan | DirectPlan:
        found: Any = self.chosen.plan(problem, self.machine)  # type: ignore[arg-type]
        if isinstance(found, Infeasible):
            raise _NoPlan(found)
        if isinstance(found, DirectPlan):
            return found
        if not isinstance(found, TilePlan):
            raise EmitError(
                f"layer {name!r}: planner {self.chosen.name!r} answers with a "
                f"{type(found).__name__}; machine {self.machine.name!r} takes a TilePlan"
            )
        fault = check_tile_plan(problem, found, self.machine)
        if fault is not None:
            raise EmitError(f"layer {name!r}: planner {self.chosen.name!r}: {fault}")
        return found

    def _pool(self, layer: FixedPool, shapes: dict[str, Shape]) -> PlannedLayer:
        in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
        channels, rows, columns = chw(out_shape)
        _, in_rows, in_columns = chw(in_shape)
        window = WindowShape(
            channels, rows, columns, in_rows, in_columns, layer.kernel, layer.stride,
            (layer.padding[0], layer.padding[1]), self.stored_bytes,
        )  # fmt: skip
        tiles = _found(window_tiles(window, self.machine))

        def steps(operands: Operands) -> LayerSteps:
            source = feature_map(operands.inputs[0], in_shape, self.stored_bytes)
            target = feature_map(operands.output, out_shape, self.stored_bytes)
            made = pool_steps(layer, window, tiles, self.machine, source, target)
            return LayerSteps(made, tiles.buffers)

        return self._planned(layer, tiles, steps)

    def _pad(self, layer: FixedPad, shapes: dict[str, Shape]) -> PlannedLayer:
        in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
        shape: PadShape = pad_shape(layer, chw(in_shape), chw(out_shape), self.stored_bytes)
        tiles = _found(pad_tiles(shape, self.machine))

        def steps(operands: Operands) -> LayerSteps:
            source = feature_map(operands.inputs[0], in_shape, self.stored_bytes)
            target = feature_map(operands.output, out_shape, self.stored_bytes)
            made = copy_steps(shape, tiles, self.machine, source, target, self.numbers)
            return LayerSteps(made, tiles.buffers, border_steps(layer, shape, tiles, target))

        return self._planned(layer, tiles, steps)

    def _flat(self, layer: FixedElementwise, shapes: dict[str, Shape]) -> PlannedLayer:
        shape = FlatShape(prod(shapes[layer.output]), len(layer.inputs), self.stored_bytes)
        tiles = _found(flat_tiles(shape, self.machine))

        def steps(operands: Operands) -> LayerSteps:
            made = flat_steps(layer, shape, tiles, self.machine, operands)
            return LayerSteps(made, tiles.buffers)

        return self._planned(layer, tiles, steps)

    def _planned(
        self, layer: FixedLayer, plan: Plan, steps: Callable[[Operands], LayerSteps]
    ) -> PlannedLayer:
        """Times do not hang on where operands lie."""
        made = steps(Operands((0,) * len(layer.inputs), 0))
        cycles = made.estimated_cycles(self.machine)
        return PlannedLayer(layer, plan, 0, 0, lambda at: steps(at).commands(), cycles)


class _NoPlan(Exception):
    def __init__(self, infeasible: Infeasible) -> None:
        super().__init__(str(infeasible))
        self.infeasible = infeasible


def _found(tiles: Any) -> Any:
    if isinstance(tiles, Infeasible):
        raise _NoPlan(tiles)
    return tiles


_KINDS: dict[type, Callable[..., PlannedLayer]] = {
    FixedConv: LayerPlanner._conv,
    FixedPool: LayerPlanner._pool,
    FixedPad: LayerPlanner._pad,
    FixedElementwise: LayerPlanner._flat,
}
