"""The questions that layers ask on a tile machine, and who answers them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, chw
from tvm_npu.codegen.ops import (
    FixedBlock,
    FixedBroadcast,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedMove,
    FixedPad,
    FixedPool,
    FixedRun,
)
from tvm_npu.codegen.passes.mirrors import with_moved_mirrors
from tvm_npu.codegen.passes.phases import with_phases
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.planner import Planner, goal
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.plan.broadcast import BroadcastShape, broadcast_tiles
from tvm_npu.codegen.tiles.plan.chain import ChainProblem
from tvm_npu.codegen.tiles.plan.chains import Clock, chain_problem, plan_chain
from tvm_npu.codegen.tiles.plan.flat import FlatShape, flat_tiles
from tvm_npu.codegen.tiles.plan.joining import with_chains
from tvm_npu.codegen.tiles.plan.moves import MoveShape, move_shape, move_tiles
from tvm_npu.codegen.tiles.plan.pads import PadShape, pad_shape, pad_tiles
from tvm_npu.codegen.tiles.plan.pools import WindowShape, window_tiles
from tvm_npu.codegen.tiles.plan.run import RunProblem
from tvm_npu.codegen.tiles.plan.runs import RunClock, plan_run, run_problem
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import TileMachine

Question = (
    WindowShape | PadShape | MoveShape | BroadcastShape | FlatShape | ChainProblem | RunProblem
)


def rewritten(fixed: FixedGraph, planner: LayerPlanner, machine: TileMachine) -> FixedGraph:
    """The graph in layers that tile machines have code for: transposed convolutions by their
    phases, reflection paddings as moves; and with chains and runs of them."""
    return with_chains(with_moved_mirrors(with_phases(fixed)), planner, machine)


def question(
    layer: FixedLayer, shapes: Mapping[str, Shape], precision: Precision, machine: TileMachine
) -> Question:
    """What is asked about a ``layer`` that is no convolution (`LoopBackend.conv_problem`); widths
    are those in the machine's memories."""
    if isinstance(layer, FixedBlock):
        return chain_problem(layer, shapes, precision, machine)
    if isinstance(layer, FixedRun):
        return run_problem(layer, shapes, precision, machine)
    size = machine.element_bytes(precision)
    in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
    if isinstance(layer, FixedPool):
        channels, rows, columns = chw(out_shape)
        _, in_rows, in_columns = chw(in_shape)
        return WindowShape(
            channels, rows, columns, in_rows, in_columns, layer.kernel, layer.stride,
            (layer.padding[0], layer.padding[1]), size,
        )  # fmt: skip
    if isinstance(layer, FixedPad):
        return pad_shape(layer, chw(in_shape), chw(out_shape), size)
    if isinstance(layer, FixedMove):
        return move_shape(layer, size)
    if isinstance(layer, FixedElementwise):
        return FlatShape(prod(out_shape), len(layer.inputs), size)
    if isinstance(layer, FixedMaximum | FixedMaxFeatureMap):
        return FlatShape(prod(out_shape), 2, size, stacked=True)
    if isinstance(layer, FixedBroadcast):
        sum_bytes = machine.accumulator_bytes(precision)
        return BroadcastShape(out_shape[0], prod(out_shape[1:]), size, sum_bytes)
    raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")


def answer(
    asked: ConvProblem | Question,
    machine: TileMachine,
    chosen: Planner,
    clocks: tuple[Clock, RunClock],
    limits: TileLimits,
) -> Any:
    """A plan or Infeasible: of ``chosen`` for convolutions, else of the one that there is;
    ``clocks`` time chains and runs, which keep to ``limits``."""
    if isinstance(asked, ConvProblem):
        return chosen.plan(asked, machine)
    if isinstance(asked, ChainProblem):
        return plan_chain(asked, machine, chosen.name, clocks[0], limits, goal(chosen))
    if isinstance(asked, RunProblem):
        return plan_run(asked, machine, chosen.name, clocks[1], limits, goal(chosen))
    if isinstance(asked, WindowShape):
        return window_tiles(asked, machine)
    if isinstance(asked, PadShape):
        return pad_tiles(asked, machine)
    if isinstance(asked, MoveShape):
        return move_tiles(asked, machine)
    if isinstance(asked, BroadcastShape):
        return broadcast_tiles(asked, machine)
    return flat_tiles(asked, machine)
