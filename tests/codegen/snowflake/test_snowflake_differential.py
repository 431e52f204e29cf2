"""Code for Snowflake machines against the reference, on layers and graphs that nobody chose: every
bit, and a race checker that has nothing to say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.snowflake.snowflake_cases import (
    MACHINES,
    convolutions,
    graph_of,
    machine,
    outcome,
    pools,
)
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, fixed_graph
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.ops.registry import missing_layers
from tvm_npu.codegen.passes.calibrate import calibrate

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])


@RANDOM
@given(convolutions(), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_random_convolutions(fixed: FixedGraph, name: str, seed: int) -> None:
    found = outcome(fixed, machine(name), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


@RANDOM
@given(
    st.one_of(convolutions(dilated=True), convolutions(far=1, dilated=True)),
    st.sampled_from(MACHINES), st.integers(0, 1 << 30),
)  # fmt: skip
def test_random_dilated_convolutions(fixed: FixedGraph, name: str, seed: int) -> None:
    """On large maps, and on small ones where windows lie in the padding alone."""
    found = outcome(fixed, machine(name), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


@RANDOM
@given(convolutions(far=5), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_windows_in_the_padding_alone(fixed: FixedGraph, name: str, seed: int) -> None:
    """Their padding comes as a layer; all other padding is not sent."""
    (conv,) = fixed.layers
    assert isinstance(conv, ops.FixedConv)
    found = outcome(fixed, machine(name), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())
    empty = any(
        all(not 0 <= begin + tap * conv.dilation[axis] < size for tap in range(kernel))
        for axis, (size, kernel) in enumerate(
            zip(fixed.shapes["x"][1:], conv.weight.shape[2:], strict=True)
        )
        for begin in range(
            -conv.padding[axis],
            fixed.shapes["y"][1 + axis] * conv.stride[axis] - conv.padding[axis],
            conv.stride[axis],
        )
    )
    names = [layer.name for layer in found.program.layers]
    assert names == (["conv.padding", "conv"] if empty else ["conv"])


@RANDOM
@given(pools(), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_random_pools(fixed: FixedGraph, name: str, seed: int) -> None:
    try:
        found = outcome(fixed, machine(name), seed=seed)
    except PlanningError as error:
        assert "covers no" in str(error)
        return
    assert (found.wrong, found.hazards) == (0, ())


@RANDOM
@given(graphs(10), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_random_graphs(graph: Graph, name: str, seed: int) -> None:
    on = machine(name)
    types = backend_of(on).layer_types
    if any(missing_layers(type(layer), types) for layer in graph.layers):
        return
    ranges = calibrate(graph, [random_inputs(graph, seed)])
    fixed = fixed_graph(graph, ranges, on, CompileOptions())
    try:
        found = outcome(fixed, on, seed=seed)
    except PlanningError:
        return
    assert (found.wrong, found.hazards) == (0, ())


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("channels", (40, 4111, 9216))
def test_fully_connected_layers_of_any_depth(name: str, channels: int) -> None:
    """Kernels longer than half of a WBuf come in parts, while the sum stays open."""
    rng = np.random.default_rng(channels)
    layer = ops.FixedConv(
        "dense", ("x",), ("y",), rng.integers(-300, 300, (37, channels, 1, 1)).astype(np.int16),
        rng.integers(-(1 << 20), 1 << 20, 37).astype(np.int32), shift=9, low=-30000, high=30000,
        is_dense=True,
    )  # fmt: skip
    found = outcome(graph_of(layer, {"x": (channels,), "y": (37,)}), machine(name))
    assert (found.wrong, found.hazards) == (0, ())


def test_flattened_images_meet_arranged_weights() -> None:
    """A fully connected layer behind an image: its elements stay pixel by pixel in memory."""
    rng = np.random.default_rng(3)
    weight = rng.integers(-300, 300, (20, 12 * 35, 1, 1)).astype(np.int16)
    layers = (
        ops.FixedReshape("flat", ("x",), ("f",)),
        ops.FixedConv("dense", ("f",), ("y",), weight, np.zeros(20, np.int32), shift=9,
                      low=-30000, high=30000, is_dense=True),
    )  # fmt: skip
    shapes = {"x": (12, 5, 7), "f": (420,), "y": (20,)}
    fixed = graph_of(layers[1], {"f": (420,), "y": (20,)})
    whole = FixedGraph(
        layers, shapes, ("x",), ("y",), {t: fixed.scales["y"] for t in shapes}, 2
    )  # fmt: skip
    found = outcome(whole, machine("snowflake-1cc"))
    assert found.wrong == 0
    assert [layer.name for layer in found.program.layers] == ["dense"]


@pytest.mark.parametrize("layers", (
    ("alexnet conv3", 192, 384, 11.08), ("alexnet conv4", 384, 256, 14.77),
    ("alexnet conv5", 256, 256, 9.86),
))  # fmt: skip
def test_times_of_table_3(layers: tuple[str, int, int, float]) -> None:
    """The compiler's paper, table 3, one CU at 7 ns: within 1 % of the published times."""
    name, channels, filters, published_ms = layers
    rng = np.random.default_rng(1)
    layer = ops.FixedConv(
        name, ("x",), ("y",), rng.integers(-300, 300, (filters, channels, 3, 3)).astype(np.int16),
        np.zeros(filters, np.int32), padding=(1, 1, 1, 1), shift=9, low=-30000, high=30000,
    )  # fmt: skip
    on = machine("snowflake-1cu")
    found = outcome(graph_of(layer, {"x": (channels, 13, 13), "y": (filters, 13, 13)}), on)
    assert (found.wrong, found.hazards) == (0, ())
    simulated_ms = found.statistics.cycles / on.frequency_mhz / 1e3
    assert simulated_ms == pytest.approx(published_ms, rel=0.01)
