"""Signal to quantization noise per layer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tvm_npu.codegen.errors import GraphError, InputError
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor
from tvm_npu.codegen.graph import RELU, Graph
from tvm_npu.codegen.ops import Conv2d, Elementwise, Pool, ScaleShift
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import Ranges, calibrate, quantize
from tvm_npu.codegen.passes.sqnr import layer_sqnr
from tvm_npu.codegen.reference import run_fixed, run_float

SHAPE = (4, 8, 8)


def network() -> Graph:
    generator = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32)

    layers = (
        Conv2d("conv", ("x",), ("a",), values(4, 4, 3, 3), values(4), padding=(1,) * 4),
        ScaleShift("norm", ("a",), ("b",), values(4), values(4), source=("bn",)),
        Elementwise("relu", ("b",), ("c",), "copy", RELU),
        Pool("pool", ("c",), ("d",), "max", (1, 1)),
        Conv2d("last", ("d",), ("y",), values(4, 4, 1, 1), values(4)),
    )
    return Graph(layers, dict.fromkeys("xabcdy", SHAPE), ("x",), ("y",))


def samples(count: int) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(1)
    return [{"x": generator.standard_normal((2, *SHAPE), dtype=np.float32)} for _ in range(count)]


@pytest.mark.parametrize(("precision", "least", "most"), [("int16", 60, 110), ("int8", 18, 50)])
def test_entries_per_layer_worst_first(precision: str, least: float, most: float) -> None:
    graph = network()
    fused = fuse(graph)
    fixed = quantize(fused, calibrate(graph, samples(2)), precision)  # type: ignore[arg-type]
    entries = layer_sqnr(graph, fixed, samples(2))
    assert sorted(entry.layer for entry in entries) == ["conv", "last", "pool"]
    ratios = [entry.sqnr_db for entry in entries]
    assert ratios == sorted(ratios) and least < ratios[0] and ratios[-1] < most
    assert {entry.source for entry in entries} == {("bn",), ()}
    assert layer_sqnr(fused, fixed, samples(2))[0].sqnr_db == pytest.approx(ratios[0], abs=0.1)


def test_figures_are_sums_over_all_samples() -> None:
    graph = fuse(network())
    fixed = quantize(graph, calibrate(graph, samples(1)), "int8")
    entry = next(e for e in layer_sqnr(graph, fixed, samples(3)) if e.layer == "last")
    signal = noise = worst = 0.0
    saturated = count = 0
    for sample in samples(3):
        exact = run_float(graph, sample)["y"].astype(np.float64)
        integers = run_fixed(fixed, {"x": quantize_tensor(sample["x"], fixed.q_points["x"], 1)})
        error = dequantize_tensor(integers["y"], fixed.q_points["y"]) - exact
        signal, noise = signal + np.square(exact).sum(), noise + np.square(error).sum()
        worst = max(worst, np.abs(error).max())
        saturated += np.isin(integers["y"], (-128, 127)).sum()
        count += integers["y"].size
    assert entry.signal_power == pytest.approx(signal)
    assert entry.noise_power == pytest.approx(noise)
    assert entry.sqnr_db == pytest.approx(10 * math.log10(signal / noise))
    assert entry.max_error == pytest.approx(worst)
    assert entry.saturated_share == saturated / count
    assert entry.q_point == fixed.q_points["y"]


def test_too_narrow_ranges_show_as_saturation() -> None:
    graph = fuse(network())
    wide = calibrate(graph, samples(1))
    narrow = wide.merge(Ranges())
    bounds = {name: (entry.low, entry.high) for name, entry in narrow.tensors.items()}
    bounds["y"] = (-0.1, 0.1)
    fixed = quantize(graph, Ranges.from_bounds(bounds), "int16")
    worst = layer_sqnr(graph, fixed, samples(1))[0]
    assert worst.layer == "last" and worst.saturated_share > 0.5 and worst.sqnr_db < 10


def test_exact_and_dead_layers() -> None:
    relu = Elementwise("relu", ("x",), ("y",), "copy", RELU)
    graph = Graph((relu,), {"x": (3,), "y": (3,)}, ("x",), ("y",))
    fixed = quantize(graph, Ranges.from_bounds({"x": (-8, 7), "y": (0, 7)}), "int16")
    (exact,) = layer_sqnr(graph, fixed, [{"x": np.array([[1.0, -2.0, 3.0]], np.float32)}])
    assert exact.sqnr_db == math.inf and exact.max_error == 0.0


def test_unusable_arguments() -> None:
    graph = fuse(network())
    fixed = quantize(graph, calibrate(graph, samples(1)), "int16")
    with pytest.raises(InputError, match="at least one sample"):
        layer_sqnr(graph, fixed, [])
    other = Graph(graph.layers[:1], dict.fromkeys("xc", SHAPE), ("x",), ("c",), name="part")
    with pytest.raises(GraphError, match="'pool' writes 'd', which float graph 'part'"):
        layer_sqnr(other, fixed, samples(1))
