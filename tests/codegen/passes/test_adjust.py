"""Equalisation and bias correction: the float network stays, the integers come nearer to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.codegen.passes.test_quantize import digit_classifier
from tests.codegen.random_graphs import ALL_OPS, graphs, random_inputs
from tests.examples import examples
from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph import Clip, Graph
from tvm_npu.codegen.ops import Conv2d, Elementwise
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate, channel_magnitudes
from tvm_npu.codegen.passes.correct_bias import bias_corrections
from tvm_npu.codegen.passes.equalize import FULL, equalize
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS, Adjustments, groups
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.nmp.machine import FILTER_SHIFTS

ADDS = ("conv", "conv", "conv", "depthwise", "depthwise", "add", "clip", "pool", *ALL_OPS)


def adjust(graph: Graph, sample: dict[str, np.ndarray]) -> tuple[Adjustments, Ranges]:
    floats = run_float(graph, sample)
    magnitudes = {tensor: channel_magnitudes(values) for tensor, values in floats.items()}
    return equalize(graph, calibrate(graph, [sample]), magnitudes)


@settings(max_examples=examples(60), deadline=None)
@given(graphs(ops=ADDS))
def test_equalised_graphs_mean_the_same(source: Graph) -> None:
    graph = fuse(source)
    sample = random_inputs(graph, seed=3)
    before = run_float(graph, sample)
    assume(all(np.isfinite(value).all() for value in before.values()))
    adjustments, ranges = adjust(graph, sample)
    after = run_float(adjustments.apply(graph), sample)
    for tensor in graph.tensors:
        wanted = before[tensor].astype(np.float64)
        if tensor in adjustments.factors:
            factors = np.array(adjustments.factors[tensor])
            wanted = wanted * factors.reshape(1, -1, *[1] * (wanted.ndim - 2))
        scale = max(float(np.abs(wanted).max()), 1e-6)
        np.testing.assert_allclose(after[tensor], wanted, atol=1e-3 * scale)
        assert tensor in ranges
    assert Adjustments.from_json(adjustments.to_json()) == adjustments


def depthwise_network(clip: Clip) -> tuple[Graph, dict[str, np.ndarray]]:
    """A layer with channels of unlike ranges in front of a depthwise one, and a sum."""
    generator = np.random.default_rng(5)
    shape = (8, 6, 6)
    spread = np.geomspace(1.0, 60.0, 8).reshape(8, 1, 1, 1)
    first = (generator.standard_normal((8, 3, 1, 1)) * spread).astype(np.float32)
    kernels = (generator.standard_normal((8, 1, 3, 3)) / spread).astype(np.float32)
    last = generator.standard_normal((8, 8, 1, 1)).astype(np.float32)
    bias = np.zeros(8, np.float32)
    layers = (
        Conv2d("a", ("x",), ("a",), first, bias, activation=clip),
        Conv2d("b", ("a",), ("b",), kernels, bias, padding=(1, 1, 1, 1), groups=8),
        Conv2d("c", ("b",), ("c",), last, bias),
        Elementwise("d", ("b", "c"), ("d",), "add"),
        Conv2d("y", ("d",), ("y",), last, bias),
    )
    graph = Graph(layers, {"x": (3, 6, 6), **dict.fromkeys("abcdy", shape)}, ("x",), ("y",))
    return graph, {"x": generator.standard_normal((4, 3, 6, 6)).astype(np.float32)}


def test_factors_of_groups() -> None:
    graph, sample = depthwise_network(Clip(0.0, np.inf))
    found = {"".join(sorted(group.tensors)): group.is_free for group in groups(graph)}
    assert found == {"x": False, "a": True, "bcd": True, "y": False}
    adjustments, ranges = adjust(graph, sample)
    assert set(adjustments.factors) == {"a", "b", "c", "d"}
    assert adjustments.factors["b"] == adjustments.factors["c"] == adjustments.factors["d"]
    a = adjustments.factors["a"]
    assert max(a) / min(a) == pytest.approx(2.0)
    for tensor in "abcd":
        assert np.log2(ranges[tensor].magnitude(1) / FULL) % 1.0 == 0.0
    made = run_float(adjustments.apply(graph), sample)
    for tensor in "bcd":  # what int8 clips is in the range that int16 has
        largest = float(max(np.abs(made[one]).max() for one in "bcd"))
        assert ranges[tensor].magnitude(2) == pytest.approx(largest, rel=1e-5)
        assert ranges[tensor].magnitude(1) < largest
    assert Ranges.from_json(ranges.to_json()) == ranges
    assert (ranges["a"].low, ranges["b"].low) == (0.0, -ranges["b"].high)


def test_an_upper_bound_ends_where_the_integers_do() -> None:
    graph, sample = depthwise_network(Clip(0.0, 6.0))
    adjustments, ranges = adjust(graph, sample)
    assert adjustments.limits == {"a": 8.0 * FULL} and ranges["a"].high == 8.0 * FULL
    fixed = quantize(adjustments.apply(graph), ranges, "int8", FILTER_SHIFTS)
    assert fixed.layers[0].high == 127  # type: ignore[attr-defined]


def sqnr_db(graph: Graph, adjustments: Adjustments, ranges: Ranges, sample: dict) -> float:
    (name,), (out,) = graph.inputs, graph.outputs
    fixed = quantize(adjustments.apply(graph), ranges, "int8", FILTER_SHIFTS)
    made = run_fixed(fixed, {name: fixed.scales[name].quantize(sample[name], 1)})[out]
    wanted = run_float(graph, sample)[out].astype(np.float64)
    error = fixed.scales[out].dequantize(made) - wanted
    return float(10 * np.log10(np.square(wanted).sum() / np.square(error).sum()))


def test_corrected_digits_are_nearer_to_float() -> None:
    """Corrected on 100 digits, measured on 600 others."""
    source, images, labels = digit_classifier()
    graph = fuse(source)
    few, many = {"x": images[:100]}, {"x": images[900:1500]}
    plain = sqnr_db(graph, NO_ADJUSTMENTS, calibrate(graph, [few]), many)
    adjustments, ranges = adjust(graph, few)
    biases = bias_corrections(adjustments.apply(graph), ranges, "int8", FILTER_SHIFTS, few)
    corrected = replace(adjustments, biases=biases)
    assert sqnr_db(graph, corrected, ranges, many) > plain + 1.0
    fixed = quantize(corrected.apply(graph), ranges, "int8", FILTER_SHIFTS)
    made = run_fixed(fixed, {"x": fixed.scales["x"].quantize(many["x"], 1)})["y"]
    floats = run_float(graph, many)["y"]
    agreement = np.mean(made.argmax(1) == floats.argmax(1))
    assert agreement > 0.98 and len(labels) == len(images)


def test_means_are_kept() -> None:
    graph, sample = depthwise_network(Clip(0.0, 6.0))
    ranges = calibrate(graph, [sample])

    def shift(adjustments: Adjustments) -> float:
        fixed = quantize(adjustments.apply(graph), ranges, "int8", FILTER_SHIFTS)
        made = run_fixed(fixed, {"x": fixed.scales["x"].quantize(sample["x"], 1)})["y"]
        error = fixed.scales["y"].dequantize(made) - run_float(graph, sample)["y"]
        return float(np.abs(error.mean(axis=(0, 2, 3))).max())

    biases = bias_corrections(graph, ranges, "int8", FILTER_SHIFTS, sample)
    assert set(biases) == {"a", "b", "c", "y"}
    assert shift(Adjustments(biases=biases)) < shift(NO_ADJUSTMENTS) / 2


def test_numbers_that_do_not_fit() -> None:
    graph, _ = depthwise_network(Clip())
    for wrong in (
        Adjustments(factors={"a": (1.0,)}), Adjustments(biases={"nothing": (0.0,)}),
        Adjustments(factors={"a": (0.0,) * 8}),
    ):  # fmt: skip
        with pytest.raises(GraphError, match="do not fit tensor|must be positive and finite"):
            wrong.apply(graph)
