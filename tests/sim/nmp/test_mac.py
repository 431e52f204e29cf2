"""What MAC operations compute, element by element in Python integers."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import BASE, DATA, EXIT, mac, simulator, small_machine, wait

MACHINE = small_machine(mac={"accumulator_bits": 60})
TYPES = {1: np.int8, 2: np.int16}
small = st.integers(1, 4)
seeds = st.integers(0, 1 << 16)


def extremes(seed: int, count: int, element_bytes: int) -> np.ndarray:
    """Random elements, a quarter of them at the ends of the range."""
    random = np.random.default_rng(seed)
    top = 1 << (8 * element_bytes - 1)
    values = random.integers(-top, top, count)
    ends = random.choice([-top, top - 1, 0, -1], count)
    return np.where(random.random(count) < 0.25, ends, values).astype(TYPES[element_bytes])


def operate(
    operation: str,
    registers: dict[str, int],
    mb0: np.ndarray,
    mb1: np.ndarray,
    mb2: np.ndarray,
    bias: np.ndarray,
) -> np.ndarray:
    """MB2 after ``operation`` with these memories; scratchpads are set directly."""
    found = simulator(mac(**registers) + operation + "\n" + wait(1) + EXIT, MACHINE)
    state = found._state
    state.mb0[0, : mb0.nbytes] = mb0.view(np.int8)
    state.mb1[0, : mb1.nbytes] = mb1.view(np.int8)
    state.mb2[0, : len(mb2)] = mb2
    state.bias_word[0, : len(bias)] = bias
    found.run(BASE)
    assert DATA > BASE
    return state.mb2[0].copy()


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, int]:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel = draw(st.tuples(small, small))
    stride = draw(st.tuples(small, small))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    out = draw(st.tuples(small, small))
    slack = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    rows, columns = (
        (out[k] - 1) * stride[k] + (kernel[k] - 1) * dilation[k] + 1 + slack[k] for k in (0, 1)
    )
    channels = draw(small)
    depth = channels * kernel[0] * kernel[1]
    element_bytes = draw(st.sampled_from([1, 2]))
    return {
        "IN_ADDRESS": element_bytes * draw(st.integers(0, 5)), "IN_CHANNELS": channels,
        "IN_ROWS": rows, "IN_COLUMNS": columns, "W_ADDRESS": element_bytes * draw(small),
        "W_PITCH": depth + draw(st.integers(0, 3)), "OUT_ADDRESS": draw(st.integers(0, 9)),
        "OUT_CHANNELS": groups * draw(small), "OUT_ROWS": out[0], "OUT_COLUMNS": out[1],
        "KERNEL_ROWS": kernel[0], "KERNEL_COLUMNS": kernel[1], "STRIDE_ROWS": stride[0],
        "STRIDE_COLUMNS": stride[1], "DILATION_ROWS": dilation[0],
        "DILATION_COLUMNS": dilation[1], "GROUPS": groups, "BIAS_ADDRESS": draw(small),
        "ELEMENT_BYTES": element_bytes,
    }  # fmt: skip


ONE_COLUMN = {
    "IN_ADDRESS": 2, "IN_CHANNELS": 2, "IN_ROWS": 4, "IN_COLUMNS": 1, "W_ADDRESS": 2,
    "W_PITCH": 4, "OUT_ADDRESS": 0, "OUT_CHANNELS": 3, "OUT_ROWS": 3, "OUT_COLUMNS": 1,
    "KERNEL_ROWS": 2, "KERNEL_COLUMNS": 1, "STRIDE_ROWS": 1, "STRIDE_COLUMNS": 3,
    "DILATION_ROWS": 1, "DILATION_COLUMNS": 1, "GROUPS": 1, "BIAS_ADDRESS": 1,
    "ELEMENT_BYTES": 2,
}  # fmt: skip
"""A column that windows take as a whole, with a stride between columns that nothing uses."""


@given(convolutions(), st.sampled_from(["keep", "zero", "bias"]), seeds)
@example(ONE_COLUMN, "zero", 1)
@settings(max_examples=examples(120), deadline=None)
def test_convolution(r: dict[str, int], start: str, seed: int) -> None:
    size = r["ELEMENT_BYTES"]
    channels, rows, columns = r["IN_CHANNELS"], r["IN_ROWS"], r["IN_COLUMNS"]
    mb0 = extremes(seed, 4096 // size * 2, size)
    mb1 = extremes(seed + 1, 4096 // size * 2, size)
    random = np.random.default_rng(seed + 2)
    mb2 = random.integers(-(1 << 40), 1 << 40, 512)
    bias = random.integers(-(1 << 31), 1 << 31, 64)
    result = operate(f"nmp_conv2d 1, {start}", r, mb0, mb1, mb2, bias)
    expected = np.zeros_like(result)
    expected[:512] = mb2
    x = mb0[r["IN_ADDRESS"] // size :]
    w = mb1[r["W_ADDRESS"] // size :]
    per_group = r["OUT_CHANNELS"] // r["GROUPS"]
    at = r["OUT_ADDRESS"]
    for f in range(r["OUT_CHANNELS"]):
        for p in range(r["OUT_ROWS"]):
            for q in range(r["OUT_COLUMNS"]):
                begin = {"keep": int(mb2[at]), "zero": 0,
                         "bias": int(bias[r["BIAS_ADDRESS"] + f])}[start]  # fmt: skip
                total, k = begin, f * r["W_PITCH"]
                for c in range(channels):
                    plane = (f // per_group * channels + c) * rows * columns
                    for i in range(r["KERNEL_ROWS"]):
                        row = p * r["STRIDE_ROWS"] + i * r["DILATION_ROWS"]
                        for j in range(r["KERNEL_COLUMNS"]):
                            column = q * r["STRIDE_COLUMNS"] + j * r["DILATION_COLUMNS"]
                            total += int(x[plane + row * columns + column]) * int(w[k])
                            k += 1
                expected[at] = total
                at += 1
    assert np.array_equal(result, expected)


@given(st.sampled_from([1, 2]), st.integers(1, 40), st.integers(1, 9), st.integers(0, 3),
       st.sampled_from(["keep", "zero", "bias"]), seeds)  # fmt: skip
@settings(max_examples=examples(40), deadline=None)
def test_percept(
    size: int, depth: int, filters: int, gap: int, start: str, seed: int
) -> None:
    mb0, mb1 = extremes(seed, 4096 // size, size), extremes(seed + 1, 4096 // size, size)
    random = np.random.default_rng(seed + 2)
    mb2 = random.integers(-(1 << 40), 1 << 40, 64)
    bias = random.integers(-(1 << 31), 1 << 31, 64)
    registers = {
        "ELEMENT_BYTES": size, "IN_ADDRESS": 4, "IN_CHANNELS": depth, "W_ADDRESS": 2,
        "W_PITCH": depth + gap, "OUT_ADDRESS": 3, "OUT_CHANNELS": filters, "BIAS_ADDRESS": 2,
        "OUT_ROWS": 1, "OUT_COLUMNS": 1,
    }  # fmt: skip
    result = operate(f"nmp_percept 1, {start}", registers, mb0, mb1, mb2, bias)
    x = mb0[4 // size : 4 // size + depth].astype(object)
    for f in range(filters):
        begin = 2 // size + f * (depth + gap)
        first = {"keep": mb2[3 + f], "zero": 0, "bias": bias[2 + f]}[start]
        w = mb1[begin : begin + depth].astype(object)
        assert result[3 + f] == int(first) + int((x * w).sum())
    assert np.array_equal(result[:3], mb2[:3])
    assert np.array_equal(result[3 + filters : 64], mb2[3 + filters :])


@given(convolutions(), st.booleans(), seeds, st.tuples(*[st.integers(-3, 3)] * 2),
       st.tuples(*[st.integers(-2, 4)] * 2), st.tuples(*[st.integers(4, 20)] * 2))  # fmt: skip
@settings(max_examples=examples(80), deadline=None)
def test_pool(
    r: dict[str, int], average: bool, seed: int, origin: tuple[int, int],
    low: tuple[int, int], high: tuple[int, int],
) -> None:  # fmt: skip
    r |= {"DILATION_ROWS": 1, "DILATION_COLUMNS": 1}
    size = r["ELEMENT_BYTES"]
    elements = r["OUT_CHANNELS"] * r["IN_ROWS"] * r["IN_COLUMNS"]
    assume(r["IN_ADDRESS"] + elements * size <= MACHINE.memories.mb0_bytes)
    for k, axis in enumerate(("ROW", "COLUMN")):
        r |= {f"ORIGIN_{axis}": origin[k], f"COUNT_{axis}_BEGIN": low[k],
              f"COUNT_{axis}_END": high[k]}  # fmt: skip
    mb0 = extremes(seed, 8192 // size, size)
    counts = {}
    for p in range(r["OUT_ROWS"]):
        for q in range(r["OUT_COLUMNS"]):
            inside = [
                sum(low[k] <= origin[k] + at + i < high[k] for i in range(extent))
                for k, (at, extent) in enumerate(
                    ((p * r["STRIDE_ROWS"], r["KERNEL_ROWS"]),
                     (q * r["STRIDE_COLUMNS"], r["KERNEL_COLUMNS"])))
            ]  # fmt: skip
            counts[p, q] = inside[0] * inside[1]
    if not all(counts.values()):
        average = False
    empty = np.zeros(0, np.int64)
    result = operate(f"nmp_pool 1, {'average' if average else 'max'}", r, mb0, empty, empty, empty)
    x, at = mb0[r["IN_ADDRESS"] // size :], r["OUT_ADDRESS"]
    for c in range(r["OUT_CHANNELS"]):
        plane = x[c * r["IN_ROWS"] * r["IN_COLUMNS"] :][: r["IN_ROWS"] * r["IN_COLUMNS"]]
        plane = plane.reshape(r["IN_ROWS"], r["IN_COLUMNS"]).astype(object)
        for (p, q), count in counts.items():
            top, left = p * r["STRIDE_ROWS"], q * r["STRIDE_COLUMNS"]
            window = plane[top : top + r["KERNEL_ROWS"], left : left + r["KERNEL_COLUMNS"]]
            total = int(window.sum())
            expected = (2 * total + count) // (2 * count) if average else window.max()
            assert result[at] == expected
            at += 1


@given(st.sampled_from([1, 2]), st.integers(1, 40), st.integers(0, 30), st.integers(0, 30),
       st.sampled_from(["copy", "add", "multiply", "accumulate"]), seeds)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_veop(size: int, count: int, a: int, b: int, op: str, seed: int) -> None:
    x, y = extremes(seed, 64, size), extremes(seed + 1, 64, size)
    mb2 = np.random.default_rng(seed).integers(-(1 << 20), 1 << 20, 64)
    registers = {
        "ELEMENT_BYTES": size, "IN_ADDRESS": 0, "W_ADDRESS": 0, "OUT_ADDRESS": 2,
        "OUT_CHANNELS": 1, "OUT_ROWS": 1, "OUT_COLUMNS": count, "SHIFT_A": a, "SHIFT_B": b,
    }  # fmt: skip
    result = operate(f"nmp_veop 1, {op}", registers, x, y, mb2, mb2[:0])
    for k in range(count):
        one, two, kept = int(x[k]), int(y[k]), int(mb2[2 + k])
        expected = {
            "copy": one << a, "add": (one << a) + (two << b), "multiply": one * two,
            "accumulate": (kept << a) + (one << b),
        }[op]  # fmt: skip
        assert result[2 + k] == expected
    assert np.array_equal(result[2 + count : 64], mb2[2 + count :])


@given(st.sampled_from([1, 2]), st.integers(-47, 62), st.integers(-40000, 40000),
       st.integers(0, 40000), st.integers(0, 58), seeds)  # fmt: skip
@settings(max_examples=examples(100), deadline=None)
def test_activation(size: int, shift: int, low: int, span: int, bits: int, seed: int) -> None:
    """Round half up, saturate, clip."""
    random = np.random.default_rng(seed)
    mb2 = random.integers(-(1 << bits), (1 << bits) + 1, 32)
    half = 1 << (shift - 1) if 0 < shift < 58 else 0
    mb2[:8] = [half, half - 1, -half, -half - 1, 0, 1, -1, 3 * half]
    top = 1 << (8 * size - 1)
    high = low + span
    registers = {
        "ELEMENT_BYTES": size, "OUT_ADDRESS": 1, "OUT_CHANNELS": 31, "OUT_ROWS": 1,
        "OUT_COLUMNS": 1, "SHIFT": shift, "LOW": low, "HIGH": high,
    }  # fmt: skip
    result = operate("nmp_activation 1", registers, mb2[:0], mb2[:0], mb2, mb2[:0])
    assert result[0] == mb2[0]
    low, high = (min(max(bound, -top), top - 1) for bound in (low, high))
    for k in range(1, 32):
        value = int(mb2[k])
        rounded = (value + (1 << shift >> 1)) >> shift if shift >= 0 else value << -shift
        saturated = min(max(rounded, -top), top - 1)
        assert result[k] == min(max(saturated, low), high)
