"""A random layer on a machine: its bits, what the race checker says, and its mutants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.snowflake_layers.layers import drawn_kind, random_layer
from studies.snowflake_layers.mutants import Fate, judge_program
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, fixed_graph
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.simulator import SnowflakeSimulator

Inputs = dict[str, NDArray[np.int16]]


@dataclass(frozen=True)
class LayerRow:
    """``shapes``: tensors by name. ``bits_off`` counts elements that differ from the reference,
    ``hazards`` what the checker found."""

    layer: int
    kind: str
    shapes: dict[str, tuple[int, ...]]
    machine: str
    planner: str
    executed: tuple[str, ...]
    instructions: int
    cycles: float
    bits_off: int
    hazards: int


@dataclass(frozen=True)
class MutantRow:
    """Mutants of a layer's program by fate; ``wrong``: other values, and a silent checker.
    ``survivors``: right values, and a silent checker."""

    layer: int
    kind: str
    machine: str
    mutants: int
    caught: int
    trapped: int
    wrong: int
    survivors: tuple[str, ...]


def layer_row(
    number: int, seed: int, machine: SnowflakeMachine, planner: str
) -> LayerRow:
    """Compiles the layer, reads its program from a file's bytes and runs it with timing."""
    kind, graph, rng = drawn(number, seed)
    fixed, inputs = quantized(graph, machine, rng)
    program = Program.from_bytes(compile_fixed(fixed, machine, planner).to_bytes())
    session = Session(program)
    results = session.run_fixed([inputs[name] for name in fixed.inputs])
    wanted = run_fixed(fixed, inputs)
    off = sum(
        int(np.count_nonzero(result != wanted[name]))
        for result, name in zip(results, fixed.outputs, strict=True)
    )
    run, device = session.statistics, session.devices[0]
    assert run is not None and isinstance(device, SnowflakeSimulator)
    shapes = {name: tuple(shape) for name, shape in graph.shapes.items()}
    executed = tuple(one.kind for one in program.layers)
    return LayerRow(
        number, kind, shapes, machine.name, planner, executed, run.instructions, run.cycles, off,
        len(device.hazards),
    )  # fmt: skip


def mutant_row(number: int, seed: int, machine: SnowflakeMachine, planner: str) -> MutantRow:
    """Every program that lacks one `sync`, or waits for one operation less."""
    kind, graph, rng = drawn(number, seed)
    fixed, inputs = quantized(graph, machine, rng)
    program = compile_fixed(fixed, machine, planner)
    found = judge_program(program, [inputs[name] for name in fixed.inputs])
    return MutantRow(
        number, kind, machine.name, len(found.fates), len(found.of(Fate.CAUGHT)),
        len(found.of(Fate.TRAPPED)), len(found.of(Fate.WRONG)),
        tuple(map(str, found.of(Fate.SURVIVOR))),
    )  # fmt: skip


def drawn(number: int, seed: int) -> tuple[str, Graph, np.random.Generator]:
    """Layer ``number`` of the layers that ``seed`` gives, whatever else is computed."""
    rng = np.random.default_rng([seed, number])
    kind = drawn_kind(rng)
    return kind, random_layer(kind, rng), rng


def quantized(
    graph: Graph, machine: SnowflakeMachine, rng: np.random.Generator
) -> tuple[FixedGraph, Inputs]:
    """The layer as integers, calibrated with one sample, and another sample."""
    samples = [
        {
            name: rng.standard_normal((1, *graph.shapes[name])).astype(np.float32)
            for name in graph.inputs
        }
        for _ in range(2)
    ]
    fixed = fixed_graph(graph, calibrate(graph, samples[:1]), machine, CompileOptions())
    return fixed, {
        name: fixed.scales[name].quantize(samples[1][name], fixed.element_bytes)
        for name in fixed.inputs
    }
