"""Transposed convolutions by phases and mirrors as moves: the same integers, in the reference and
on a simulated NMP."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate
from tests.codegen.ops.test_transposed_conv import layers as transposed_layers
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, Graph, Layer, Shape
from tvm_npu.codegen.ops import FixedConv, FixedMove, FixedReflectPad, ReflectPad, TransposedConv
from tvm_npu.codegen.ops.registry import check_shapes, layer_macs
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.mirrors import with_moved_mirrors
from tvm_npu.codegen.passes.phases import phased_axis, with_phases
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import load_nmp_machine


def quantized(layer: Layer, source: Shape, target: Shape, precision: str) -> FixedGraph:
    graph = Graph((layer,), {"x": source, "y": target}, ("x",), ("y",))
    random = np.random.default_rng(3)
    sample = {"x": random.normal(size=(1, *source)).astype(np.float32)}
    return quantize(graph, calibrate(graph, [sample]), precision)  # type: ignore[arg-type]


def integers(fixed: FixedGraph, batch: int) -> np.ndarray:
    dtype = np.int8 if fixed.element_bytes == 1 else np.int16
    limits = np.iinfo(dtype)
    shape = (batch, *fixed.shapes["x"])
    return np.random.default_rng(4).integers(limits.min, limits.max, shape).astype(dtype)


def check_on_nmp(fixed: FixedGraph) -> float:
    x = integers(fixed, 1)
    machine = load_nmp_machine("nmp-4x8")
    outputs, statistics = simulate(compile_fixed(fixed, machine), {"x": x[0]})
    np.testing.assert_array_equal(outputs["y"], run_fixed(fixed, {"x": x})["y"][0])
    return statistics.cycles


@given(transposed_layers(), st.sampled_from(("int8", "int16")))
@settings(max_examples=examples(40), deadline=None)
def test_phases_are_the_transposed_convolution(
    case: tuple[TransposedConv, Shape, Shape], precision: str
) -> None:
    fixed = quantized(*case, precision)
    phased = with_phases(fixed)
    assert not {type(layer) for layer in phased.layers} & {type(fixed.layers[0])}
    check_shapes(phased)
    x = integers(fixed, 2)
    np.testing.assert_array_equal(run_fixed(phased, {"x": x})["y"], run_fixed(fixed, {"x": x})["y"])


@given(transposed_layers(), st.sampled_from(("int8", "int16")))
@settings(max_examples=examples(5), deadline=None)
def test_phases_on_an_nmp(case: tuple[TransposedConv, Shape, Shape], precision: str) -> None:
    check_on_nmp(quantized(*case, precision))


def upsampling(kernel: int, padding: int) -> TransposedConv:
    weight = np.random.default_rng(1).normal(size=(8, 16, kernel, kernel)).astype(np.float32)
    pads = (padding,) * 4
    return TransposedConv("l", ("x",), ("y",), weight, np.ones(8, np.float32), (2, 2), pads)


@pytest.mark.parametrize(("kernel", "padding", "count"), [(2, 0, 1), (4, 1, 4), (3, 1, 4)])
def test_no_product_is_wasted_and_phases_that_see_the_same_are_one(
    kernel: int, padding: int, count: int
) -> None:
    more = (1, 1) if kernel == 3 else (0, 0)
    layer = upsampling(kernel, padding)
    layer = TransposedConv(
        "l", ("x",), ("y",), layer.weight, layer.bias, (2, 2), layer.padding, more
    )
    fixed = quantized(layer, (16, 12, 12), (8, 24, 24), "int16")
    phased = with_phases(fixed)
    convolutions = [one for one in phased.layers if isinstance(one, FixedConv)]
    assert len(convolutions) == count
    macs = sum(layer_macs(one, phased.shapes) for one in convolutions)
    assert macs == 16 * 8 * 12 * 12 * kernel**2
    (moved,) = [one for one in phased.layers if isinstance(one, FixedMove)]
    assert len(moved.pieces) == 1
    assert check_on_nmp(fixed) < 25_000


def test_runs_of_phases() -> None:
    assert [len(run) for run in phased_axis(16, 8, 4, 64).runs] == [4, 4]
    assert [len(run) for run in phased_axis(3, 2, 1, 9).runs] == [1, 1]
    assert phased_axis(1, 3, 0, 4).runs[1][0].taps == ()


@given(st.tuples(*[st.integers(1, 6)] * 3), st.data())
@settings(max_examples=examples(15), deadline=None)
def test_mirrors(shape: Shape, data: st.DataObject) -> None:
    padding = tuple(data.draw(st.integers(0, shape[1 + k % 2] - 1)) for k in range(4))
    target = (shape[0], shape[1] + padding[0] + padding[2], shape[2] + padding[1] + padding[3])
    layer = ReflectPad("l", ("x",), ("y",), padding)  # type: ignore[arg-type]
    fixed = quantized(layer, shape, target, data.draw(st.sampled_from(("int8", "int16"))))
    moved = with_moved_mirrors(fixed)
    assert not any(isinstance(layer, FixedReflectPad) for layer in moved.layers)
    x = integers(fixed, 2)
    np.testing.assert_array_equal(run_fixed(moved, {"x": x})["y"], run_fixed(fixed, {"x": x})["y"])
    if sum(padding) < 4:
        check_on_nmp(fixed)
