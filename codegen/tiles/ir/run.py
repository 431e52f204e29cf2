"""Execution plans in text as programs: the actions that were read, with a layer's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.compile import Generated
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph import FixedGraph, q_point_scales
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.passes.storage import plan_storage
from tvm_npu.codegen.plan.layers import PlannedLayer, question_of
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.tiles.emit.actions import Multiply, Store
from tvm_npu.codegen.tiles.emit.commands import Command
from tvm_npu.codegen.tiles.emit.compiler import with_commands
from tvm_npu.codegen.tiles.emit.convolution import (
    ConvCommands,
    partial_area_bytes,
    stated_taps,
)
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.emit.layers import LayerCommands
from tvm_npu.codegen.tiles.ir.document import Ir
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.tiles.machine import TileMachine

MOST_ELEMENTS = 1 << 28
"""Of a random tensor."""

PLANNER = "text"
"""What the programs of execution plans in text name as their planner."""


@dataclass(frozen=True)
class TextPlan:
    """Stands for a plan in the layer table: how many actions the text has."""

    actions: int


def assemble_ir(ir: Ir, fixed: FixedGraph, machine: TileMachine) -> Program:
    """The program of a graph whose one layer is the convolution that ``ir`` computes.

    Raises EmitError when the text and the layer are not about the same convolution, or when the
    text's memories do not fit the machine.
    """
    if len(fixed.layers) != 1 or not isinstance(fixed.layers[0], FixedConv):
        raise EmitError("an execution plan in text is of one convolution; the graph has others")
    layer = fixed.layers[0]
    problem = question_of(layer, fixed, machine)
    assert isinstance(problem, ConvProblem)
    _require_same(ir.problem, problem, layer.name)
    actions = tuple(ir.placed(machine))
    _require_taps(ir, machine)
    taps = stated_taps(ir.taps_at_once, machine)
    partial = any(isinstance(action, Store) and action.partial for action in actions)

    def commands(operands: Operands) -> Iterable[Command]:
        return ConvCommands(layer, problem, operands, ir.touched_only, taps).commands(actions)

    made = LayerCommands(commands, partial_area_bytes(problem) if partial else 0)
    storage = plan_storage(fixed, machine.stored_element_bytes)
    layers = tuple(
        PlannedLayer(one, problem, TextPlan(len(actions))) for one in storage.layers
    )
    planned = PlannedGraph(fixed, machine, fixed.precision, storage, layers, PLANNER)
    return Generated(planned, with_commands(planned, machine, lambda _: made)).program()


def check_fits(ir: Ir, machine: TileMachine) -> None:
    """EmitError when the text asks for what the machine does not have; nothing is computed."""
    ir.offsets(machine)
    _require_taps(ir, machine)


def random_bytes(problem: ConvProblem, element_bytes: int) -> int:
    """What the tensors of `random_layer`, its input and its results take of the host, about."""
    return element_bytes * sum(
        map(math.prod, (_image(problem), _weights(problem), _out(problem)))
    )  # fmt: skip


def _image(problem: ConvProblem) -> tuple[int, ...]:
    return problem.channels, problem.in_rows, problem.in_columns


def _weights(problem: ConvProblem) -> tuple[int, ...]:
    return problem.filters, problem.channels // problem.groups, *problem.kernel


def _out(problem: ConvProblem) -> tuple[int, ...]:
    return problem.filters, problem.rows, problem.columns


def _require_taps(ir: Ir, machine: TileMachine) -> None:
    """The machine can take so many taps at once beside the channels of every CONV."""
    depths = [action.weight.tile.rows[1] for action in ir.actions if isinstance(action, Multiply)]
    deepest = max(depths, default=1)
    most = loop_machine(machine).most_taps(deepest, math.prod(ir.problem.kernel))
    if ir.taps_at_once > most:
        raise EmitError(
            f"TAPS({ir.taps_at_once}): machine {machine.name!r} takes at most {most} at a time "
            f"beside {deepest} channels"
        )


def _require_same(text: ConvProblem, layer: ConvProblem, name: str) -> None:
    for field in (
        "filters", "channels", "groups", "rows", "columns", "in_rows", "in_columns", "kernel",
        "stride", "dilation", "element_bytes", "accumulator_bytes", "has_residual",
    ):  # fmt: skip
        said, wanted = getattr(text, field), getattr(layer, field)
        if said != wanted and not _is_free(field, layer):
            raise EmitError(f"layer {name!r}: {field} is {wanted}, in the text {said}")
    if text.padding[:2] != layer.padding[:2]:
        raise EmitError(
            f"layer {name!r}: padding in front of rows and columns is {layer.padding[:2]}, in the "
            f"text {text.padding[:2]}"
        )


def _is_free(field: str, layer: ConvProblem) -> bool:
    """Strides over a single place say nothing, and text without a CONV has none."""
    return field == "stride" and layer.rows * layer.columns == 1


def random_layer(
    problem: ConvProblem, element_bytes: Literal[1, 2], seed: int, name: str = "layer"
) -> FixedGraph:
    """A graph of the convolution ``problem`` with random weights, biases and requantization.
    EmitError for tensors of more than `MOST_ELEMENTS`."""
    image, weights, out = _image(problem), _weights(problem), _out(problem)
    for tensor, extents in (("INPUT", image), ("WEIGHT", weights), ("OUTPUT", out)):
        if math.prod(extents) > MOST_ELEMENTS:
            raise EmitError(
                f"{tensor} of {' x '.join(map(str, extents))} elements: random tensors have at "
                f"most {MOST_ELEMENTS}"
            )
    generator = np.random.default_rng(seed)
    low, high = element_limits(element_bytes)
    weight = generator.integers(low, high + 1, weights, ELEMENT_TYPE[element_bytes])
    depth = math.prod(weights[1:])
    inputs = ("x", "z") if problem.has_residual else ("x",)
    layer = FixedConv(
        name, inputs, ("y",), weight=weight,
        bias=generator.integers(-(1 << 16), 1 << 16, problem.filters).astype(np.int32),
        stride=problem.stride, padding=problem.padding, dilation=problem.dilation,
        groups=problem.groups, shift=8 * element_bytes - 1 + depth.bit_length() // 2, low=low,
        high=high,
    )  # fmt: skip
    shapes = {"x": image, "y": out, "z": out}
    return FixedGraph(
        (layer,), {tensor: shapes[tensor] for tensor in (*inputs, "y")}, inputs, ("y",),
        q_point_scales(dict.fromkeys((*inputs, "y"), 0)), element_bytes, name,
    )  # fmt: skip
