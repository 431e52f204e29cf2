"""Regions of hand-built dataflows, and what a machine without code for a layer changes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.door.flows import all_layers, call, const, conv, flow, of, randoms, split, x
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.nmp.backend import NmpBackend
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPool
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.reference import run_float
from tvm_npu.door.backend import needed_layers
from tvm_npu.door.calibrate import RegionRunner, region_ranges
from tvm_npu.door.dataflow import Value
from tvm_npu.door.graph_by_graph import GraphByGraph
from tvm_npu.door.importer import import_dataflow
from tvm_npu.door.region import MarkedRegion
from tvm_npu.errors import CalibrationError, ImportRegionError

F = (1, 4, 8, 8)


def block(data: Value) -> Value:
    """A residual block; its last activation belongs to the sum."""
    first = of("relu", conv(data, 4, source="one"), to=F)
    return of("relu", of("add", conv(first, 4, source="two"), data, to=F), to=F)


def pooled(data: Value) -> Value:
    return of("max_pool2d", data, to=(1, 4, 4, 4), pool_size=2, strides=2)


def without(monkeypatch: pytest.MonkeyPatch, layer: Any) -> None:
    """Takes a layer's code away from the NMPs."""
    monkeypatch.setattr(NmpBackend, "layer_types", property(lambda self: all_layers() - {layer}))


def test_one_region_with_its_report() -> None:
    (region,) = split(pooled(block(x(*F)))).regions
    report = region.report()
    assert report.symbol == "tvmgen_default_npu_main_0"
    assert report.inputs == (F,) and report.outputs == ((1, 4, 4, 4),)
    assert [name for _, name in report.operators] == [
        "my.conv2d", "my.relu", "my.conv2d", "my.add", "my.relu", "my.max_pool2d",
    ]  # fmt: skip
    assert [source for source, _ in report.operators if source] == ["one", "two"]
    assert report.macs == 2 * 4 * 4 * 9 * 64


def test_pieces_run_in_order_around_the_cpu() -> None:
    first = pooled(conv(x(*F), 4))
    second = of("cos", first, to=(1, 4, 4, 4))
    negative = of("negative", first, to=(1, 4, 4, 4))
    found = split(of("add", negative, second, to=(1, 4, 4, 4)))
    names = [getattr(piece, "symbol", None) or piece.name for piece in found.pieces]
    assert names == ["tvmgen_default_npu_main_0", "cos", "tvmgen_default_npu_main_1"]
    before, after = found.regions
    assert before.outputs == (first, negative) and after.inputs == (negative, second)


def test_a_region_of_layout_operators_stays_on_the_cpu() -> None:
    found = split(of("reshape", of("relu", x(*F), to=F), to=(1, 256)))
    assert found.regions == ()
    assert {r.value for r in found.refusals} == {"a region of 2 layout or activation operators"}


def test_region_means_what_its_operators_mean() -> None:
    data = x(*F)
    parts = call("split", conv(data, 4), to=[(1, 2, 8, 8)] * 2, axis=1, indices_or_sections=2)
    (region,) = split(parts.result(1), of("negative", parts.result(0), to=(1, 2, 8, 8))).regions
    graph = import_dataflow(region.flow, "r")
    assert graph.name == "r" and [layer.name for layer in graph.layers][:2] == [
        "my.conv2d", "my.split",
    ]  # fmt: skip
    values = randoms(1, *F)
    tensors = run_float(graph, {"in0": values})
    weight = region.calls[0].operands[1].array  # type: ignore[attr-defined]
    padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    want = np.einsum("bcrskl,mckl->bmrs", windows, weight)
    wanted = {(2, 4): want[:, 2:], (0, 2): -want[:, :2]}
    outputs = [tensors[name] for name in graph.outputs]
    for output, value in zip(region.outputs, outputs, strict=True):
        span = (2, 4) if output.call.name == "split" else (0, 2)
        np.testing.assert_allclose(value, wanted[span], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("missing", "refused"),
    [
        (FixedElementwise, {"my.add", "my.relu"}),
        (FixedPool, {"my.max_pool2d"}),
        (FixedConv, {"my.conv2d", "my.add", "my.negative"}),
    ],
)
def test_what_a_machine_has_no_code_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, missing: Any, refused: set[str]
) -> None:
    without(monkeypatch, missing)
    data = x(*F)
    alone = of("relu", data, to=F)
    summed = of("add", of("relu", conv(alone, 4), to=F), data, to=F)
    found = split(of("negative", pooled(summed), to=(1, 4, 4, 4)))
    lacking = [r for r in found.refusals if "has instructions for the layer" in r.rule]
    assert {r.operator for r in lacking} <= refused
    if missing is FixedPool:
        assert {r.operator for r in lacking} == refused
    assert lacking and all(r.limit.endswith("on nmp-4x8") for r in lacking)
    graphs = [import_dataflow(region.flow, region.symbol) for region in found.regions]
    left = [type(layer) for graph in graphs for layer in fuse(graph).layers]
    assert all(missing not in needed_layers(kind) for kind in left)
    assert left or missing is FixedConv


def test_an_activation_that_joins_a_convolution_needs_no_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, FixedElementwise)
    found = split(of("relu", conv(x(*F), 4), to=F))
    assert found.refusals == () and len(found.regions[0].calls) == 2


