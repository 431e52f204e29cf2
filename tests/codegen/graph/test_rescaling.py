"""What accumulators become at another scale, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.graph import Halves, Rescaling
from tvm_npu.codegen.graph.rescaling import ACCUMULATOR_BITS, MOST_SHIFT


@given(
    st.integers(0, MOST_SHIFT), st.booleans(), st.integers(-128, 127),
    st.sampled_from(("up", "even")), st.integers(0, 1 << 30),
)  # fmt: skip
def test_every_element_rounds_once(
    shift: int, is_power: bool, zero_point: int, halves: Halves, seed: int
) -> None:
    """One multiplier a channel; powers of two give halves."""
    random = np.random.default_rng(seed)
    multipliers = 1 << random.integers(0, 24, 2) if is_power else random.integers(0, 1 << 24, 2)
    shifts = random.integers(max(shift - 3, 0), shift + 1, 2)
    most = min(1 << ACCUMULATOR_BITS - 1, max(1 << shift >> 16, 9))
    acc = random.integers(-most, most, (1, 2, 12))
    rescaling = Rescaling(multipliers, shifts, zero_point, halves)
    found = rescaling.apply(acc, -100, 127, 1)
    for channel, value in np.ndindex(2, 12):
        exact = Fraction(int(acc[0, channel, value]) * int(multipliers[channel]))
        exact /= 1 << int(shifts[channel])
        whole = round(exact) if halves == "even" else math.floor(exact + Fraction(1, 2))
        assert found[0, channel, value] == min(max(whole + zero_point, -100), 127)


def test_multipliers_are_as_near_as_their_bits_allow() -> None:
    factors = np.random.default_rng(3).uniform(0.5, 1, 80) * 2.0 ** np.arange(-40, 40).clip(-37, 24)
    made = Rescaling.from_real(factors, 0)
    off = made.multipliers / 2.0**made.shifts / factors - 1
    assert np.abs(off).max() <= 2.0**-24 and made.shifts.min() == 0
    tiny = Rescaling.from_real(np.array([2.0**-50]), 0)
    assert tiny.shifts[0] == MOST_SHIFT and tiny.multipliers[0] == 1 << MOST_SHIFT - 50
    almost = Rescaling.from_real(np.array([1 - 2.0**-30]), 0)
    assert (almost.multipliers[0], almost.shifts[0]) == (1 << 23, 23)
    with pytest.raises(QuantizationError, match="3.35544e\\+07 times .* at most 2\\*\\*24"):
        Rescaling.from_real(np.array([2.0**25]), 0)
