"""FixedGraph -> Program for a tile machine: storage, plans, steps, instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.ops.registry import kind_of
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES, Storage, plan_storage
from tvm_npu.codegen.plan import DEFAULT_PLANNER, NO_LIMITS, Planner, TileLimits, planner
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.format import (
    RELOCATION,
    CodeRange,
    LayerEntry,
    Program,
)
from tvm_npu.codegen.program.tables import (
    check_capacity,
    choices,
    plain,
    segment_sizes,
    state_slots,
    tensor_slots,
)
from tvm_npu.codegen.tiles.emit.commands import Command, listing
from tvm_npu.codegen.tiles.emit.emitters import emitter_for
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.plan.planning import LayerPlanner, PlannedLayer, precision_of
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.tiles.machine import TileMachine

STORED_TYPE: dict[int, np.dtype[Any]] = {1: np.dtype("<i1"), 2: np.dtype("<i2"), 4: np.dtype("<i4")}
BIAS_TYPE: np.dtype[Any] = np.dtype("<i4")


@dataclass(frozen=True)
class Generated:
    """Everything about a region before it becomes words."""

    storage: Storage
    layers: tuple[PlannedLayer, ...]
    operands: tuple[Operands, ...]
    constants: Constants
    activation_bytes: int
    """Tensors and, behind them, the area for partial sums."""
    planner: str

    def commands(self, index: int) -> Iterable[Command]:
        return self.layers[index].commands(self.operands[index])

    def listing(self) -> str:
        """The command level of all layers as text."""
        text = ""
        for index, one in enumerate(self.layers):
            plan = ", ".join(f"{name} {value}" for name, value in choices(one.plan).items())
            text += f"{kind_of(one.layer)} {one.layer.name}: {plan}\n"
            text += listing(self.commands(index), "  ")
        return text


def compile_fixed(
    fixed: FixedGraph,
    machine: MachineDescription,
    planner_name: str | Planner = DEFAULT_PLANNER,
    limits: TileLimits = NO_LIMITS,
) -> Program:
    """Compiles a fixed-point graph for a tile machine; the planner is one by name or one of the
    caller's own (which ``limits`` does not change).

    Raises PlanningError (with the layer and the Infeasible) when a layer fits no plan,
    CapacityError when the program needs more DRAM than there is, EmitError for a plan that the
    machine cannot run.
    """
    generated = generate(fixed, machine, planner_name, limits)
    assert isinstance(machine, TileMachine)
    return assemble(fixed, machine, generated)


def generate(
    fixed: FixedGraph,
    machine: MachineDescription,
    planner_name: str | Planner = DEFAULT_PLANNER,
    limits: TileLimits = NO_LIMITS,
) -> Generated:
    """Storage, plans and places of all layers."""
    if not isinstance(machine, TileMachine):
        raise EmitError(f"machine {machine.name!r} runs {machine.isa}, not tiles")
    chosen = planner(planner_name, limits) if isinstance(planner_name, str) else planner_name
    layer_planner = LayerPlanner(fixed, machine, chosen)
    return with_layers(fixed, machine, layer_planner.plan, chosen.name)


def with_layers(
    fixed: FixedGraph,
    machine: TileMachine,
    plan: Callable[[FixedLayer, dict[str, Shape]], PlannedLayer],
    planner_name: str,
) -> Generated:
    """Storage, the layers as ``plan`` plans them, and their places."""
    stored_bytes = machine.element_bytes(precision_of(fixed))
    storage = plan_storage(fixed, stored_bytes)
    planned = tuple(plan(layer, storage.shapes) for layer in storage.layers)
    partial = max((one.partial_bytes for one in planned), default=0)
    constants = Constants()
    operands = tuple(_operands(one, storage, constants, stored_bytes) for one in planned)
    activation_bytes = storage.size_bytes + -(-partial // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return Generated(storage, planned, operands, constants, activation_bytes, planner_name)


def _operands(
    one: PlannedLayer, storage: Storage, constants: Constants, stored_bytes: int
) -> Operands:
    layer = one.layer
    weight = bias = 0
    if isinstance(layer, FixedConv):
        name = f"layer {layer.name!r}"
        weight = constants.add(layer.weight, STORED_TYPE[stored_bytes], f"{name}, weights")
        bias = constants.add(layer.bias, BIAS_TYPE, f"{name}, biases")
    inputs = tuple(storage.offsets[tensor] for tensor in layer.inputs)
    output = storage.offsets[layer.output]
    return Operands(inputs, output, storage.size_bytes, weight, bias)


def assemble(fixed: FixedGraph, machine: TileMachine, generated: Generated) -> Program:
    """Words and tables of a generated region."""
    constants = Constants()
    constants.data.extend(generated.constants.data)
    emitter = emitter_for(machine, constants)
    entries = []
    for index, one in enumerate(generated.layers):
        emitter.code.layer = index
        begin = emitter.code.position
        emitter.emit(generated.commands(index))
        entries.append(
            LayerEntry(
                one.layer.name, kind_of(one.layer), one.layer.source, fixed.precision,
                plain(one.plan), one.predicted_cycles, one.macs,
                (CodeRange(begin, emitter.code.position),),
            )
        )  # fmt: skip
    emitter.finish()
    code = emitter.code.words()
    constants.data.extend(bytes(-len(constants.data) % ALIGNMENT_BYTES))
    stored_bytes = machine.element_bytes(precision_of(fixed))
    inputs, outputs, rest = tensor_slots(fixed, generated.storage, stored_bytes)
    program = Program(
        name=fixed.name,
        machine=machine.model_dump(),
        precision=fixed.precision,
        planner=generated.planner,
        inputs=inputs,
        outputs=outputs,
        intermediates=rest,
        segments=segment_sizes(
            code.nbytes,
            len(constants.data),
            generated.activation_bytes,
            generated.storage.state_bytes,
        ),
        parameter_offset=0,
        layers=tuple(entries),
        scopes=({},),
        code=code,
        constants=bytes(constants.data),
        relocations=np.array([], RELOCATION),
        debug=emitter.code.debug(),
        states=state_slots(fixed, generated.storage, stored_bytes),
    )
    check_capacity(program, machine)
    return program
