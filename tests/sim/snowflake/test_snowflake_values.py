"""What instructions compute, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.snowflake.programs import (
    ACTIVATIONS,
    END,
    SYNC,
    load,
    machine,
    results,
    sets,
    simulator,
    store,
)

ALL = np.arange(1, 33, dtype=np.int16)


def computed(
    text: str, constants: np.ndarray, count: int, name: str = "snowflake-1cu"
) -> list[int]:
    """Runs ``text`` between a load of ``constants`` to MBuf and all WBufs at word 0 and a store of
    ``count`` words from word 1000 of CU 0."""
    on = machine(name)
    every = (1 << on.clusters.cus) - 1
    size = len(constants)
    before = load("mbuf", 0, 0, size, every) + load("wbuf", 0, 0, size, every) + SYNC
    found = simulator(
        before + sets(out=1000) + text + SYNC + store(ACTIVATIONS, 1000, count) + END, on, constants
    )
    statistics = found.run()
    assert statistics.cycles > 0 and not found.hazards
    again = found.run(timing=False)
    assert again.cycles == 0 and again.macs == statistics.macs
    return results(found, count).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 1*1 + ... + 5*5 = 55 in every vMAC.
        ("movi outputs, 4\nmac coop, result, r0, r0, 5\n", [55] * 4),
        # Lane l: 1 * (l + 1) + 2 * (l + 17) = 35, 38, 41; halves, rounded up.
        ("movi outputs, 3\nmovi shift, 1\nmac indp, result, r0, r0, 2\n", [18, 19, 21]),
        # Beyond OUTPUTS a MAC keeps what it has: 1 * 1 twice, 1 * 2 once.
        ("movi outputs, 1\nmac indp, keep, r0, r0, 1\nmovi outputs, 2\n"
         "mac indp, result, r0, r0, 1\n", [2, 2]),
        # Step t: words t * 2 + i of MBuf by words 16 t + i of WBuf.
        ("movi outputs, 2\nmovi lane_step, 2\nmac lane, result, r0, r0, 2\n", [52, 76]),
        ("movi r1, 1\nmac multiply, result, r0, r1, 3\n", [2, 6, 12]),
        ("movi r1, 3\nmovi shift_a, 1\nmac add, result, r0, r1, 3\n", [6, 9, 12]),
        ("movi shift, -2\nmac scale, result, r0, r0, 3\n", [4, 8, 12]),
        ("movi r1, 4\nmovi high, 6\nmax r0, r1, 3\n", [5, 6, 6]),
        # A bias of words 1 and 2: 0x20001, and 1 * 1.
        ("movi outputs, 1\nmovi shift, 16\nvmov bias, coop, r0\nmac coop, result, r0, r0, 1\n",
         [2]),
        # Residual 3 * 4 + sum 1 * 2.
        ("movi outputs, 1\nmovi residual_shift, 2\nmovi sum_shift, 1\nmovi r2, 2\n"
         "vmov residual, coop, r2\nmac coop, result, r0, r0, 1\n", [14]),
        # floor((2 * 55 + 7) / 14) = 8
        ("movi outputs, 1\nmovi divisor, 7\nmac coop, result, r0, r0, 5\n", [8]),
        # Stored sums come back and are added to: 55, then 55 + 1.
        ("movi outputs, 1\nmovi out_step, 8\nmac coop, sums, r0, r0, 5\nsync vector, 0\n"
         "movi r3, 1000\nvmov sums, coop, r3\nmac coop, result, r0, r0, 1\n",
         [55, 0, 0, 23130, 23130, 23130, 23130, 23130, 56]),
    ],
)  # fmt: skip
def test_by_hand(text: str, expected: list[int]) -> None:
    assert computed(text, ALL, len(expected)) == expected


def test_table_with_interpolation() -> None:
    """Segments of 2**12: from x = -32768 on 17 points; arguments are shifted left by 3 first."""
    points = np.round(1000 * np.sin(np.arange(17))).astype(np.int16)
    arguments = np.array([-4096, -4095, 0, 1, 255, 4095, 30000], np.int16)
    data = np.concatenate([points, arguments])
    text = sets(table_bits=12, table_shift=-3, r1=17) + "mac table, result, r1, r0, 7\n"
    x = np.clip(arguments.astype(int) * 8, -32768, 32767)
    expected = np.floor(np.interp(x, np.arange(17) * 4096 - 32768, points) + 0.5)
    assert computed(text, data, 7) == expected.astype(int).tolist()


def test_a_sum_of_48_bits() -> None:
    """4096 products of 2**30 seven times: exact, and the low word first."""
    text = sets(outputs=1) + "mac coop, keep, r0, r0, 4096\n" * 6
    text += "mac coop, sums, r0, r0, 4096\n"
    found = computed(text, np.full(4096, -(1 << 15), np.int16), 3)
    assert sum((word & 0xFFFF) << 16 * k for k, word in enumerate(found)) == 7 << 42


def test_masked_cus_do_nothing() -> None:
    text = sets(outputs=4, cus=5) + "mac indp, result, r0, r0, 1\n" + SYNC
    stores = "".join(store(ACTIVATIONS + 8 * cu, 1000, 4, cu) for cu in range(4))
    on = machine()
    every = load("mbuf", 0, 0, 32) + load("wbuf", 0, 0, 32) + SYNC + sets(out=1000)
    found = simulator(every + text + stores + END, on, ALL)
    found.run()
    nothing = [0x5A5A] * 4
    assert results(found, 16).tolist() == [*([1, 2, 3, 4] + nothing) * 2]