def test_ranges_come_from_what_the_door_runs() -> None:
    (region,) = split(of("relu", conv(x(*F), 4), to=F)).regions
    graph = import_dataflow(region.flow, region.symbol)
    samples = [randoms(seed, *F) for seed in (1, 2)]

    def run(runners: Mapping[str, RegionRunner]) -> None:
        for sample in samples:
            runners[region.symbol].run([sample])

    ranges = region_ranges({region.symbol: fuse(graph)}, run, None)[region.symbol].tensors
    assert ranges["in0"].low == min(float(s.min()) for s in samples)
    assert ranges["in0"].high == max(float(s.max()) for s in samples)
    assert min(one.low for name, one in ranges.items() if name != "in0") == 0.0
    with pytest.raises(CalibrationError, match="no samples; at least 1 is needed"):
        region_ranges({region.symbol: fuse(graph)}, lambda runners: None, None)


WEIGHTS_BYTES = 4 * (4 * 4 * 3 * 3 + 4)
"""Of a region of `test_of_several_regions_small_graphs_stay`, its bias included."""


@pytest.mark.parametrize(
    ("kept_bytes", "most", "made"),
    [(0, 1, 6), (WEIGHTS_BYTES - 1, 1, 6), (WEIGHTS_BYTES, 2, 5), (3 * WEIGHTS_BYTES, 3, 3)],
)
def test_of_several_regions_small_graphs_stay(kept_bytes: int, most: int, made: int) -> None:
    """Each is as large as its weights; ranges are those of graphs that all stay."""
    marked = {
        name: MarkedRegion(name, flow(of("relu", conv(x(*F), 4), to=F)), {}) for name in "abc"
    }
    alive: list[weakref.ref[Any]] = []
    found = 0

    def make(region: MarkedRegion) -> Graph:
        nonlocal found
        graph = fuse(region.graph())
        alive.append(weakref.ref(graph))
        found = max(found, sum(one() is not None for one in alive))
        return graph

    def run(runners: Mapping[str, RegionRunner]) -> None:
        for seed in (1, 2):
            for name in "abc":
                runners[name].run([randoms(seed, *F)])

    ranges = region_ranges(GraphByGraph(marked, make, kept_bytes), run, None)
    assert (found, len(alive)) == (most, made)
    assert ranges == region_ranges({n: fuse(one.graph()) for n, one in marked.items()}, run, None)


def test_what_is_no_region_is_named() -> None:
    strange = flow(of("cos", x(*F), to=F))
    with pytest.raises(ImportRegionError, match="'odd' contains 'my.cos', which has no NPU layer"):
        import_dataflow(strange, "odd")
    unmarked = MarkedRegion("r", flow(conv(x(*F), 4)), {})
    with pytest.raises(ImportRegionError, match="region 'r' has no attribute 'npu.options'"):
        unmarked.program()


def test_constants_of_another_shape_are_no_channel_vectors() -> None:
    found = split(of("add", conv(x(*F), 4), const(8, 8), to=F))
    assert [r.operator for r in found.refusals] == ["my.add"]
    assert found.refusals[0].value == "constant (8, 8) on (1, 4, 8, 8)"


def attention(data: Value, *, heads: int) -> Value:
    """Softmax over the rows' numbers; what it weighs a feature map with."""
    rows = of("reshape", data, to=(1, heads, 64))
    return of("softmax", rows, to=(1, heads, 64), axis=-1)


def test_a_softmax_inside_of_a_region_stays_there() -> None:
    data = conv(x(*F), 4)
    weights = of("reshape", attention(data, heads=4), to=F)
    (region,) = split(of("multiply", data, weights, to=F), offload="paying").regions
    assert "softmax" in {call.name for call in region.calls}
    along_channels = of("softmax", data, to=F, axis=1)
    (region,) = split(of("multiply", data, along_channels, to=F)).regions
    graph = import_dataflow(region.flow)
    kinds = [type(layer).__name__ for layer in graph.layers]
    assert kinds == ["Conv2d", "Transpose", "Softmax", "Transpose", "Elementwise"]
    value = randoms(3, *F)
    found = run_float(graph, {"in0": value})[graph.outputs[0]]
    before = next(layer for layer in graph.layers if type(layer).__name__ == "Transpose").inputs[0]
    mapped = run_float(replace(graph, outputs=(before,)), {"in0": value})[before]
    e = np.exp(mapped - mapped.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, mapped * e / e.sum(axis=1, keepdims=True), rtol=1e-4)


def test_a_softmax_at_the_end_of_a_region_has_to_pay() -> None:
    """Four rows of 64 are faster on the CPU; 512 are not."""
    few = attention(conv(x(*F), 4), heads=4)
    found = split(of("reshape", few, to=(1, 256)), offload="paying")
    assert [call.name for call in found.regions[0].calls] == ["conv2d", "reshape"]
    (refused,) = [one for one in found.refusals if one.operator == "my.softmax"]
    assert "at the end of a region" in refused.rule and "6,144 operations" in refused.value
    many = attention(conv(x(*F), 512), heads=512)
    (region,) = split(many, offload="paying").regions
    assert region.report().operators[-1][1] == "my.softmax"


@pytest.mark.parametrize(
    ("shape", "axis", "value"),
    [((1, 5000), 1, "5000 numbers"), ((1, 4, 8), 0, "axis 0"), ((1, 70000, 2), 2, "70000 rows")],
)
def test_what_softmax_is_refused(shape: tuple[int, ...], axis: int, value: str) -> None:
    data = of("multiply", x(*shape), x(*shape, name="z"), to=shape)
    found = split(of("softmax", data, to=shape, axis=axis))
    (refused,) = [one for one in found.refusals if one.operator == "my.softmax"]
    assert value in refused.value
