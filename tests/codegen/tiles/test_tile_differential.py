"""Compiled tile code computes what the reference says, bit for bit, and moves what plans say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import (
    SEEDS,
    convolutions,
    elementwise_layers,
    for_machine,
    layers,
    pads,
    pools,
    random_tensors,
)
from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.tiles.interpreter import Interpreter
from tests.codegen.tiles.tile_cases import AnyPlan, tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, generate
from tvm_npu.codegen.compile import fixed_graph as fixed_of
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.dilation import with_live_taps
from tvm_npu.codegen.plan.layers import LayerPlanner, question_of
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.loops.traffic import tile_traffic
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.runtime.session import Session
from tvm_npu.sim.tiles.machine import TileMachine


def check(
    fixed: FixedGraph, inputs: dict[str, np.ndarray], machine: TileMachine, seed: int
) -> Interpreter:
    note(generate(fixed, machine, AnyPlan(seed)).listing())
    program = compile_fixed(fixed, machine, AnyPlan(seed))
    content = program.to_bytes()
    assert Program.from_bytes(content).to_bytes() == content
    assert compile_fixed(fixed, machine, AnyPlan(seed)).to_bytes() == content
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    run = Interpreter(program)
    outputs = run.run(inputs)
    session = Session(program)
    simulated = session.run_fixed([inputs[name][None] for name in fixed.inputs])
    for name, values in zip(fixed.outputs, simulated, strict=True):
        np.testing.assert_array_equal(outputs[name], expected[name][0])
        np.testing.assert_array_equal(values, expected[name])
    if machine.dmac is not None:  # values do not hang on when transfers end
        untimed = Session(program, timing=False)
        for values, same in zip(
            simulated, untimed.run_fixed([inputs[name][None] for name in fixed.inputs]), strict=True
        ):
            np.testing.assert_array_equal(values, same)
    statistics = session.statistics
    assert statistics is not None and statistics.macs == run.macs
    for bytes_by_stream, to_chip in (
        (statistics.loaded_bytes, True), (statistics.stored_bytes, False),
    ):  # fmt: skip
        for stream in ("in", "weight", "bias", "residual", "partial", "out"):
            assert bytes_by_stream.get(stream, 0) == run.traffic[stream, to_chip]
    return run


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), tile_machines(), st.sampled_from((1, 2)), SEEDS)
def test_single_layers(
    data: st.DataObject, machine: TileMachine, element_bytes: int, seed: int
) -> None:
    fixed = for_machine(data.draw(layers(element_bytes)), machine)
    try:
        check(fixed, random_tensors(fixed, seed), machine, seed)
    except PlanningError:
        reject()


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.sampled_from((pads, pools, elementwise_layers)), SEEDS)
def test_other_layers_in_small_tiles(data: st.DataObject, kind: object, seed: int) -> None:
    assert callable(kind)
    fixed = data.draw(kind(2))
    memory = data.draw(st.sampled_from((64, 96, 128)))
    try:
        check(fixed, random_tensors(fixed, seed), tile_machine((memory,) * 3), seed)
    except PlanningError:
        reject()


@settings(max_examples=examples(120), deadline=None)
@given(st.data(), tile_machines(), SEEDS)
def test_traffic_is_what_plans_say(data: st.DataObject, machine: TileMachine, seed: int) -> None:
    """Bytes, transfers and contiguous runs, stream by stream."""
    fixed = with_live_taps(data.draw(convolutions(2)))
    (layer,) = fixed.layers
    planner = LayerPlanner(fixed.precision, machine, AnyPlan(seed))
    try:
        planned = planner.plan(layer, fixed.shapes)
    except PlanningError:
        reject()
    problem = question_of(layer, fixed, machine)  # type: ignore[arg-type]
    assert isinstance(planned.plan, LoopPlan)
    note(str(planned.plan))
    run = check(fixed, random_tensors(fixed, seed), machine, seed)
    said = tile_traffic(problem, planned.plan, loop_machine(machine))
    for stream, to_chip, moved in (
        ("in", True, said.inputs), ("residual", True, said.residual),
        ("weight", True, said.weights), ("bias", True, said.biases),
        ("out", False, said.outputs), ("partial", True, said.partial_loads),
        ("partial", False, said.partial_stores),
    ):  # fmt: skip
        key = (stream, to_chip)
        assert (run.transfers[key], run.traffic[key]) == (moved.transfers, moved.size_bytes), key
        if machine.mover is not None:
            assert run.runs[key] == moved.segments, key


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), tile_machines(), st.sampled_from(("int8", "int16")), SEEDS)
def test_graphs(graph: Graph, machine: TileMachine, precision: str, seed: int) -> None:
    samples = random_inputs(graph, seed)
    try:
        options = CompileOptions(precision=precision)  # type: ignore[arg-type]
        fixed = fixed_of(graph, calibrate(graph, [samples]), machine, options)
        inputs = {
            name: quantize_tensor(samples[name][0], fixed.q_points[name], fixed.element_bytes)
            for name in fixed.inputs
        }
        check(fixed, inputs, machine, seed)
    except (PlanningError, QuantizationError):
        reject()
