"""Softmax: integers within the stated bound of the function, and the steps that machines run."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, Graph, Shape
from tvm_npu.codegen.ops import FixedSoftmax, Softmax
from tvm_npu.codegen.ops.registry import check_shapes
from tvm_npu.codegen.ops.softmax import digits_of, softmax_error_bound
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.softmax_steps import with_softmax_steps
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.nmp.machine import load_nmp_machine

SIZES = {"int16": 2, "int8": 1}


def graph_of(shape: Shape) -> Graph:
    layer = Softmax("softmax", ("x",), ("y",), shape[-1])
    return Graph((layer,), {"x": shape, "y": shape}, ("x",), ("y",))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    result: np.ndarray = e / e.sum(axis=-1, keepdims=True)
    return result


def rows(seed: int, kind: str, count: int, width: float) -> np.ndarray:
    """Four rows of ``count`` numbers."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((4, 1, count)) * width
    if kind == "peaks":
        x[..., random.integers(count)] += 6 * width
    if kind == "levels":  # many exponentials that are rounded alike
        x = np.round(x / width) * width
    if kind == "flat":
        x[:] = x[..., :1]
    return x.astype(np.float32)


def quantized(x: np.ndarray, precision: str) -> tuple[FixedGraph, np.ndarray]:
    graph = graph_of(x.shape[1:])
    fixed = quantize(graph, calibrate(graph, [{"x": x}]), precision)  # type: ignore[arg-type]
    return fixed, fixed.scales["x"].quantize(x, SIZES[precision])


@pytest.mark.parametrize("precision", SIZES)
def test_the_bound_holds_and_says_something(precision: str) -> None:
    size, closest = SIZES[precision], 0.0
    kinds = ("normal", "peaks", "levels", "flat")
    for seed, (kind, count, width) in enumerate(
        product(kinds, (1, 2, 3, 10, 197, 1000), (1e-3, 0.3, 1.0, 4.0, 30.0, 1e4))
    ):
        fixed, x = quantized(rows(seed, kind, count, width), precision)
        y = fixed.scales["y"].dequantize(run_fixed(fixed, {"x": x})["y"])
        error = np.abs(y - softmax(fixed.scales["x"].dequantize(x))).max()
        q_in, q_out = fixed.q_points["x"], fixed.q_points["y"]
        bound = softmax_error_bound(q_in, q_out, count, size)
        assert error <= bound, (kind, count, width, error, bound)
        closest = max(closest, error / bound)
    assert closest > 0.3, "a bound that is far too wide says nothing"


@pytest.mark.parametrize(("count", "least_db"), [(10, 70.0), (1000, 68.0)])
def test_int16_keeps_its_digits(count: int, least_db: float) -> None:
    """Also where every result is far below 1: the reciprocal has the result's digits."""
    for width in (0.01, 1.0, 10.0):
        fixed, x = quantized(rows(count, "normal", count, width), "int16")
        want = softmax(fixed.scales["x"].dequantize(x))
        y = fixed.scales["y"].dequantize(run_fixed(fixed, {"x": x})["y"])
        assert 10 * np.log10((want**2).sum() / ((y - want) ** 2).sum()) > least_db
    assert softmax_error_bound(11, 15, 10, 2) < 2e-3


def test_digits() -> None:
    """Wide inputs are cut at 2**4; small results give the reciprocal theirs; sums of 1000 numbers
    have ten octaves, of which a table covers four."""
    assert digits_of(6, 15, 1000, 2).differences == 11
    assert digits_of(14, 15, 1000, 2).differences == 13
    assert digits_of(6, 15, 1000, 2).stretches == 3
    small = digits_of(14, 22, 1000, 2)
    assert (small.reciprocal, small.least_sum_bits, small.stretches) == (22, 7, 1)
    assert digits_of(6, 90, 1000, 2).least_sum_bits == 9, "a sum is at most the count"


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 70)),
    st.floats(-3.0, 3.0), st.sampled_from(tuple(SIZES)), st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=examples(40), deadline=None)
def test_the_steps_are_the_softmax(
    shape: Shape, magnitude: float, precision: str, seed: int
) -> None:
    x = np.random.default_rng(seed).standard_normal((2, *shape)) * 10.0**magnitude
    fixed, integers = quantized(x.astype(np.float32), precision)
    steps = with_softmax_steps(fixed)
    assert not any(isinstance(layer, FixedSoftmax) for layer in steps.layers)
    check_shapes(steps)
    assert set(steps.scales) == set(steps.shapes)
    wanted = run_fixed(fixed, {"x": integers})["y"]
    np.testing.assert_array_equal(run_fixed(steps, {"x": integers})["y"], wanted)


@pytest.mark.parametrize(("shape", "precision"), [((10,), "int16"), ((3, 5, 33), "int8")])
def test_on_an_nmp(shape: Shape, precision: str) -> None:
    x = np.random.default_rng(5).standard_normal((1, *shape)).astype(np.float32) * 3
    fixed, integers = quantized(x, precision)
    machine = load_nmp_machine("nmp-4x8")
    outputs, _ = simulate(compile_fixed(fixed, machine), {"x": integers[0]})
    np.testing.assert_array_equal(outputs["y"], run_fixed(fixed, {"x": integers})["y"][0])


def test_float_softmax_of_large_numbers() -> None:
    graph = graph_of((2, 3))
    x = np.array([[[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4]]], np.float32)
    found = run_float(graph, {"x": x})["y"]
    np.testing.assert_allclose(found, [[[0.5, 0.5, 0.0], [1 / 3] * 3]], rtol=1e-6)
