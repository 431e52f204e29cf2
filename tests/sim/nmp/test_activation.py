"""nmp_activationx, nmp_activationxf and nmp_veopc, element by element in Python integers; what
they trap at, and how long they take."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nmp.programs import BASE, EXIT, mac, simulator, small_machine, wait
from tests.sim.nmp.test_mac import TYPES, extremes
from tvm_npu.sim.traps import Trap

MACHINE = small_machine(mac={"accumulator_bits": 48})
seeds = st.integers(0, 1 << 16)
small = st.integers(1, 4)


def run(
    operation: str, registers: dict[str, int], mb2: np.ndarray, bias: np.ndarray,
    mb0: np.ndarray | None = None, mb1: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """MB2, and the MAC unit's cycles."""
    found = simulator(mac(**registers) + operation + "\n" + wait(1) + EXIT, MACHINE)
    state = found._state
    for memory, values in ((state.mb0, mb0), (state.mb1, mb1), (state.bias, bias)):
        if values is not None:
            memory[0, : values.nbytes] = values.view(np.int8)
    state.mb2[0, : len(mb2)] = mb2
    found.run(BASE)
    return state.mb2[0].copy(), float(state.layer_mac_cycles.sum())


def step(value: int, shift: int, r: dict[str, int]) -> int:
    """The requantize step."""
    top = 2 ** (8 * r["ELEMENT_BYTES"] - 1)
    if shift > 0:
        value = (value + 2 ** (shift - 1)) // 2**shift
    else:
        value *= 2**-shift
    return min(max(value, -top, r["LOW"]), top - 1, r["HIGH"])


