"""From an NPU graph with calibration ranges to a Program, for machines of every kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tvm_npu.codegen.backend import Emitted, Images, PlannedGraph
from tvm_npu.codegen.backends import backend_of, machine_apart
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.least import least_needs
from tvm_npu.codegen.ops.registry import (
    check_requantization,
    check_support,
    kind_of,
    layer_macs,
)
from tvm_npu.codegen.passes.averages import with_pools_in_parts
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS, Adjustments
from tvm_npu.codegen.passes.storage import plan_storage
from tvm_npu.codegen.phases import phase
from tvm_npu.codegen.plan import DEFAULT_PLANNER, NO_LIMITS, Planner, TileLimits
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.plan.layers import LayerPlanner, precision_of
from tvm_npu.codegen.program.code import Code
from tvm_npu.codegen.program.format import LayerEntry, Program
from tvm_npu.codegen.program.tables import (
    check_capacity,
    choices,
    plain,
    segment_sizes,
    state_slots,
    tensor_slots,
)
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision


@dataclass(frozen=True)
class CompileOptions:
    """What a user chooses; ``precision`` None takes the machine's default. ``tuning_log`` is for
    the planners that plan by one; ``images`` says what clusters do with a batch. ``adjustments``
    are what calibration changes in the fused graph, whose ranges are those of the changed one."""

    precision: Precision | None = None
    planner: str = DEFAULT_PLANNER
    limits: TileLimits = NO_LIMITS
    tuning_log: Path | None = None
    images: Images = "together"
    adjustments: Adjustments = NO_ADJUSTMENTS


@dataclass(frozen=True)
class Generated:
    """Everything about a region before it becomes words."""

    planned: PlannedGraph
    emitted: Emitted

    def listing(self) -> str:
        """The command level of all layers as text."""
        text = ""
        for index, one in enumerate(self.planned.layers):
            plan = ", ".join(f"{name} {value}" for name, value in choices(one.plan).items())
            text += f"{kind_of(one.layer)} {one.layer.name}: {plan}\n"
            text += self.emitted.text(index)
        return text

    @phase("emit")
    def program(self) -> Program:
        """Words and tables. CapacityError when they need more DRAM than there is."""
        program = _program(self.planned, self.emitted.assemble())
        check_capacity(program, self.planned.machine)
        return program


@phase("quantize")
def fixed_graph(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions = CompileOptions(),
) -> FixedGraph:
    """fuse -> adjust -> quantize: the integers that the program of `compile_graph` computes. Pools
    that do not fit the machine become two in between (`passes.averages`)."""
    precision = options.precision or machine.default_precision
    adjusted = adjusted_graph(graph, machine, options)
    parted, ranges = with_pools_in_parts(adjusted, ranges, least_needs(machine, precision))
    return quantize(parted, ranges, precision, machine.requantization(precision))


def adjusted_graph(graph: Graph, machine: MachineDescription, options: CompileOptions) -> Graph:
    """fuse -> adjust: what is quantized."""
    return options.adjustments.apply(fuse(graph, backend_of(machine).made(machine)))


def compile_graph(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions = CompileOptions(),
) -> Program:
    """fuse -> quantize -> plan -> emit. Raises the typed errors of `codegen.errors`."""
    fixed = fixed_graph(graph, ranges, machine, options)
    chosen = planner_called(options.planner, options.limits, options.tuning_log)
    return compile_fixed(fixed, machine, chosen, options.limits, options.images)


def compile_fixed(
    fixed: FixedGraph,
    machine: MachineDescription,
    planner: str | Planner = DEFAULT_PLANNER,
    limits: TileLimits = NO_LIMITS,
    images: Images = "together",
) -> Program:
    """plan -> emit; the planner is one by name or one of the caller's own (which ``limits`` does
    not change). With ``images`` "apart" a run of the program computes an image in each cluster.

    Raises BackendError where the machine cannot do that, UnsupportedLayerError for a layer that the
    machine has no code for, PlanningError (with the layer and the Infeasible) when a layer fits no
    plan, CapacityError when the program needs more DRAM than there is, EmitError for a plan that
    the machine cannot run.
    """
    return generate(fixed, machine, planner, limits, images).program()


def generate(
    fixed: FixedGraph,
    machine: MachineDescription,
    planner: str | Planner = DEFAULT_PLANNER,
    limits: TileLimits = NO_LIMITS,
    images: Images = "together",
) -> Generated:
    """`compile_fixed` up to the command level."""
    chosen = planner_called(planner, limits) if isinstance(planner, str) else planner
    asked = machine if images == "together" else machine_apart(machine)
    layer_planner = LayerPlanner(precision_of(fixed), asked, chosen, limits)
    planned = replace(plan_graph(fixed, layer_planner), machine=machine, images=images)
    with phase("emit"):
        return Generated(planned, layer_planner.backend.emit(planned, machine))


@phase("plan")
def plan_graph(fixed: FixedGraph, planner: LayerPlanner) -> PlannedGraph:
    """ask -> plan: the layers that are executed, their plans, and where their tensors lie.

    Raises UnsupportedLayerError for a layer that the machine has no code for, before any is
    planned."""
    machine, precision = planner.machine, planner.precision
    check_support(fixed.layers, planner.backend.layer_types, machine.name)
    check_requantization(fixed.layers, machine.requantization(precision), machine.name)
    rewritten = planner.backend.rewrite(fixed, planner, machine)
    stored_bytes, layout = machine.stored_element_bytes(precision), planner.backend.layout
    storage = plan_storage(rewritten, stored_bytes, layout, planner.backend.layers_beside)
    check_support(storage.layers, planner.backend.layer_types, machine.name)
    layers = tuple(planner.plan(layer, storage.shapes) for layer in storage.layers)
    layers = planner.backend.in_sequence(layers, machine)
    return PlannedGraph(rewritten, machine, precision, storage, layers, planner.chosen.name)


def _program(planned: PlannedGraph, code: Code) -> Program:
    fixed, machine = planned.fixed, planned.machine
    storage, stored_bytes = planned.storage, machine.stored_element_bytes(planned.precision)
    inputs, outputs, rest = tensor_slots(fixed, storage, stored_bytes)
    entries = tuple(
        LayerEntry(
            one.layer.name, kind_of(one.layer), one.layer.source, fixed.precision,
            plain(one.plan), one.predicted_cycles, layer_macs(one.layer, storage.shapes), ranges,
        )
        for one, ranges in zip(planned.layers, code.layers, strict=True)
    )  # fmt: skip
    return Program(
        name=fixed.name,
        machine=machine.model_dump(),
        precision=fixed.precision,
        planner=planned.planner,
        inputs=inputs,
        outputs=outputs,
        intermediates=rest,
        segments=segment_sizes(
            code.words.nbytes, len(code.constants), code.activation_bytes,
            code.batch * storage.state_bytes,
            code.alignment_bytes,
        ),
        parameter_offset=code.parameter_offset,
        layers=entries,
        scopes=code.scopes,
        code=code.words,
        constants=code.constants,
        relocations=code.relocations,
        debug=code.debug,
        images=code.images,
        states=state_slots(fixed, storage, stored_bytes),
        tables=code.tables,
        batch=code.batch,
    )
