"""Planned layers as commands, whatever their type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedLayer
from tvm_npu.codegen.ops import (
    FixedBlock,
    FixedBroadcast,
    FixedConv,
    FixedDifference,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedMove,
    FixedPad,
    FixedPool,
    FixedRun,
)
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.boxes import Placed
from tvm_npu.codegen.tiles.emit.broadcast import broadcast_steps
from tvm_npu.codegen.tiles.emit.chains import ChainCommands, requantizing
from tvm_npu.codegen.tiles.emit.commands import Command
from tvm_npu.codegen.tiles.emit.convolution import (
    ConvCommands,
    partial_bytes,
    plan_actions,
    stated_taps,
)
from tvm_npu.codegen.tiles.emit.direct import direct_commands
from tvm_npu.codegen.tiles.emit.flat import flat_steps
from tvm_npu.codegen.tiles.emit.layer import LayerSteps, Operands
from tvm_npu.codegen.tiles.emit.length import fewest_instructions, too_long
from tvm_npu.codegen.tiles.emit.maxima import maximum_steps
from tvm_npu.codegen.tiles.emit.moves import move_steps
from tvm_npu.codegen.tiles.emit.pads import border_steps, copy_steps
from tvm_npu.codegen.tiles.emit.pools import pool_steps
from tvm_npu.codegen.tiles.emit.runs import chain_cycles, run_cycles, run_steps
from tvm_npu.codegen.tiles.plan.broadcast import BroadcastShape, BroadcastTiles
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    chain_fault,
    chain_places,
)
from tvm_npu.codegen.tiles.plan.direct import DirectPlan
from tvm_npu.codegen.tiles.plan.flat import FlatShape, FlatTiles
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.codegen.tiles.plan.moves import MoveShape, MoveTiles
from tvm_npu.codegen.tiles.plan.pads import PadShape, PadTiles
from tvm_npu.codegen.tiles.plan.pools import WindowShape, WindowTiles
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem, run_fault
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine

_NOWHERE = 0
_MOST_PARTS = 3
"""Convolutions of a chain."""


@dataclass(frozen=True)
class LayerCommands:
    """A layer's commands once its operands have places, the bytes that its partial sums take
    outside of the chip, and how many instructions it becomes at least (0: nobody knows)."""

    commands: Callable[[Operands], Iterable[Command]]
    partial_bytes: int = 0
    fewest_instructions: int = 0


def layer_commands(
    one: PlannedLayer, machine: TileMachine, numbers: tuple[int, int], planner: str
) -> LayerCommands:
    """``numbers`` are the smallest and largest of an element. EmitError for a plan that the machine
    cannot run; it names the ``planner``."""
    if isinstance(one.problem, ConvProblem):
        return _convolution(one, machine, planner)
    return LayerCommands(
        lambda operands: layer_steps(
            one.layer, one.problem, one.plan, machine, numbers, operands
        ).commands(),
        fewest_instructions=fewest_instructions(one.problem, one.plan, machine),
    )


def _convolution(one: PlannedLayer, machine: TileMachine, planner: str) -> LayerCommands:
    layer, problem, plan = one.layer, one.problem, one.plan
    assert isinstance(layer, FixedConv)
    if isinstance(plan, DirectPlan):
        return LayerCommands(lambda operands: direct_commands(layer, problem, operands))
    where = f"layer {layer.name!r}: planner {planner!r}"
    if not isinstance(plan, LoopPlan):
        raise EmitError(
            f"{where} answers with a {type(plan).__name__}; machine {machine.name!r} takes a "
            "LoopPlan"
        )
    fault = check_loop_plan(problem, plan, loop_machine(machine))
    if fault is not None:
        raise EmitError(f"{where}: {fault}")

    def commands(operands: Operands) -> Iterable[Command]:
        actions = plan_actions(problem, plan, machine)
        taps = stated_taps(plan.taps_at_once, machine)
        made = ConvCommands(layer, problem, operands, plan.touched_only, taps)
        return made.commands(actions)

    fewest = fewest_instructions(problem, plan, machine)
    return LayerCommands(commands, partial_bytes(problem, plan), fewest)


def layer_steps(
    layer: FixedLayer,
    problem: Any,
    plan: Any,
    machine: TileMachine,
    numbers: tuple[int, int],
    operands: Operands,
) -> LayerSteps:
    """The steps of a layer that is no convolution."""
    return _STEPS[type(layer)](layer, problem, plan, machine, numbers, operands)


def predicted_cycles(
    layer: FixedLayer, problem: Any, plan: Any, machine: TileMachine
) -> float | None:
    """Of any planned layer; infinite where its code is too long for every program. Times do not
    hang on where operands lie, nor on their numbers."""
    if isinstance(problem, ConvProblem):
        return None if plan.prediction is None else float(plan.prediction.cycles)
    if too_long(problem, plan, machine):
        return inf  # its steps take as long to count as to emit
    if isinstance(problem, ChainProblem):
        _require(layer, chain_fault(problem, plan, machine))
        return chain_cycles(problem, plan, machine)
    if isinstance(problem, RunProblem):
        _require(layer, run_fault(problem, plan, machine))
        return run_cycles(problem, plan, machine)
    nowhere = Operands(
        (_NOWHERE,) * len(layer.inputs), _NOWHERE, parts=((_NOWHERE, _NOWHERE),) * _MOST_PARTS
    )
    steps = layer_steps(layer, problem, plan, machine, element_limits(2), nowhere)
    return steps.predicted_cycles(machine, problem.element_bytes)


def _placed(address: int, shape: tuple[int, int, int], size: int) -> Placed:
    return Placed(TileMemory.ACTIVATIONS, address, shape, size)


def _pool(
    layer: FixedPool, shape: WindowShape, tiles: WindowTiles, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    size = shape.element_bytes
    in_shape = (shape.channels, shape.in_rows, shape.in_columns)
    source = _placed(operands.inputs[0], in_shape, size)
    target = _placed(operands.output, (shape.channels, shape.rows, shape.columns), size)
    return LayerSteps(pool_steps(layer, shape, tiles, machine, source, target), tiles.buffers)


def _pad(
    layer: FixedPad, shape: PadShape, tiles: PadTiles, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    source = _placed(operands.inputs[0], shape.source, shape.element_bytes)
    target = _placed(operands.output, shape.result, shape.element_bytes)
    made = copy_steps(shape, tiles, machine, source, target, numbers)
    return LayerSteps(made, tiles.buffers, border_steps(layer, shape, tiles, target))


def _flat(
    layer: FixedElementwise, shape: FlatShape, tiles: FlatTiles, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    return LayerSteps(flat_steps(layer, shape, tiles, machine, operands), tiles.buffers)


def _move(
    layer: FixedMove, shape: MoveShape, tiles: MoveTiles, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    return LayerSteps(move_steps(shape, tiles, machine, operands), tiles.buffers)


def _maximum(
    layer: FixedMaximum | FixedMaxFeatureMap, shape: FlatShape, tiles: FlatTiles,
    machine: TileMachine, numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    """The halves of one tensor lie one behind the other."""
    first, *more = operands.inputs
    sources = (first, more[0] if more else first + shape.elements * shape.element_bytes)
    made = maximum_steps(layer, shape, tiles, machine, sources, operands.output)
    return LayerSteps(made, tiles.buffers)


def _broadcast(
    layer: FixedBroadcast, shape: BroadcastShape, tiles: BroadcastTiles, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    made = broadcast_steps(layer, shape, tiles, machine, numbers, operands)
    return LayerSteps(made, tiles.buffers)


def _chain(
    layer: FixedBlock, problem: ChainProblem, plan: ChainPlan, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    _require(layer, chain_fault(problem, plan, machine))
    tiles = ChainTiles(problem, plan.tile_rows, plan.tile_channels, plan.keeps_rows)
    places = chain_places(tiles, plan.buffers, machine)
    assert places is not None  # there is no fault
    made = ChainCommands(requantizing(layer), tiles, places, machine, operands)
    return LayerSteps(made.steps(), plan.buffers)


def _run(
    layer: FixedRun, problem: RunProblem, plan: RunPlan, machine: TileMachine,
    numbers: tuple[int, int], operands: Operands,
) -> LayerSteps:  # fmt: skip
    _require(layer, run_fault(problem, plan, machine))
    return LayerSteps(run_steps(layer, problem, plan, machine, operands), plan.buffers)


def _require(layer: FixedLayer, fault: PlanFault | None) -> None:
    if fault is not None:
        raise EmitError(f"layer {layer.name!r}: {fault}")


_STEPS: Mapping[type[FixedLayer], Callable[..., LayerSteps]] = {
    FixedBlock: _chain,
    FixedRun: _run,
    FixedPool: _pool,
    FixedPad: _pad,
    FixedElementwise: _flat,
    FixedMove: _move,
    FixedMaximum: _maximum,
    FixedMaxFeatureMap: _maximum,
    FixedBroadcast: _broadcast,
    FixedDifference: _broadcast,
}
