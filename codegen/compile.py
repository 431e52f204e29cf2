"""From an NPU graph with calibration ranges to a Program, for machines of every kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tvm_npu.codegen.backend import Emitted, Images, PlannedGraph
from tvm_npu.codegen.backends import backend_of, machine_apart
from tvm_npu.codegen.errors import BackendError
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.graph_bound import GraphBound
from tvm_npu.codegen.least import least_needs
from tvm_npu.codegen.ops.registry import (
    check_requantization,
    check_support,
    kind_of,
    layer_macs,
)
from tvm_npu.codegen.passes.averages import with_pools_in_parts, with_ranges_of_parts
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.dilation import with_live_taps
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import Int16Layers, Prepared, prepare, quantize_taken
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS, Adjustments
from tvm_npu.codegen.passes.row_major import row_major
from tvm_npu.codegen.passes.storage import plan_storage
from tvm_npu.codegen.phases import phase
from tvm_npu.codegen.plan import DEFAULT_PLANNER, NO_LIMITS, Planner, TileLimits
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.plan.layers import LayerPlanner
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
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision


@dataclass(frozen=True)
class CompileOptions:
    """What a user chooses; ``precision`` None takes the machine's default. ``tuning_log`` is for
    the planners that plan by one; ``images`` says what clusters do with a batch. ``adjustments``
    are what calibration changes in the fused graph, whose ranges are those of the changed one.
    ``int16_layers`` names the layers (or operators of the source) that compute in int16 where the
    others do in int8."""

    precision: Precision | None = None
    planner: str = DEFAULT_PLANNER
    limits: TileLimits = NO_LIMITS
    tuning_log: Path | None = None
    images: Images = "together"
    adjustments: Adjustments = NO_ADJUSTMENTS
    int16_layers: tuple[str, ...] = ()


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

    @property
    def graph_bound(self) -> GraphBound | None:
        """What no plan beats, however layers are joined; None where nobody knows."""
        machine = self.planned.machine
        return backend_of(machine).graph_bound(self.planned, machine)

    @phase("emit")
    def program(self) -> Program:
        """Words and tables. CapacityError when they need more DRAM than there is."""
        program = _program(self.planned, self.emitted.assemble())
        check_capacity(program, self.planned.machine)
        return program


def fixed_graph(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions = CompileOptions(),
) -> FixedGraph:
    """fuse -> pools in parts -> adjust -> quantize: the integers that the program of
    `compile_graph` computes."""
    with phase("quantize"):
        prepared = [prepared_graph(graph, ranges, machine, options)]
        del graph  # where nobody else holds it, its weights go before those of the integers come
        return _integers(prepared, machine, options)


def quantized(
    parted: Graph, ranges: Ranges, machine: MachineDescription, options: CompileOptions
) -> FixedGraph:
    """The last step of `fixed_graph`, for a graph of `calibrated_graph` with its adjustments."""
    return _integers([_prepared(parted, ranges, machine, options)], machine, options)


def _integers(
    prepared: list[Prepared], machine: MachineDescription, options: CompileOptions
) -> FixedGraph:
    """Of the graph in ``prepared``, which is taken out of it."""
    step = machine.requantization(options.precision or machine.default_precision)
    return quantize_taken(prepared, step, int16_layers(machine, options).requantization)


def prepared_graph(
    graph: Graph, ranges: Ranges, machine: MachineDescription, options: CompileOptions
) -> Prepared:
    """The float graph whose layers `fixed_graph` makes integers of, one by one."""
    return _prepared(parted_graph(graph, machine, options), ranges, machine, options)


def _prepared(
    parted: Graph, ranges: Ranges, machine: MachineDescription, options: CompileOptions
) -> Prepared:
    precision = options.precision or machine.default_precision
    ranges, int16 = with_ranges_of_parts(parted, ranges), int16_layers(machine, options)
    step, needs = machine.requantization(precision), least_needs(machine, precision)
    return prepare(parted, ranges, precision, int16, step, needs)


def parted_graph(graph: Graph, machine: MachineDescription, options: CompileOptions) -> Graph:
    """The first steps of `fixed_graph`, up to the adjustments."""
    precision = options.precision or machine.default_precision
    return options.adjustments.apply(calibrated_graph(graph, machine, precision))


def calibrated_graph(graph: Graph, machine: MachineDescription, precision: Precision) -> Graph:
    """The graph whose tensors calibration should see: fused, global pools in parts."""
    graph = row_major(graph)
    return in_parts(fuse(graph, backend_of(machine).made(machine)), machine, precision)


def in_parts(fused: Graph, machine: MachineDescription, precision: Precision) -> Graph:
    """A fused graph with its global pools in the parts that the machine has room for."""
    needs = least_needs(machine, precision)
    return with_pools_in_parts(fused, needs, ELEMENT_BYTES[precision])


def int16_layers(machine: MachineDescription, options: CompileOptions) -> Int16Layers:
    """Those of ``options``; BackendError for a machine whose programs have one precision."""
    if options.int16_layers and not backend_of(machine).mixes_precisions:
        raise BackendError(
            f"machine {machine.name!r} computes all layers of a program with one precision; it "
            "cannot have some in int16"
        )
    return Int16Layers(options.int16_layers, machine.requantization("int16"))


def compile_graph(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions = CompileOptions(),
) -> Program:
    """fuse -> quantize -> plan -> emit. Raises the typed errors of `codegen.errors`."""
    return compile_quantized(fixed_graph(graph, ranges, machine, options), machine, options)


def compile_quantized(
    fixed: FixedGraph, machine: MachineDescription, options: CompileOptions = CompileOptions()
) -> Program:
    """plan -> emit, for what `fixed_graph` made with the same options."""
    return generate_quantized(fixed, machine, options).program()


def generate_quantized(
    fixed: FixedGraph, machine: MachineDescription, options: CompileOptions = CompileOptions()
) -> Generated:
    """`compile_quantized` up to the command level."""
    chosen = planner_called(options.planner, options.limits, options.tuning_log)
    return generate(fixed, machine, chosen, options.limits, options.images)


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
    layer_planner = LayerPlanner(fixed.precision, asked, chosen, limits)
    planned = replace(plan_graph(fixed, layer_planner), machine=machine, images=images)
    with phase("emit"):
        return Generated(planned, layer_planner.backend.emit(planned, machine))


@phase("plan")
def plan_graph(fixed: FixedGraph, planner: LayerPlanner) -> PlannedGraph:
    """ask -> plan: the layers that are executed, their plans, and where their tensors lie. Taps
    of kernels that meet only padding are left out first, for every kind.

    Raises UnsupportedLayerError for a layer that the machine has no code for, before any is
    planned; CapacityError for plans whose code would be too long."""
    machine, precision = planner.machine, planner.precision
    check_support(fixed.layers, planner.backend.layer_types, machine.name)
    for layer in fixed.layers:
        check_requantization(
            layer, machine.requantization(fixed.precision_of(layer)), machine.name
        )
    rewritten = planner.backend.rewrite(with_live_taps(fixed), planner, machine)
    storage = plan_storage(
        rewritten, machine.stored_element_bytes, planner.backend.layout,
        planner.backend.layers_beside,
    )  # fmt: skip
    check_support(storage.layers, planner.backend.layer_types, machine.name)
    layers = tuple(
        planner.without_cycles(layer, storage.shapes, storage.precision_of(layer))
        for layer in storage.layers
    )
    planner.backend.check_length(layers, machine)
    layers = tuple(planner.predicted(one) for one in layers)
    layers = planner.backend.in_sequence(layers, machine)
    return PlannedGraph(rewritten, machine, precision, storage, layers, planner.chosen.name)


def _expected_cycles(planned: PlannedGraph, code: Code) -> tuple[float | None, ...]:
    """What the layers are expected to take: as the code says, else as their plans and the code
    say."""
    if code.layer_cycles:
        return code.layer_cycles
    starts = code.start_cycles or (0.0,) * len(planned.layers)
    return tuple(
        None if one.predicted_cycles is None else one.predicted_cycles + start
        for one, start in zip(planned.layers, starts, strict=True)
    )


def _program(planned: PlannedGraph, code: Code) -> Program:
    fixed, machine = planned.fixed, planned.machine
    storage = planned.storage
    inputs, outputs, rest = tensor_slots(fixed, storage, machine.stored_element_bytes)
    expected = _expected_cycles(planned, code)
    entries = tuple(
        LayerEntry(
            one.layer.name, kind_of(one.layer), one.layer.source,
            storage.precision_of(one.layer), plain(one.plan),
            cycles, layer_macs(one.layer, storage.shapes), ranges,
        )
        for one, ranges, cycles in zip(planned.layers, code.layers, expected, strict=True)
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
        states=state_slots(fixed, storage, machine.stored_element_bytes),
        tables=code.tables,
        batch=code.batch,
    )
