"""Tables, operations with a number a channel, and maxima on NMPs equal the reference, bit for
bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import (
    SEEDS,
    convolutions,
    dense_layers,
    fixed_graph,
    random_tensors,
    requantizing,
)
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.codegen.nmp.test_differential import PLANNERS, check, machines, tile_limits
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph import FixedGraph, Table
from tvm_npu.codegen.ops import (
    FixedBroadcast,
    FixedConv,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedTable,
)
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.xnmp import LARGEST_SLOPE, TABLE_ENTRIES, TABLE_SEGMENT_BITS


@st.composite
def tables(draw: st.DrawFn, element_bytes: int) -> Table:
    """Of any values: of no function that anybody chose."""
    generator = np.random.default_rng(draw(SEEDS))
    low, high = element_limits(element_bytes)
    values = generator.integers(low, high + 1, TABLE_ENTRIES[element_bytes])
    zoom = draw(st.sampled_from((0, 0, 1, 3, 15)))
    return Table(
        values.astype(ELEMENT_TYPE[element_bytes]), -zoom, TABLE_SEGMENT_BITS[element_bytes]
    )


@st.composite
def broadcasts(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    shape = (draw(st.integers(1, 40)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    layer = FixedBroadcast(
        "b", ("x", "s"), ("y",), draw(st.sampled_from(("add", "sub", "mul"))),
        **draw(requantizing(element_bytes)),
    )  # fmt: skip
    return fixed_graph(layer, {"x": shape, "s": (shape[0], 1, 1), "y": shape}, element_bytes)


@st.composite
def maxima(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    shape = (draw(st.integers(1, 20)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    bounds = {**draw(requantizing(element_bytes)), "shift": 0}
    if draw(st.booleans()):
        layer = FixedMaximum("m", ("a", "b"), ("y",), **bounds)
        return fixed_graph(layer, {"a": shape, "b": shape, "y": shape}, element_bytes)
    whole = (2 * shape[0], *shape[1:])
    half = FixedMaxFeatureMap("m", ("a",), ("y",), **bounds)
    return fixed_graph(half, {"a": whole, "y": shape}, element_bytes)


@st.composite
def sums(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    shape = (draw(st.integers(1, 300)),)
    layer = FixedElementwise(
        "e", ("a", "b"), ("y",), draw(st.sampled_from(("add", "mul"))),
        shift_a=draw(st.integers(0, 3)), **draw(requantizing(element_bytes)),
    )  # fmt: skip
    return fixed_graph(layer, {"a": shape, "b": shape, "y": shape}, element_bytes)


@st.composite
def with_table(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    """A table alone, or behind a layer, whose results may be read by others, too."""
    table = draw(tables(element_bytes))
    if draw(st.integers(0, 3)) == 0:
        shape = (draw(st.integers(1, 700)),)
        layer = FixedTable("t", ("x",), ("y",), "function", table)
        return fixed_graph(layer, {"x": shape, "y": shape}, element_bytes)
    kinds = (convolutions, broadcasts, sums)
    first = draw(st.sampled_from(kinds).flatmap(lambda kind: kind(element_bytes)))
    made = first.layers[0].output
    layer = FixedTable("t", (made,), ("looked up",), "function", table)
    shapes = {**first.shapes, "looked up": first.shapes[made]}
    outputs = ("looked up", made) if draw(st.integers(0, 5)) == 0 else ("looked up",)
    scales = {**first.scales, "looked up": first.scales[made]}
    return replace(
        first, layers=(*first.layers, layer), shapes=shapes, outputs=outputs, scales=scales
    )


@st.composite
def with_slopes(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    """A convolution with a slope for all channels, or one for each."""
    fixed = draw(st.sampled_from((convolutions, dense_layers)).flatmap(lambda k: k(element_bytes)))
    (layer,) = fixed.layers
    assert isinstance(layer, FixedConv)
    count = draw(st.sampled_from((1, len(layer.weight))))
    slopes = np.random.default_rng(draw(SEEDS)).integers(-LARGEST_SLOPE, LARGEST_SLOPE + 1, count)
    made = replace(layer, slopes=slopes.astype(np.int32))
    return replace(fixed, layers=(made,))


@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_layers(element_bytes: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from((with_table, with_table, with_slopes, broadcasts, maxima)))
    fixed = data.draw(kind(element_bytes))
    machine, limits = data.draw(machines()), data.draw(tile_limits())
    planner = data.draw(st.sampled_from(PLANNERS))
    inputs = random_tensors(fixed, data.draw(SEEDS))
    try:
        check(fixed, inputs, machine, planner, limits, data.draw(st.booleans()))
    except PlanningError:
        reject()


def _chain(element_bytes: int, filters: int, bias_bytes: int) -> tuple[str, ...]:
    """The layers that a convolution of ``filters`` filters and a table run as."""
    rng = np.random.default_rng(filters)
    low, high = element_limits(element_bytes)
    layer = FixedConv(
        "c", ("x",), ("a",), rng.integers(-9, 9, (filters, 3, 1, 1)), rng.integers(-9, 9, filters),
        shift=2, low=low, high=high,
    )  # fmt: skip
    conv = fixed_graph(layer, {"x": (3, 2, 2), "a": (filters, 2, 2)}, element_bytes)
    values = rng.integers(low, high + 1, TABLE_ENTRIES[element_bytes])
    table = Table(values.astype(ELEMENT_TYPE[element_bytes]), 0, TABLE_SEGMENT_BITS[element_bytes])
    fixed = replace(
        conv, layers=(*conv.layers, FixedTable("t", ("a",), ("y",), "function", table)),
        shapes={**conv.shapes, "y": (filters, 2, 2)}, outputs=("y",),
        scales={**conv.scales, "y": conv.scales["a"]},
    )  # fmt: skip
    machine = small_machine()
    memories = machine.memories.model_copy(update={"bias_bytes": bias_bytes})
    machine = machine.model_copy(update={"memories": memories})
    inputs = random_tensors(fixed, 5)
    outputs, _ = simulate(compile_fixed(fixed, machine, "tso"), inputs, timing=False)
    expected = run_fixed(fixed, {"x": inputs["x"][None]})["y"][0]
    np.testing.assert_array_equal(outputs["y"], expected)
    return tuple(one.layer.name for one in generate(fixed, machine).planned.layers)


def test_a_table_lies_beside_the_biases_or_runs_alone() -> None:
    """64 filters on 2 TLTs are 128 bytes of biases in each; the table is 2,052 or 260 bytes."""
    assert _chain(2, 64, 4096) == ("c",)
    assert _chain(2, 64, 2184) == ("c",)
    assert _chain(2, 64, 2176) == ("c", "t")
    assert _chain(1, 64, 392) == ("c",)
    assert _chain(1, 64, 384) == ("c", "t")
