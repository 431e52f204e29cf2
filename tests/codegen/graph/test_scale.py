"""Scales: what integers stand for, beyond Q-points too, and what machines can do with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor
from tvm_npu.codegen.graph import Scale
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization

STEPS = st.floats(2.0**-60, 2.0**60, width=32)


@given(st.integers(-24, 30), st.sampled_from((1, 2)), st.integers(0, 1 << 30))
def test_a_q_point_means_what_it_always_meant(q_point: int, element_bytes: int, seed: int) -> None:
    scale = Scale.from_q_point(q_point)
    x = np.random.default_rng(seed).normal(0, 2.0 ** (6 - q_point), (2, 3, 4)).astype(np.float32)
    integers = scale.quantize(x, element_bytes)
    np.testing.assert_array_equal(integers, quantize_tensor(x, q_point, element_bytes))
    np.testing.assert_array_equal(scale.dequantize(integers), dequantize_tensor(integers, q_point))
    assert scale.q_point == q_point and scale.lacks(Q_POINTS_ONLY) is None
    assert Scale.from_real([2.0**-q_point]) == scale


@given(st.lists(STEPS, min_size=1, max_size=5))
def test_steps_of_float32_are_exact(steps: list[float]) -> None:
    scale = Scale.from_real(steps)
    np.testing.assert_array_equal(scale.steps, np.array(steps, np.float64))
    assert all(multiplier % 2 == 1 for multiplier in scale.multipliers)
    assert scale.channels == (len(steps) if len(steps) > 1 else None)


@given(
    st.lists(st.floats(2.0**-9, 2.0**9, width=32), min_size=2, max_size=4),
    st.data(),
    st.sampled_from((1, 2)),
)
def test_integers_survive_real_numbers(steps: list[float], data: st.DataObject, size: int) -> None:
    half = 1 << (8 * size - 1)
    zeros = data.draw(st.lists(st.integers(-half, half - 1), min_size=1, max_size=1))
    scale = Scale.from_real(steps, zeros)
    q = np.random.default_rng(len(steps)).integers(-half, half, (3, len(steps), 5))
    again = scale.quantize((q - zeros[0]) * scale.steps[:, None], size)
    np.testing.assert_array_equal(again, q)
    assert again.dtype == (np.int8 if size == 1 else np.int16)


def test_zero_points_and_channels_by_hand() -> None:
    scale = Scale.from_real([0.5, 3.0], [10, -4])
    q = np.array([[[12, 8], [-3, -6]]], np.int8)
    np.testing.assert_array_equal(scale.dequantize(q), [[[1.0, -1.0], [3.0, -6.0]]])
    x = np.array([[[1.2, 1e9], [-4.4, 4.6]]])
    np.testing.assert_array_equal(scale.quantize(x, 1), [[[12, 127], [-5, -2]]])


def test_halves_to_even_by_hand() -> None:
    """Parity is that before the zero point; a power of two for a step makes no Q-point of it."""
    scale = Scale.from_real([0.5], [3], "even")
    x = np.array([[-0.75, -0.25, 0.25, 0.26, 0.75, 1.25]])
    np.testing.assert_array_equal(scale.quantize(x, 1), [[1, 3, 3, 4, 5, 5]])
    assert not Scale((1,), halves="even").is_q_point and scale != Scale.from_real([0.5], [3])
    assert str(scale) == "scale with multiplier 1, shift 1, zero point 3, halves to even"


@pytest.mark.parametrize(
    ("scale", "machine", "lack"),
    [
        (Scale.from_real([0.3]), Q_POINTS_ONLY, "multiplier"),
        (Scale.from_real([0.3]), Requantization(16), None),
        (Scale.from_real([0.5, 0.25]), Requantization(31), "scale for each channel"),
        (Scale.from_real([0.5, 0.25]), Requantization(is_per_channel=True), None),
        (Scale((3,), (1,), (5,)), Requantization(31, True), "zero point"),
        (Scale((3,), (1,), (5,)), Requantization(has_zero_point=True), None),
        (Scale((3,), halves="even"), Q_POINTS_ONLY, "rounding to even"),
        (Scale((3,), halves="even"), Requantization(16), None),
    ],
)
def test_what_a_machine_lacks(scale: Scale, machine: Requantization, lack: str | None) -> None:
    assert scale.lacks(machine) == lack


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scale((1, 2), (1, 3, 5)), "2 shifts, 3 multipliers and 1 zero points"),
        (lambda: Scale(()), "0 shifts"),
        (lambda: Scale((1,), (6,)), "multiplier 6 of a scale is not odd"),
        (lambda: Scale((1,), (1,), (10**400,)), "zero point a number of 1329 bits of a scale"),
        (lambda: Scale((2000,)), "shift 2000 of a scale is outside"),
        (lambda: Scale.from_real([0.0]), "step 0.0 of a scale is not positive"),
        (lambda: Scale.from_real([float("inf")]), "step inf"),
        (lambda: Scale((3,), (5,)).q_point, "multiplier 5, shift 3 is no Q-point"),
        (lambda: Scale((3, 4)).quantize(np.zeros((1, 3)), 1), "no 2 channels"),
        (lambda: Scale((3,), (5,)).quantize(np.array([np.nan]), 1), "1 NaN"),
    ],
)
def test_unusable_scales(make: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("multiplier", [1, (1 << 31) - 1])
@pytest.mark.parametrize("shift", [1024, 993, -993, -1023, -1024])
def test_the_longest_shifts(shift: int, multiplier: int) -> None:
    """0 was NaN where a step is beyond float64, as was infinity divided by it; NumPy warned."""
    scale = Scale((shift,), (multiplier,))
    zero, one, least = scale.dequantize(np.array([[0, 1, -(1 << 15)]], np.int16))[0].tolist()
    assert zero == 0.0 and (least, one) == ((-np.inf, np.inf) if shift < 0 else (-0.0, 0.0))
    values = np.array([[0.0, -np.inf, np.inf, 1e30]])
    large = 0 if shift < 0 else 32767
    assert scale.quantize(values, 2).tolist() == [[0, -32768, 32767, large]]
    assert scale.held(np.array([0.0], np.float32), 2).tolist() == [0.0]
