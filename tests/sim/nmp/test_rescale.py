"""Instructions for quantized models, element by element in Python numbers: nmp_rescale, sums with
factors, filters with a zero point, averages with halves away from zero; what they trap at."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import BASE, EXIT, mac, simulator, small_machine, wait
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.traps import Trap

MACHINE = small_machine(mac={"accumulator_bits": 48, "requantization": "scale"})
seeds = st.integers(0, 1 << 16)
TILE = {"OUT_ADDRESS": 3, "OUT_CHANNELS": 3, "OUT_ROWS": 2, "OUT_COLUMNS": 5, "ELEMENT_BYTES": 1,
        "IN_ADDRESS": 0, "W_ADDRESS": 0}  # fmt: skip
COUNT = 30


def run(
    operation: str,
    registers: dict[str, int],
    mb2: np.ndarray,
    machine: NmpMachine = MACHINE,
    **memories: np.ndarray,
) -> np.ndarray:
    """MB2 afterwards; ``memories`` are mb0, mb1 and bias."""
    found = simulator(mac(**registers) + operation + "\n" + wait(1) + EXIT, machine)
    for name, values in memories.items():
        getattr(found._state, name)[0, : values.nbytes] = values.reshape(-1).view(np.int8)
    found._state.mb2[0, : len(mb2)] = mb2
    found.run(BASE)
    return np.array(found._state.mb2[0][: len(mb2)])


def rescaled(acc: int, word: int, to_even: bool, zero_point: int, low: int, high: int) -> int:
    shift, multiplier = word & 0xFF, word >> 8 & 0xFFFFFF
    exact = Fraction(acc * multiplier, 2**shift)
    value = round(exact) if to_even else math.floor(exact + Fraction(1, 2))
    return min(max(value + zero_point, low), high)


@given(st.integers(0, 3), st.integers(-128, 127), st.integers(0, 61), st.booleans(), seeds)
@settings(max_examples=examples(40), deadline=None)
def test_rescale(sub: int, zero_point: int, shift: int, is_power: bool, seed: int) -> None:
    by_channel, to_even = sub in (1, 3), sub > 1
    rng = np.random.default_rng(seed)
    multipliers = 1 << rng.integers(0, 24, 3) if is_power else rng.integers(0, 1 << 24, 3)
    words = (multipliers << 8) | rng.integers(max(shift - 3, 0), shift + 1, 3)
    low, high = -int(rng.integers(1, 129)), int(rng.integers(0, 128))
    values = {**TILE, "SHIFT": zero_point, "LOW": low, "HIGH": high, "TABLE_ADDRESS": 8}
    values["FACTOR"] = int(np.uint32(words[0]).astype(np.int32))
    bias = np.zeros(5, np.uint32)
    bias[2:] = words
    mb2 = rng.integers(-(1 << 37), 1 << 37, 64) >> rng.integers(0, 37, 64)
    found = run(f"nmp_rescale 1, {sub}", values, mb2, bias=bias)
    expected = mb2.copy()
    for k in range(COUNT):
        word = int(words[k // 10 if by_channel else 0])
        expected[3 + k] = rescaled(int(mb2[3 + k]), word, to_even, zero_point, low, high)
    assert found.tolist() == expected.tolist()


def test_where_halves_go() -> None:
    """Three halves and their neighbours, on both sides of zero; parity before the zero point."""
    mb2 = np.array([0, 0, 0, *range(-6, 7), *[0] * 17])
    values = {**TILE, "SHIFT": 1, "FACTOR": 1 << 8 | 2, "LOW": -128, "HIGH": 127}
    up, even = (run(f"nmp_rescale 1, {form}", values, mb2)[3:16] for form in ("one", "one_even"))
    assert up.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert even.tolist() == [-1, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3]


@given(st.booleans(), st.integers(-(1 << 31), (1 << 31) - 1), seeds)
@settings(max_examples=examples(20), deadline=None)
def test_sums_with_factors(two: bool, constant: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (2, COUNT)).astype(np.int8)
    factors = [int(one) for one in rng.integers(-(1 << 24) + 1, 1 << 24, 2)]
    values = {**TILE, "SHIFT_A": factors[0], "SHIFT_B": factors[1], "FACTOR": constant}
    found = run(f"nmp_veop 1, {6 if two else 7}", values, np.zeros(64, np.int64), mb0=a, mb1=b)
    wide = a.astype(np.int64) * factors[0] + constant
    expected = wide + b.astype(np.int64) * factors[1] if two else wide
    assert found[3:33].tolist() == expected.tolist()
    assert not found[33:].any() and not found[:3].any()


@given(st.integers(-128, 127), st.booleans(), seeds)
@settings(max_examples=examples(20), deadline=None)
def test_filters_with_a_zero_point(zero_point: int, is_dense: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (2, 3, 6)).astype(np.int8)
    w = rng.integers(-128, 128, (3, 2, 2, 2)).astype(np.int8)
    wide = w.astype(np.int64) - zero_point
    values = {**TILE, "IN_CHANNELS": 2, "IN_ROWS": 3, "IN_COLUMNS": 6, "W_PITCH": 8, "GROUPS": 1,
              "KERNEL_ROWS": 2, "KERNEL_COLUMNS": 2, "STRIDE_ROWS": 1, "STRIDE_COLUMNS": 1,
              "DILATION_ROWS": 1, "DILATION_COLUMNS": 1, "SHIFT_B": zero_point}  # fmt: skip
    if is_dense:
        values["IN_CHANNELS"] = 8
        expected = wide.reshape(3, 8) @ x.reshape(-1)[:8].astype(np.int64)
        operation = "nmp_perceptz 1, zero"
    else:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (2, 2), (1, 2))
        expected = np.einsum("crqij,mcij->mrq", windows, wide).reshape(-1)
        operation = "nmp_conv2dz 1, zero"
    found = run(operation, values, np.zeros(64, np.int64), mb0=x, mb1=w)
    assert found[3 : 3 + expected.size].tolist() == expected.tolist()


def test_averages_with_halves_away_from_zero() -> None:
    x = np.array([[-3, -2], [3, 2], [-1, 1]], np.int8)
    values = {**TILE, "IN_CHANNELS": 3, "IN_ROWS": 1, "IN_COLUMNS": 2, "OUT_ROWS": 1,
              "OUT_COLUMNS": 1, "KERNEL_ROWS": 1, "KERNEL_COLUMNS": 2, "STRIDE_ROWS": 1,
              "STRIDE_COLUMNS": 1, "DILATION_ROWS": 1, "DILATION_COLUMNS": 1,
              "COUNT_ROW_END": 1, "COUNT_COLUMN_END": 2}  # fmt: skip
    found = [run(f"nmp_pool 1, {kind}", values, np.zeros(9, np.int64), mb0=x) for kind in (1, 2)]
    assert found[0][3:6].tolist() == [-2, 3, 0]
    assert found[1][3:6].tolist() == [-3, 3, 0]


@pytest.mark.parametrize(
    ("operation", "registers", "said"),
    [
        ("nmp_rescale 1, 0", {"SHIFT": 128}, "SHIFT has the unusable value 128"),
        ("nmp_rescale 1, 0", {"FACTOR": 62}, "FACTOR has the unusable value 62"),
        ("nmp_rescale 1, 0", {"ELEMENT_BYTES": 2}, "ELEMENT_BYTES has the unusable value 2"),
        ("nmp_rescale 1, 1", {"TABLE_ADDRESS": 2}, "TABLE_ADDRESS has the unusable value 2"),
        ("nmp_rescale 1, 3", {"TABLE_ADDRESS": 2}, "TABLE_ADDRESS has the unusable value 2"),
        ("nmp_veop 1, 6", {"SHIFT_B": 1 << 24}, "SHIFT_B has the unusable value"),
        ("nmp_conv2dz 1, zero", {"SHIFT_B": 128}, "SHIFT_B has the unusable value 128"),
    ],
)
def test_traps(operation: str, registers: dict[str, int], said: str) -> None:
    with pytest.raises(Trap, match=said):
        run(operation, {**TILE, **registers}, np.zeros(64, np.int64))


def test_too_large_an_accumulator_traps() -> None:
    values = {**TILE, "FACTOR": 1 << 8, "LOW": -128, "HIGH": 127}
    for most in (1 << 37, -(1 << 37) - 1):
        with pytest.raises(Trap, match="38"):
            run("nmp_rescale 1, 0", values, np.full(64, most))


@pytest.mark.parametrize(
    "operation",
    ["nmp_rescale 1, 0", "nmp_veop 1, 6", "nmp_veop 1, 7", "nmp_conv2dz 1, zero",
     "nmp_perceptz 1, zero", "nmp_pool 1, 2"],
)  # fmt: skip
def test_machines_without_multipliers_have_none_of_them(operation: str) -> None:
    machine = small_machine(mac={"accumulator_bits": 48, "requantization": "filter"})
    values = {**TILE, "IN_CHANNELS": 3, "IN_ROWS": 2, "IN_COLUMNS": 5, "KERNEL_ROWS": 1,
              "KERNEL_COLUMNS": 1, "STRIDE_ROWS": 1, "STRIDE_COLUMNS": 1, "DILATION_ROWS": 1,
              "DILATION_COLUMNS": 1}  # fmt: skip
    with pytest.raises(Trap, match="illegal instruction"):
        run(operation, values, np.zeros(64, np.int64), machine)
