"""Emitted code from which one ordering is taken out: the checker finds it, or something else orders
the same. Nothing is wrong in silence."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from studies.snowflake_layers.mutants import Fate, judge_program, mutants
from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.snowflake.snowflake_cases import MACHINES, convolutions, machine, pools
from tests.examples import examples
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, fixed_graph, generate
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.ops.registry import missing_layers
from tvm_npu.codegen.passes.calibrate import calibrate

MOST = 24
"""Mutants of a layer, drawn from all."""


SOME = settings(deadline=None, max_examples=examples(12), phases=[Phase.explicit, Phase.generate])


def _nothing_is_wrong_in_silence(fixed: FixedGraph, name: str, seed: int) -> None:
    try:
        program = generate(fixed, machine(name), "snowflake").program()
    except PlanningError:
        return
    rng = np.random.default_rng(seed)
    inputs = [
        rng.integers(-900, 900, (1, *fixed.shapes[tensor])).astype(np.int16)
        for tensor in fixed.inputs
    ]
    every = list(mutants(program.code))
    rows = rng.choice(len(every), min(MOST, len(every)), replace=False)
    judgement = judge_program(program, inputs, [every[row] for row in sorted(rows)])
    assert not judgement.of(Fate.WRONG), str(judgement)
    # A barrier to which a cluster never comes stops the others.
    trapped = judgement.of(Fate.TRAPPED)
    assert all(mutant.before.startswith("sync clusters") for mutant in trapped), str(judgement)
    if every and len(judgement.fates) == len(every):
        assert judgement.of(Fate.CAUGHT), str(judgement)


@SOME
@given(st.one_of(convolutions(), pools()), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_mutants_of_random_layers(fixed: FixedGraph, name: str, seed: int) -> None:
    _nothing_is_wrong_in_silence(fixed, name, seed)


@SOME
@given(graphs(6), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_mutants_of_random_graphs(graph: Graph, name: str, seed: int) -> None:
    """Layers hand their tensors on through memory."""
    on = machine(name)
    types = backend_of(on).layer_types
    if any(missing_layers(type(layer), types) for layer in graph.layers):
        return
    ranges = calibrate(graph, [random_inputs(graph, seed)])
    fixed = fixed_graph(graph, ranges, on, CompileOptions())
    _nothing_is_wrong_in_silence(fixed, name, seed)
