"""Own and accumulated errors of layers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tvm_npu.codegen.errors import InputError
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.ops import Conv2d
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate
from tvm_npu.codegen.passes.layer_errors import LEAST_DB, layer_errors, ratio_db
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.sqnr import layer_sqnr
from tvm_npu.codegen.reference import run_float

BIAS = np.zeros(4, np.float32)


def network() -> tuple[Graph, dict[str, np.ndarray]]:
    """Four layers; the second one's range is far too wide (below)."""
    generator = np.random.default_rng(2)
    weights = generator.standard_normal((4, 4, 4, 1, 1)).astype(np.float32) / 2
    layers = tuple(
        Conv2d(name, (source,), (name,), weight, BIAS, source=(f"node_{name}",))
        for name, source, weight in zip("abcd", "xabc", weights, strict=True)
    )
    graph = Graph(layers, dict.fromkeys("xabcd", (4, 6, 6)), ("x",), ("d",))
    return graph, {"x": generator.standard_normal((2, 4, 6, 6)).astype(np.float32)}


def test_the_layer_with_the_wide_range_is_to_blame() -> None:
    graph, sample = network()
    plain = calibrate(graph, [sample])
    bounds = {t: (plain[t].low, plain[t].high) for t in plain}
    fixed = quantize(graph, Ranges.from_bounds({**bounds, "b": (-300, 300)}), "int8")
    found = {entry.layer: entry for entry in layer_errors(graph, fixed, [sample, sample])}
    assert list(found)[0] == "b" and found["b"].own_db < 12
    assert found["a"].own_db > 25 and found["a"].accumulated_db > 25
    assert found["d"].accumulated_db < 15 and found["d"].own_db > 25
    assert found["d"].advice == "the error comes from layers before"
    assert "too coarse" in found["b"].advice and found["a"].advice == ""
    assert found["b"].source == ("node_b",) and found["a"].clipped_share == 0.0
    together = {entry.layer: entry.sqnr_db for entry in layer_sqnr(graph, fixed, [sample, sample])}
    for name, entry in found.items():
        assert entry.accumulated_db == pytest.approx(together[name])


@pytest.mark.parametrize("share", [0.3, 0.9, 1.1])
def test_values_below_one_step_are_told(share: float) -> None:
    """Of an output whose root mean square is a share of its step."""
    graph, sample = network()
    ranges = calibrate(graph, [sample])
    bounds = {t: (ranges[t].low, ranges[t].high) for t in ranges}
    rms = float(np.sqrt(np.square(run_float(graph, sample)["d"], dtype=np.float64).mean()))
    step = 2.0 ** round(np.log2(rms / 0.7))
    factor = np.float32(share * step / rms)
    last = replace(graph.layers[-1], weight=graph.layers[-1].weight * factor)
    small = replace(graph, layers=(*graph.layers[:-1], last))
    wide = Ranges.from_bounds({**bounds, "d": (-100 * step, 100 * step)})
    entry = next(
        e for e in layer_errors(small, quantize(small, wide, "int8"), [sample]) if e.layer == "d"
    )
    assert entry.step == step and entry.rms == pytest.approx(share * step, rel=1e-5)
    assert entry.is_below_one_step == (share < 1)
    assert ("below one step" in entry.advice) == (share < 1)


def test_clipped_values_are_counted() -> None:
    graph, sample = network()
    ranges = calibrate(graph, [sample])
    bounds = {t: (ranges[t].low, ranges[t].high) for t in ranges}
    fixed = quantize(graph, Ranges.from_bounds({**bounds, "a": (-0.2, 0.2)}), "int8")
    entry = next(e for e in layer_errors(graph, fixed, [sample]) if e.layer == "a")
    assert entry.clipped_share > 0.5 and "leave the range" in entry.advice
    with pytest.raises(InputError, match="at least one sample"):
        layer_errors(graph, fixed, [])


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [
        (1.0, 0.0, math.inf), (0.0, 0.0, math.inf), (100.0, 1.0, 20.0), (1.0, 100.0, -20.0),
        (0.0, 1.0, LEAST_DB), (-1e-20, 1.0, LEAST_DB), (1e-300, 1e300, LEAST_DB),
    ],
)  # fmt: skip
def test_ratios(signal: float, noise: float, expected: float) -> None:
    assert ratio_db(signal, noise) == pytest.approx(expected)
