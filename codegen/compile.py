"""From an NPU graph with calibration ranges to a Program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.nmp.emit import compiler as nmp_compiler
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.plan import DEFAULT_PLANNER, NO_LIMITS, Planner, TileLimits
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.tiles.emit import compiler as tile_compiler
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision


@dataclass(frozen=True)
class CompileOptions:
    """What a user chooses; ``precision`` None takes the machine's default. ``tuning_log`` is for
    the planners that plan by one."""

    precision: Precision | None = None
    planner: str = DEFAULT_PLANNER
    limits: TileLimits = NO_LIMITS
    tuning_log: Path | None = None


def fixed_graph(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions = CompileOptions(),
) -> FixedGraph:
    """fuse -> quantize: the integers that the program of `compile_graph` computes."""
    precision = options.precision or machine.default_precision
    return quantize(fuse(graph), ranges, precision, machine.requantization)


def compile_graph(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions = CompileOptions(),
) -> Program:
    """fuse -> quantize -> plan -> emit. Raises the typed errors of `codegen.errors`."""
    fixed = fixed_graph(graph, ranges, machine, options)
    chosen = planner_called(options.planner, options.limits, options.tuning_log)
    return compile_fixed(fixed, machine, chosen, options.limits)


GENERATORS: dict[str, Callable[..., Program]] = {
    "nmp": nmp_compiler.compile_fixed,
    "tiles": tile_compiler.compile_fixed,
}
"""Code generators by the instruction set of a machine."""


def compile_fixed(
    fixed: FixedGraph,
    machine: MachineDescription,
    planner: str | Planner = DEFAULT_PLANNER,
    limits: TileLimits = NO_LIMITS,
) -> Program:
    """plan -> emit, for a machine of any kind. Raises as `compile_graph`."""
    return GENERATORS[machine.isa](fixed, machine, planner, limits)