@st.composite
def tiles(draw: st.DrawFn) -> dict[str, int]:
    size = draw(st.sampled_from((1, 2)))
    top = 2 ** (8 * size - 1)
    low = draw(st.sampled_from((-top, -top, 0, -top // 3)))
    return {
        "OUT_ADDRESS": draw(st.integers(0, 5)), "OUT_CHANNELS": draw(small),
        "OUT_ROWS": draw(small), "OUT_COLUMNS": draw(small), "ELEMENT_BYTES": size,
        "SHIFT": draw(st.integers(-3, 40)), "LOW": low,
        "HIGH": draw(st.sampled_from((top - 1, top // 2))),
    }  # fmt: skip


@given(tiles(), st.integers(0, 15), st.integers(0, 3), st.booleans(), seeds)
@settings(max_examples=examples(80), deadline=None)
def test_tables(r: dict[str, int], zoom: int, place: int, by_filter: bool, seed: int) -> None:
    size = r["ELEMENT_BYTES"]
    rng = np.random.default_rng(seed)
    words = rng.integers(-(1 << 31), 1 << 31, 4).astype(np.int32)
    entries = 257 if size == 1 else 1025
    table = extremes(seed, entries, size)
    address = 16 + place * size
    bias = np.zeros(4096, np.int8)
    bias[:16] = words.view(np.int8)
    bias[address : address + table.nbytes] = table.view(np.int8)
    r |= {"TABLE_ADDRESS": address, "FACTOR": zoom, "BIAS_ADDRESS": 0}
    count = r["OUT_CHANNELS"] * r["OUT_ROWS"] * r["OUT_COLUMNS"]
    mb2 = rng.integers(-(1 << 47), 1 << 47, 128) >> rng.integers(0, 47, 128)
    name = "nmp_activationxf" if by_filter else "nmp_activationx"
    found, cycles = run(f"{name} 1, table", r, mb2, bias)
    top = 2 ** (8 * size - 1)
    expected = mb2.copy()
    for k in range(count):
        channel = k // (r["OUT_ROWS"] * r["OUT_COLUMNS"])
        more = int(words[channel]) >> 26 & 63 if by_filter else 0
        acc = int(mb2[r["OUT_ADDRESS"] + k])
        x = min(max(step(acc, min(r["SHIFT"] + more, 62), r) << zoom, -top), top - 1) + top
        if size == 1:
            value = int(table[x])
        else:
            j, f = divmod(x, 64)
            value = int(table[j]) + ((int(table[j + 1]) - int(table[j])) * f + 32) // 64
        expected[r["OUT_ADDRESS"] + k] = value
    assert found[: len(expected)].tolist() == expected.tolist()
    beats = -(-count // (16 // size)) * (2 if size == 1 else 3)
    assert cycles == pytest.approx(beats / MACHINE.mac.efficiency + MACHINE.mac.setup_cycles)


@given(tiles(), st.booleans(), st.booleans(), seeds)
@settings(max_examples=examples(60), deadline=None)
def test_slopes(r: dict[str, int], by_channel: bool, by_filter: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = rng.integers(-(1 << 31), 1 << 31, 4).astype(np.int32)
    slopes = rng.integers(-32767, 32768, 4).astype(np.int32)
    r |= {"TABLE_ADDRESS": 16, "FACTOR": int(slopes[0]), "BIAS_ADDRESS": 0}
    count = r["OUT_CHANNELS"] * r["OUT_ROWS"] * r["OUT_COLUMNS"]
    mb2 = rng.integers(-(1 << 47), 1 << 47, 128) >> rng.integers(0, 47, 128)
    name = "nmp_activationxf" if by_filter else "nmp_activationx"
    form = "prelu" if by_channel else "leaky"
    found, cycles = run(f"{name} 1, {form}", r, mb2, np.concatenate([words, slopes]))
    expected = mb2.copy()
    for k in range(count):
        channel = k // (r["OUT_ROWS"] * r["OUT_COLUMNS"])
        more = int(words[channel]) >> 26 & 63 if by_filter else 0
        shift = min(r["SHIFT"] + more, 48)
        acc = int(mb2[r["OUT_ADDRESS"] + k])
        if acc < 0:
            acc, shift = acc * int(slopes[channel if by_channel else 0]), shift + 14
        expected[r["OUT_ADDRESS"] + k] = step(acc, shift, r)
    assert found[: len(expected)].tolist() == expected.tolist()
    beats = -(-count // (16 // r["ELEMENT_BYTES"])) * 2
    assert cycles == pytest.approx(beats / MACHINE.mac.efficiency + MACHINE.mac.setup_cycles)


@given(tiles(), st.sampled_from(("add", "multiply", "subtract", "maximum")), seeds)
@settings(max_examples=examples(40), deadline=None)
def test_one_number_a_channel(r: dict[str, int], op: str, seed: int) -> None:
    size = r["ELEMENT_BYTES"]
    a, b = extremes(seed, 64, size), extremes(seed + 1, 4, size)
    rng = np.random.default_rng(seed)
    r |= {"SHIFT_A": int(rng.integers(0, 5)), "SHIFT_B": int(rng.integers(0, 5))}
    area = r["OUT_ROWS"] * r["OUT_COLUMNS"]
    found, _ = run(f"nmp_veopc 1, {op}", r, np.zeros(128, np.int64), np.zeros(1), a, b)
    for k in range(r["OUT_CHANNELS"] * area):
        x, y = int(a[k]), int(b[k // area])
        left, right = x << r["SHIFT_A"], y << r["SHIFT_B"]
        wanted = {
            "add": left + right, "multiply": x * y, "subtract": left - right,
            "maximum": max(left, right),
        }  # fmt: skip
        assert found[r["OUT_ADDRESS"] + k] == wanted[op]
    assert TYPES[size] == a.dtype.type


GOOD = {
    "OUT_CHANNELS": 2, "OUT_ROWS": 2, "OUT_COLUMNS": 2, "ELEMENT_BYTES": 2, "LOW": -9, "HIGH": 9,
    "SHIFT_A": 0, "SHIFT_B": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "registers", "message"),
    [
        ("nmp_activationx 1, table", {"TABLE_ADDRESS": 1}, "TABLE_ADDRESS has the unusable"),
        ("nmp_activationx 1, table", {"TABLE_ADDRESS": 2048},
         "tile at bytes 2048..4098 of the bias buffer, which has 4096"),
        ("nmp_activationx 1, table", {"TABLE_ADDRESS": -2}, "tile at bytes -2..2048 of the bias"),
        ("nmp_activationx 1, table", {"FACTOR": 16}, "FACTOR has the unusable value 16"),
        ("nmp_activationx 1, table", {"FACTOR": -1}, "FACTOR has the unusable value -1"),
        ("nmp_activationx 1, leaky", {"FACTOR": 1 << 15}, "FACTOR has the unusable value 32768"),
        ("nmp_activationx 1, prelu", {"TABLE_ADDRESS": 2}, "TABLE_ADDRESS has the unusable"),
        ("nmp_activationx 1, prelu", {"TABLE_ADDRESS": 4092}, "bytes 4092..4100 of the bias"),
        ("nmp_activationx 1, table", {"SHIFT": 63}, "SHIFT has the unusable value 63"),
        ("nmp_activationx 1, 3", {}, "illegal instruction"),
        ("nmp_veopc 1, copy", {}, "illegal instruction"),
        ("nmp_veop 1, 6", {}, "illegal instruction"),
    ],
)  # fmt: skip
def test_traps(operation: str, registers: dict[str, int], message: str) -> None:
    zeros = np.zeros(1)
    with pytest.raises(Trap, match=re.escape(message)):
        run(operation, {**GOOD, **registers}, zeros, zeros)


def test_a_table_that_is_still_on_its_way_traps() -> None:
    """The load is not waited for."""
    load = (
        "nmp_dcfgi ELEMENT_BYTES, 2\nnmp_dcfgi SEGMENTS, 1\nnmp_dcfgi SEGMENT_BYTES, 2047\n"
        "nmp_dcfgi SEGMENT_BYTES, 2046\nlui t0, 0x80001\nnmp_load 2, bias, t0, zero\n"
    )
    program = mac(**GOOD) + load + "nmp_activationx 1, table\n" + wait(1) + wait(2) + EXIT
    with pytest.raises(Trap, match="bias buffer of core 0 while its MAC unit does"):
        simulator(program, MACHINE).run(BASE)
