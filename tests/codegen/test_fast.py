"""Compiled graphs against the reference: integers to the bit, float within rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, layers, random_tensors
from tests.codegen.random_graphs import ALL_OPS, graphs, random_inputs
from tests.examples import examples
from tvm_npu.codegen.errors import GraphError, InputError, QuantizationError
from tvm_npu.codegen.fast import FastFixed, FastFloat
from tvm_npu.codegen.fast import convolutions as ready
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import Clip, FixedGraph, Graph
from tvm_npu.codegen.ops import Conv2d, Elementwise, FixedConv, ScaleShift
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_fixed, run_float


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from((1, 2)).flatmap(layers), SEEDS, st.integers(1, 3), st.integers(1, 4000))
def test_layers_are_equal_to_the_bit(
    fixed: FixedGraph, seed: int, batch: int, scratch_bytes: int
) -> None:
    each = [random_tensors(fixed, seed + image) for image in range(batch)]
    inputs = {name: np.stack([one[name] for one in each]) for name in fixed.inputs}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ready, "SCRATCH_BYTES", scratch_bytes)
        patch.setattr(ready, "LEAST_RUN", 1)
        patch.setattr(ready, "WINDOW_RUN", 1 + scratch_bytes // 100)
        found = FastFixed(fixed).run(inputs)
    wanted = run_fixed(fixed, inputs)
    assert list(found) == list(fixed.outputs)
    for name, values in found.items():
        assert values.dtype == wanted[name].dtype
        np.testing.assert_array_equal(values, wanted[name])


@settings(max_examples=examples(60), deadline=None)
@given(graphs(ops=ALL_OPS), st.sampled_from(("int16", "int8")))
def test_random_graphs(source: Graph, precision: str) -> None:
    inputs = random_inputs(source, seed=5)
    floats = run_float(source, inputs)
    assume(all(np.isfinite(value).all() for value in floats.values()))
    for name, values in FastFloat(source).run(inputs).items():
        largest = float(np.abs(floats[name]).max())
        np.testing.assert_allclose(values, floats[name], rtol=1e-4, atol=1e-5 * largest)
    try:
        fixed = quantize(fuse(source), calibrate(source, [inputs]), precision)  # type: ignore[arg-type]
    except QuantizationError:
        assume(False)
    integers = {
        name: quantize_tensor(value, fixed.q_points[name], fixed.element_bytes)
        for name, value in inputs.items()
    }
    wanted = run_fixed(fixed, integers)
    for name, values in FastFixed(fixed).run(integers).items():
        np.testing.assert_array_equal(values, wanted[name])


@settings(max_examples=examples(20), deadline=None)
@given(convolutions(1), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-20, 60))
def test_accumulators_and_shifts_as_large_as_they_get(
    fixed: FixedGraph, bias: int, shift: int
) -> None:
    (layer,) = fixed.layers
    assert isinstance(layer, FixedConv)
    layer = replace(layer, bias=np.full_like(layer.bias, bias), shift=shift)
    fixed = replace(fixed, layers=(layer,))
    inputs = {name: values[None] for name, values in random_tensors(fixed, 1).items()}
    wanted = run_fixed(fixed, inputs)[layer.output]
    np.testing.assert_array_equal(FastFixed(fixed).run(inputs)[layer.output], wanted)


def conv_and_behind(kept: tuple[str, ...]) -> Graph:
    generator = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32)

    layers = (
        Conv2d("conv", ("x",), ("a",), numbers(4, 3, 3, 3), numbers(4), padding=(1, 1, 1, 1)),
        ScaleShift("scale", ("a",), ("b",), numbers(4), numbers(4)),
        Elementwise("clip", ("b",), ("y",), "copy", Clip(0.0, 1.0)),
    )
    shapes = {"x": (3, 6, 7), **dict.fromkeys("aby", (4, 6, 7))}
    return Graph(layers, shapes, ("x",), kept)


@pytest.mark.parametrize("kept", [("y",), ("a", "y"), ("b", "y"), ("a", "b", "y")])
def test_what_lies_between_a_convolution_and_its_clip_is_there_when_wanted(
    kept: tuple[str, ...],
) -> None:
    graph = conv_and_behind(kept)
    inputs = random_inputs(graph, seed=1)
    wanted = run_float(graph, inputs)
    found = FastFloat(graph).run(inputs)
    assert sorted(found) == sorted(kept)
    for name, values in found.items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-5, atol=1e-5)


def test_unusable_inputs_and_graphs_are_refused_as_by_the_reference() -> None:
    graph = conv_and_behind(("y",))
    with pytest.raises(InputError, match="x"):
        FastFloat(graph).run({})
    wrong = replace(graph, shapes={**graph.shapes, **dict.fromkeys("aby", (4, 5, 7))})
    with pytest.raises(GraphError, match="conv"):
        FastFloat(wrong).run(random_inputs(graph, seed=1))
    conv = replace(graph.layers[0], weight=np.ones((4, 5, 3, 3), np.float32))  # type: ignore[call-arg]
    with pytest.raises(GraphError, match="channels"):
        FastFloat(replace(graph, layers=(conv, *graph.layers[1:]))).run(random_inputs(graph, 1))
