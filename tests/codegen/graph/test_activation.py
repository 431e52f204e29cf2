"""Activations: what they do to values, one after the other, and their fixed-point bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import element_limits, quantize_tensor
from tvm_npu.codegen.graph import NO_CLIP, RELU, Activation, Clip, Graph
from tvm_npu.codegen.graph.tensors import FloatArray
from tvm_npu.codegen.ops import Elementwise, Pool
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_float

BOUNDS = st.floats(-8, 8, width=32)
CLIPS = st.tuples(BOUNDS, BOUNDS).map(lambda two: Clip(min(two), max(two)))
X = np.linspace(-9, 9, 91, dtype=np.float32)


class Sigmoid:
    """An activation that is no clip, as one given by a table would be."""

    is_identity = False

    def apply(self, x: FloatArray) -> FloatArray:
        return (1 / (1 + np.exp(-x))).astype(np.float32)

    def then(self, other: Activation) -> Activation | None:
        return self if other.is_identity else None

    def bounds(self, q_point: int, element_bytes: int) -> tuple[int, int]:
        raise QuantizationError("a sigmoid needs a table; bounds cannot do it")


@given(CLIPS, CLIPS)
def test_one_after_the_other(first: Clip, second: Clip) -> None:
    both = first.then(second)
    assert both is not None
    np.testing.assert_array_equal(both.apply(X), second.apply(first.apply(X)))
    assert isinstance(both, Clip) and both.low <= both.high


@given(CLIPS, st.integers(-2, 12), st.sampled_from((1, 2)))
def test_bounds_are_what_quantized_values_keep(clip: Clip, q_point: int, size: int) -> None:
    low, high = clip.bounds(q_point, size)
    integers = quantize_tensor(X, q_point, size)
    np.testing.assert_array_equal(
        np.clip(integers, low, high), quantize_tensor(clip.apply(X), q_point, size)
    )
    assert NO_CLIP.bounds(q_point, size) == element_limits(size)
    assert RELU.bounds(q_point, size) == (0, element_limits(size)[1])


def test_clips_are_activations_and_nan_is_none() -> None:
    assert isinstance(RELU, Activation) and isinstance(Sigmoid(), Activation)
    assert RELU.then(Sigmoid()) is None and isinstance(NO_CLIP.then(Sigmoid()), Sigmoid)
    assert NO_CLIP.is_identity and not RELU.is_identity
    with pytest.raises(QuantizationError, match="constant nan"):
        Clip(math.nan, 1.0).bounds(3, 1)


def sigmoid_graph() -> Graph:
    """A pool, a sigmoid behind it, and a clip behind that."""
    layers = (
        Pool("p", ("x",), ("a",), "max", (2, 2), (2, 2)),
        Elementwise("s", ("a",), ("b",), "copy", Sigmoid()),
        Elementwise("c", ("b",), ("y",), "copy", Clip(0.25, 0.75)),
    )
    part = (2, 2, 2)
    return Graph(layers, {"x": (2, 4, 4), "a": part, "b": part, "y": part}, ("x",), ("y",))


def test_an_activation_of_another_kind_fuses_as_far_as_it_says() -> None:
    graph = sigmoid_graph()
    fused = fuse(graph)
    assert [layer.name for layer in fused.layers] == ["p", "c"]
    x = {"x": np.random.default_rng(3).normal(size=(2, 2, 4, 4)).astype(np.float32)}
    np.testing.assert_array_equal(run_float(graph, x)["y"], run_float(fused, x)["y"])


def test_what_bounds_cannot_do_is_refused_with_the_layers_name() -> None:
    ranges = Ranges.from_bounds(dict.fromkeys("xaby", (-1.0, 1.0)))
    with pytest.raises(QuantizationError, match="layer 'p': a sigmoid needs a table"):
        quantize(fuse(sigmoid_graph()), ranges, "int8")
