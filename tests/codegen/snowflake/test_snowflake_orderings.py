"""Emitted code from which one ordering is taken out: the checker finds it, or something else orders
the same. Nothing is wrong in silence."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import MACHINES, convolutions, machine, pools
from tests.sim.snowflake.mutants import Fate, judge_program, mutants
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph

MOST = 24
"""Mutants of a layer, drawn from all."""


@settings(deadline=None, max_examples=12, phases=[Phase.explicit, Phase.generate])
@given(st.one_of(convolutions(), pools()), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_mutants_of_random_layers(fixed: FixedGraph, name: str, seed: int) -> None:
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
    assert not judgement.of(Fate.WRONG) and not judgement.of(Fate.TRAPPED), str(judgement)
    if len(judgement.fates) == len(every):
        assert judgement.of(Fate.CAUGHT), str(judgement)
