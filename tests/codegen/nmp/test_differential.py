"""Compiled code on the simulator equals the reference, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, layers, random_tensors
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.codegen.random_graphs import graphs, random_inputs
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.plan import TileLimits
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine

PLANNERS = (
    "tso", "exact", "fixed-is", "fixed-os", "fixed-ws", "fixed-ks", "fixed-ofm", "fixed-ks-ofm",
)  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> NmpMachine:
    memory = st.sampled_from((128, 256, 512, 2048, 8192))
    return small_machine(
        draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 3, 8))),
        draw(memory), draw(memory), draw(memory), queue_depth=draw(st.sampled_from((1, 2, 16))),
    )  # fmt: skip


@st.composite
def tile_limits(draw: st.DrawFn) -> TileLimits:
    limit = st.none() | st.integers(1, 5)
    return TileLimits(draw(limit), draw(limit), draw(limit), draw(limit))


def check(
    fixed: FixedGraph,
    inputs: dict[str, np.ndarray],
    machine: NmpMachine,
    planner: str,
    limits: TileLimits,
    timing: bool,
) -> None:
    note(generate(fixed, machine, planner, limits).listing())
    program = compile_fixed(fixed, machine, planner, limits)
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(program, inputs, timing=timing)
    for name in fixed.outputs:
        np.testing.assert_array_equal(outputs[name], expected[name][0])


@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(max_examples=examples(120), deadline=None)
def test_layers(element_bytes: int, data: st.DataObject) -> None:
    fixed = data.draw(layers(element_bytes))
    machine, limits = data.draw(machines()), data.draw(tile_limits())
    planner = data.draw(st.sampled_from(PLANNERS))
    inputs = random_tensors(fixed, data.draw(SEEDS))
    try:
        check(fixed, inputs, machine, planner, limits, data.draw(st.booleans()))
    except PlanningError:
        reject()


@pytest.mark.parametrize("precision", ["int16", "int8"])
@given(graphs(), machines(), tile_limits(), st.sampled_from(PLANNERS), st.integers(0, 99))
@settings(max_examples=examples(60), deadline=None)
def test_graphs(
    precision: str,
    graph: Graph,
    machine: NmpMachine,
    limits: TileLimits,
    planner: str,
    seed: int,
) -> None:
    """Branches, views, concatenations in place, outputs that are views of inputs, reuse."""
    samples = random_inputs(graph, seed, batch=1)
    try:
        fixed = quantize(
            fuse(graph), calibrate(fuse(graph), [samples]), precision,  # type: ignore[arg-type]
            machine.requantization(precision),  # type: ignore[arg-type]
        )  # fmt: skip
    except QuantizationError:
        reject()
    inputs = {
        name: quantize_tensor(samples[name][0], fixed.q_points[name], fixed.element_bytes)
        for name in fixed.inputs
    }
    try:
        check(fixed, inputs, machine, planner, limits, timing=True)
    except PlanningError:
        reject()
