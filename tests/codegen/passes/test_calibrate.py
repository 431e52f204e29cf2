"""Calibration: recorded ranges, percentiles, merging, JSON, the choice between Q-points."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tvm_npu.codegen.errors import InputError, QuantizationError
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor
from tvm_npu.codegen.graph import RELU, Graph
from tvm_npu.codegen.ops import Conv2d, Elementwise
from tvm_npu.codegen.ops.weights import weight_q_point
from tvm_npu.codegen.passes import calibrate as calibrate_module
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate, observe, synthetic_samples
from tvm_npu.codegen.passes.qpoints import range_q_point, squared_error

FLOATS = st.floats(-1e6, 1e6, width=32)


def relu() -> Graph:
    layer = Elementwise("relu", ("x",), ("y",), "copy", RELU)
    return Graph((layer,), {"x": (2, 3), "y": (2, 3)}, ("x",), ("y",), name="relu")


def sample(seed: int, batch: int = 2) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {"x": generator.standard_normal((batch, 2, 3), dtype=np.float32)}


def test_calibration_records_every_tensor() -> None:
    first, second = sample(1), sample(2)
    ranges = calibrate(relu(), [first, second])
    both = np.concatenate([first["x"], second["x"]])
    assert list(ranges) == ["x", "y"] and "y" in ranges
    assert (ranges["x"].low, ranges["x"].high) == (both.min(), both.max())
    assert (ranges["y"].low, ranges["y"].high) == (0.0, both.max())
    assert sum(octave.count for octave in ranges["y"].octaves) == (both > 0).sum()


def test_merging_equals_calibrating_with_all_samples() -> None:
    merged = calibrate(relu(), [sample(1)]).merge(calibrate(relu(), [sample(2, batch=3)]))
    together = calibrate(relu(), [sample(1), sample(2, batch=3)])
    assert merged == together
    both = observe(np.concatenate([sample(1)["x"], sample(2, batch=3)["x"]]), "x")
    for octave, expected in zip(merged["x"].octaves, both.octaves, strict=True):
        assert (octave.exponent, octave.count) == (expected.exponent, expected.count)
        assert octave.magnitude_sum == pytest.approx(expected.magnitude_sum)
        assert octave.square_sum == pytest.approx(expected.square_sum)
    other = Ranges.from_bounds({"z": (-1, 1), "x": (-99, 0)})
    assert merged.merge(other)["x"].low == -99 and "z" in merged.merge(other)


@given(st.integers(0, 2**32 - 1), st.integers(10, 499))
def test_blocks_give_the_bits_of_one_large_array(seed: int, block: int) -> None:
    values = np.random.default_rng(seed).standard_normal(500, dtype=np.float32)
    whole = observe(values, "x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibrate_module, "BLOCK_VALUES", block)
        assert observe(values, "x") == whole


@given(hnp.arrays(np.float32, (40,), elements=FLOATS))
def test_octaves_hold_the_moments(values: np.ndarray) -> None:
    entry = observe(values, "x")
    for octave in entry.octaves:
        magnitudes = np.abs(values).astype(np.float64)
        low, high = 2.0**octave.exponent, 2.0 ** (octave.exponent + 1)
        inside = magnitudes[(magnitudes >= low) & (magnitudes < high)]
        assert octave.count == inside.size
        assert octave.magnitude_sum == pytest.approx(inside.sum())
        assert octave.square_sum == pytest.approx(np.square(inside).sum())
    assert sum(octave.count for octave in entry.octaves) == np.count_nonzero(
        np.abs(values) >= np.finfo(np.float32).tiny
    )


@given(hnp.arrays(np.float32, (30,), elements=FLOATS), st.booleans())
def test_json_round_trip(values: np.ndarray, with_octaves: bool) -> None:
    entry = observe(values, "x")
    ranges = (
        Ranges({"x": entry}) if with_octaves else Ranges.from_bounds({"x": (entry.low, entry.high)})
    )
    assert Ranges.from_json(ranges.to_json()) == ranges


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 1}', '{"version": 1, "tensors": {"x": {"low": 1}}}',
     '{"version": 1, "tensors": {"x": {"low": 0, "high": 1, "octaves": [[1]]}}}'],
)  # fmt: skip
def test_foreign_json(text: str) -> None:
    with pytest.raises(QuantizationError, match="not a file of calibration ranges"):
        Ranges.from_json(text)


def test_json_of_another_version_and_with_bad_values() -> None:
    content = json.loads(Ranges.from_bounds({"x": (0, 1)}).to_json())
    with pytest.raises(QuantizationError, match="format version 2; this is version 1"):
        Ranges.from_json(json.dumps({**content, "version": 2}))
    good = json.dumps(content)
    for number in ("NaN", "Infinity"):
        with pytest.raises(QuantizationError, match=f"not JSON: {number} is no number"):
            Ranges.from_json(good.replace("1.0", number))
    with pytest.raises(QuantizationError, match=r"'x' has range \[0.0, inf\], which is not finite"):
        Ranges.from_json(good.replace("1.0", "1e999"))
    with pytest.raises(QuantizationError, match=r"'x' has range \[0.0, nan\]"):
        Ranges.from_bounds({"x": (0, float("nan"))})
    with pytest.raises(QuantizationError, match="low exceeds high"):
        Ranges.from_bounds({"x": (1, 0)})


def test_percentile_cuts_outliers_on_both_sides() -> None:
    values = np.ones(1000, np.float32)
    values[0], values[1:400] = 1000.0, -0.5
    entry = observe(values, "x", percentile=99.0)
    assert (entry.low, entry.high) == (-0.5, 1.0)
    assert observe(values, "x", percentile=100.0).high == 1000.0
    ranges = calibrate(relu(), [{"x": values[:996].reshape(-1, 2, 3)}], percentile=99.0)
    assert ranges["x"].high == 1.0


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.1, float("nan")])
def test_unusable_percentile(percentile: float) -> None:
    with pytest.raises(QuantizationError, match="outside"):
        calibrate(relu(), [sample(1)], percentile=percentile)


def test_unusable_samples() -> None:
    with pytest.raises(QuantizationError, match="'relu': calibration needs at least one sample"):
        calibrate(relu(), [])
    with pytest.raises(InputError, match="missing"):
        calibrate(relu(), [{}])
    for value in (np.nan, np.inf, -np.inf):
        bad = sample(1)
        bad["x"][1, 0, 2] = value
        with pytest.raises(QuantizationError, match=f"'x' takes the value {value}"):
            calibrate(relu(), [bad])


def test_overflow_inside_the_graph_names_the_tensor() -> None:
    weight = np.full((1, 2, 1, 1), 3e38, np.float32)
    layer = Conv2d("c", ("x",), ("y",), weight, np.zeros(1, np.float32))
    graph = Graph((layer,), {"x": (2, 1, 1), "y": (1, 1, 1)}, ("x",), ("y",))
    with pytest.raises(QuantizationError, match="'y' takes the value inf"):
        calibrate(graph, [{"x": np.full((1, 2, 1, 1), 9.0, np.float32)}])


def measured(values: np.ndarray, q_point: int) -> float:
    restored = dequantize_tensor(quantize_tensor(values, q_point, 1), q_point)
    return float(np.square(restored.astype(np.float64) - values).sum())


@pytest.mark.parametrize("q_point", range(-1, 9))
def test_expected_error_is_the_measured_one(q_point: int) -> None:
    values = np.random.default_rng(0).laplace(size=20000).astype(np.float32)
    expected = squared_error(observe(values, "x").octaves, q_point, 1)
    assert expected == pytest.approx(measured(values, q_point), rel=0.1)


def test_int8_cuts_rare_outliers_where_that_costs_less() -> None:
    generator = np.random.default_rng(0)
    values = generator.uniform(-1.9, 1.9, 20000).astype(np.float32)
    assert range_q_point(observe(values, "x"), 1, may_clip=True) == 6
    values[0] = 2.1
    entry = observe(values, "x")
    assert range_q_point(entry, 1, may_clip=True) == 6
    assert measured(values, 6) < measured(values, 5)
    assert range_q_point(entry, 1, may_clip=False) == 5
    assert range_q_point(entry, 2, may_clip=True) == 13
    values[1:2000] = 3.0
    assert range_q_point(observe(values, "x"), 1, may_clip=True) == 5


def test_weights_choose_alike() -> None:
    weight = np.random.default_rng(0).uniform(-0.4, 0.4, (8, 8, 3, 3)).astype(np.float32)
    weight.flat[0] = 0.51
    assert weight_q_point(weight, 1) == 8
    assert weight_q_point(weight, 2) == 15
    weight.flat[:100] = 0.9
    assert weight_q_point(weight, 1) == 7
    assert weight_q_point(np.zeros((2, 2), np.float32), 2) == 15


def test_synthetic_samples_are_seeded() -> None:
    first, again, other = (synthetic_samples(relu(), seed) for seed in (1, 1, 2))
    assert all(s["x"].shape == (1, 2, 3) and s["x"].dtype == np.float32 for s in first)
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])
        assert (a["x"] != c["x"]).any()
