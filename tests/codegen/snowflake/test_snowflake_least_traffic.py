"""What `exact-traffic` makes of a graph moves no more than its layers would by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.plan.plan_cases import MACHINES
from tests.codegen.snowflake.snowflake_cases import graph_of, outcome
from tests.codegen.snowflake.test_snowflake_behind import cases, chain
from tests.codegen.snowflake.test_snowflake_beside import branches, stem
from tests.codegen.snowflake.test_snowflake_side_by_side import conv
from tests.examples import examples
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.snowflake.backend import SnowflakeBackend
from tvm_npu.codegen.snowflake.plan.borders import with_padded_maps
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])


@st.composite
def few_filters(draw: st.DrawFn) -> FixedGraph:
    """A convolution that leaves vMACs idle."""
    size = 2 * draw(st.integers(1, 4)) + 1
    out = (draw(st.integers(4, 40)), draw(st.integers(4, 40)))
    filters, stride = draw(st.integers(1, 8)), draw(st.sampled_from((1, 2)))
    layer, shape = conv(
        draw(st.sampled_from((1, 3, 16, 32))), filters, out, (size, size), (stride, stride)
    )
    return graph_of(layer, {"x": shape, "y": (filters, *out)})


def graphs_with_maxima() -> st.SearchStrategy[FixedGraph]:
    seeds = st.integers(0, 1 << 20).map(np.random.default_rng)
    return st.one_of(cases().map(chain), seeds.map(branches), seeds.map(stem))


def moved_bytes(fixed: FixedGraph, on: SnowflakeMachine) -> float:
    """Of tensors, by the simulator, of an image."""
    found = outcome(fixed, on, "exact-traffic")
    assert (found.wrong, found.hazards) == (0, ())
    ways = found.statistics.loaded_bytes, found.statistics.stored_bytes
    total = sum(sum(way.values()) - way.get("other", 0) for way in ways)  # other: instructions
    return total / found.statistics.runs


@RANDOM
@given(st.one_of(few_filters(), graphs_with_maxima()), MACHINES)
def test_nothing_moves_more_than_layers_by_themselves(
    fixed: FixedGraph, on: SnowflakeMachine
) -> None:
    try:
        found = moved_bytes(fixed, on)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                SnowflakeBackend, "rewrite", lambda self, one, planner, on: with_padded_maps(one)
            )
            patch.setattr(SnowflakeBackend, "in_sequence", lambda self, layers, on: layers)
            alone = moved_bytes(fixed, on)
    except PlanningError:
        return
    assert found <= alone
