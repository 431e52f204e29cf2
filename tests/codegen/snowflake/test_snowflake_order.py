"""Emitted code waits where it has to: of every program that lacks one `sync`, or has one that waits
for one less, the race checker tells.

The only mutants about which it is silent lack a wait between vector instructions: the compiler
orders chunks of instructions, and between two chunks that take turns a full queue can have waited
already for the words that are really touched. Their values are right.
"""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.snowflake.snowflake_cases import MACHINES, convolutions, machine, pools
from tests.sim.snowflake.mutants import Fate, judge_program
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, fixed_graph, generate
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.ops.registry import missing_layers
from tvm_npu.codegen.passes.calibrate import calibrate

SOME = settings(deadline=None, max_examples=12, phases=[Phase.explicit, Phase.generate])


def _all_are_caught(fixed: FixedGraph, name: str, seed: int) -> None:
    try:
        program = generate(fixed, machine(name), "snowflake").program()
    except PlanningError:
        return
    rng = np.random.default_rng(seed)
    inputs = [
        rng.integers(-900, 900, (1, *fixed.shapes[tensor])).astype(np.int16)
        for tensor in fixed.inputs
    ]
    judged = judge_program(program, inputs)
    assert not judged.of(Fate.WRONG), str(judged)
    assert all(one.before.startswith("sync vector") for one in judged.of(Fate.SURVIVOR)), judged


@SOME
@given(st.one_of(convolutions(), pools()), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_layers(fixed: FixedGraph, name: str, seed: int) -> None:
    _all_are_caught(fixed, name, seed)


@SOME
@given(graphs(6), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_graphs(graph: Graph, name: str, seed: int) -> None:
    on = machine(name)
    types = backend_of(on).layer_types
    if any(missing_layers(type(layer), types) for layer in graph.layers):
        return
    ranges = calibrate(graph, [random_inputs(graph, seed)])
    _all_are_caught(fixed_graph(graph, ranges, on, CompileOptions()), name, seed)
