"""Batches on Snowflake machines: an image a cluster, and images over devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.snowflake.snowflake_cases import machine
from tests.examples import examples
from tvm_npu.codegen.backend import Images
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, fixed_graph
from tvm_npu.codegen.errors import BackendError, PlanningError
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.ops.registry import missing_layers
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.errors import TargetError
from tvm_npu.options import NpuOptions, make_options
from tvm_npu.runtime.session import Session
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(30), phases=[Phase.explicit, Phase.generate])
SEVERAL = ("snowflake-2cc", "snowflake-4cc")


def _fixed(graph: Graph, on: SnowflakeMachine, seed: int) -> FixedGraph | None:
    """None for a graph with layers that have no code."""
    types = backend_of(on).layer_types
    if any(missing_layers(type(layer), types) for layer in graph.layers):
        return None
    return fixed_graph(graph, calibrate(graph, [random_inputs(graph, seed)]), on, CompileOptions())


def _run(fixed: FixedGraph, on: SnowflakeMachine, images: Images, batch: int, seed: int) -> Session:
    """Of a program whose results for ``batch`` random images are the reference's."""
    session = Session(compile_fixed(fixed, on, "snowflake", images=images))
    rng = np.random.default_rng(seed)
    inputs = {
        name: rng.integers(-900, 900, (batch, *fixed.shapes[name])).astype(np.int16)
        for name in fixed.inputs
    }
    results = session.run_fixed([inputs[name] for name in fixed.inputs])
    wanted = run_fixed(fixed, inputs)
    for result, name in zip(results, fixed.outputs, strict=True):
        np.testing.assert_array_equal(result, wanted[name])
    for device in session._devices:
        assert not tuple(device.hazards)  # type: ignore[attr-defined]
    return session


@RANDOM
@given(
    graphs(6), st.sampled_from(SEVERAL), st.integers(1, 3), st.integers(1, 9),
    st.integers(0, 1 << 30), st.sampled_from(("together", "apart")),
)  # fmt: skip
def test_random_graphs_with_batches_on_several_devices(
    graph: Graph, name: str, devices: int, batch: int, seed: int, images: Images
) -> None:
    """Batches that fill no run, and some that take several."""
    on = machine(name).model_copy(update={"devices": devices})
    fixed = _fixed(graph, on, seed)
    if fixed is None:
        return
    try:
        session = _run(fixed, on, images, batch, seed)
    except PlanningError:
        return
    each = session.program.batch
    assert each == (on.clusters.count if images == "apart" else 1)
    assert len(session._devices) == min(devices, -(-batch // each))


@pytest.mark.parametrize("name", SEVERAL)
def test_an_image_a_cluster_reads_weights_once(name: str) -> None:
    """And takes hardly longer than one image on one cluster."""
    from tests.codegen.snowflake.test_snowflake_clusters import conv_of

    on, fixed = machine(name), conv_of(128, 128, 14, 3)
    alone = _run(fixed, machine("snowflake-1cc"), "together", 1, 0).statistics
    apart = _run(fixed, on, "apart", on.clusters.count, 0).statistics
    assert alone is not None and apart is not None
    assert apart.bytes_by_link["loaded"]["weight"] == alone.bytes_by_link["loaded"]["weight"]
    maps = on.clusters.count * alone.bytes_by_link["loaded"]["in"]
    assert apart.bytes_by_link["loaded"]["in"] == maps
    assert apart.macs == on.clusters.count * alone.macs
    assert apart.cycles < 1.25 * alone.cycles


def test_images_apart_need_several_clusters() -> None:
    from tests.codegen.snowflake.test_snowflake_clusters import conv_of

    fixed = conv_of(16, 16, 5, 3)
    with pytest.raises(BackendError, match="images apart: machine 'snowflake-1cc'"):
        compile_fixed(fixed, machine("snowflake-1cc"), "snowflake", images="apart")
    with pytest.raises(TargetError, match="images apart: machine 'nmp-4x8'"):
        make_options("nmp-4x8", images="apart")
    with pytest.raises(TargetError, match="images 'beside': must be one of together, apart"):
        make_options("snowflake-2cc", images="beside")  # type: ignore[arg-type]
    options = make_options("snowflake-2cc", images="apart")
    assert NpuOptions.from_json(options.to_json()) == options
