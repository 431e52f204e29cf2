"""Maxima of two tensors, max feature maps, tables, reflection padding, broadcasts on Snowflake
machines against the reference: every bit, and a race checker that has nothing to say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import ALL_OPS, graphs, random_inputs
from tests.codegen.snowflake.snowflake_cases import MACHINES, graph_of, machine, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, fixed_graph
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Graph, Shape
from tvm_npu.codegen.ops.table import make_table
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])
CHANNELS = (1, 2, 3, 8, 16, 21, 40, 64, 130, 700)
SHAPES = st.tuples(st.sampled_from(CHANNELS), st.integers(1, 19), st.integers(1, 19))


@st.composite
def rare_layers(draw: st.DrawFn) -> FixedGraph:
    """One layer on a shape that nobody chose."""
    shape: Shape = draw(SHAPES)
    low, high = draw(st.integers(-900, 0)), draw(st.integers(0, 900))
    kind = draw(st.sampled_from(("max", "feature map", "table", "reflect", "broadcast")))
    if kind == "max":
        largest = ops.FixedMaximum("max", ("x", "r"), ("y",), shift=0, low=low, high=high)
        return graph_of(largest, {"x": shape, "r": shape, "y": shape})
    if kind == "broadcast":
        op, shift = draw(st.sampled_from(("add", "mul"))), draw(st.integers(-1, 9))
        wide = ops.FixedBroadcast(
            "wide", ("x", "r"), ("y",), op, shift=shift, low=low, high=high
        )
        return graph_of(wide, {"x": shape, "r": (shape[0], 1, 1), "y": shape})
    if kind == "feature map":
        doubled = (2 * shape[0], *shape[1:])
        halves = ops.FixedMaxFeatureMap("halves", ("x",), ("y",), shift=0, low=low, high=high)
        return graph_of(halves, {"x": doubled, "y": shape})
    if kind == "table":
        function = draw(st.sampled_from(("sigmoid", "tanh")))
        table = make_table(function, draw(st.integers(3, 15)), draw(st.integers(8, 15)), 2)
        values = ops.FixedTable("t", ("x",), ("y",), function, table)
        return graph_of(values, {"x": shape, "y": shape})
    padding = tuple(draw(st.integers(0, shape[1 + axis % 2] - 1)) for axis in range(4))
    widened = (shape[0], shape[1] + padding[0] + padding[2], shape[2] + padding[1] + padding[3])
    mirror = ops.FixedReflectPad("mirror", ("x",), ("y",), padding)  # type: ignore[arg-type]
    return graph_of(mirror, {"x": shape, "y": widened})


@RANDOM
@given(rare_layers(), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_random_rare_layers(fixed: FixedGraph, name: str, seed: int) -> None:
    found = outcome(fixed, machine(name), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


@RANDOM
@given(
    graphs(10, ALL_OPS), st.sampled_from(MACHINES), st.sampled_from(("int16", "int8")),
    st.integers(0, 1 << 30),
)  # fmt: skip
def test_random_graphs_of_all_operators(
    graph: Graph, name: str, precision: str, seed: int
) -> None:
    on = machine(name)
    ranges = calibrate(graph, [random_inputs(graph, seed)])
    fixed = fixed_graph(graph, ranges, on, CompileOptions(precision))  # type: ignore[arg-type]
    try:
        found = outcome(fixed, on, seed=seed, largest=900 if precision == "int16" else 127)
    except PlanningError:
        return
    assert (found.wrong, found.hazards) == (0, ())


def test_tables_stand_in_the_program_once() -> None:
    """Layers with the same function and Q-points share one entry."""
    table = make_table("sigmoid", 8, 12, 2)
    chain: list[FixedLayer] = [
        ops.FixedTable(f"t{i}", (source,), (target,), "sigmoid", table)
        for i, (source, target) in enumerate(pairwise("xabc"))
    ]
    chain[2] = replace(chain[2], table=make_table("sigmoid", 8, 13, 2))  # type: ignore[type-var]
    shapes: dict[str, Shape] = {tensor: (70,) for tensor in "xabc"}
    one = graph_of(chain[0], {"x": (70,), "a": (70,)})
    scales = {tensor: one.scales["x"] for tensor in shapes}
    fixed = FixedGraph(tuple(chain), shapes, ("x",), ("c",), scales, 2)
    found = outcome(fixed, machine("snowflake-1cc"))
    assert (found.wrong, found.hazards) == (0, ())
    entries = found.program.tables
    assert [(entry.function, entry.entries) for entry in entries] == [("sigmoid", 1025)] * 2
    held = np.frombuffer(found.program.constants, "<i2", 1025, entries[0].offset)
    assert np.array_equal(held, table.values)


@pytest.mark.parametrize("function", ("sigmoid", "tanh"))
@pytest.mark.parametrize("q_in", (0, 3, 7))
def test_tables_of_8_bits_at_all_arguments(function: str, q_in: int) -> None:
    """The largest arguments are saturated, and find the last value."""
    layer = ops.FixedTable("t", ("x",), ("y",), function, make_table(function, q_in, 7, 1))  # type: ignore[arg-type]
    shapes: dict[str, Shape] = {"x": (256,), "y": (256,)}
    fixed = replace(graph_of(layer, shapes), element_bytes=1)
    session = Session(compile_fixed(fixed, machine("snowflake-1cc"), "snowflake"))
    arguments = np.arange(-128, 128, dtype=np.int8)[None]
    (found,) = session.run_fixed([arguments])
    assert np.array_equal(found, run_fixed(fixed, {"x": arguments})["y"])
