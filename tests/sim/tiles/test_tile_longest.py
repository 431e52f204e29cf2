"""The longest instruction of a program, told before it runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.tiles.programs import ON_CHIP, WINDOW, sets
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.tiles.isa import TILE_ISA
from tvm_npu.sim.tiles.longest import longest_work

USED = (
    "OUT_CHANNELS", "OUT_ROWS", "OUT_COLUMNS", "KERNEL_ROWS", "KERNEL_COLUMNS", "IN_CHANNELS",
    "IN_ROWS", "IN_COLUMNS", "GROUPS", "FILL",
)  # fmt: skip
NAMES = [name.lower() for name in USED]
OPERATIONS = {
    "tconv zero": (USED[:6], USED[5:9]), "tpool max": (USED[:5], USED[5:8]),
    "tvec copy": (USED[:3],), "tfinish plain": (USED[:3],), "tfill": (USED[:3],),
}  # fmt: skip


def step_by_step(text: list[str]) -> float:
    """As the simulator does it: one word after the other."""
    registers = dict.fromkeys(NAMES, 0)
    longest = 0.0
    for line in text:
        words = line.replace(",", "").split()
        if words[0] == "tset":
            registers[words[1]] = int(words[2])
        elif words[0] == "tsetu":
            both = registers[words[1]] & 0x7FFFF | int(words[2]) << 19
            registers[words[1]] = int(np.int64(both).astype(np.int32))
        else:
            for names in OPERATIONS[line]:
                work = 1.0
                for name in names:
                    work *= max(registers[name.lower()], 0)
                longest = max(longest, work)
    return longest


LINES = st.one_of(
    st.builds("tset {}, {}".format, st.sampled_from(NAMES), st.integers(-(1 << 18), 300)),
    st.builds("tsetu {}, {}".format, st.sampled_from(NAMES), st.integers(0, 3)),
    st.sampled_from(sorted(OPERATIONS)),
)


@given(st.lists(LINES, min_size=1, max_size=40))
def test_it_is_that_of_a_walk_over_the_words(text: list[str]) -> None:
    words = assemble("\n".join(text), isa=TILE_ISA)
    assert longest_work(TILE_ISA.decode_array(words)) == pytest.approx(step_by_step(text))


def test_what_is_filled_and_what_is_read() -> None:
    small = sets(**WINDOW, OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=2, IN_CHANNELS=3, IN_ROWS=50,
                 IN_COLUMNS=70)  # fmt: skip
    for line, work in (("tfill", 2), ("tpool max", 3 * 50 * 70), ("tconv zero", 3 * 50 * 70)):
        words = assemble(small + f"{line}\ntend\n", isa=TILE_ISA)
        assert longest_work(TILE_ISA.decode_array(words)) == work


def test_products_of_a_convolution() -> None:
    text = sets(
        OPERANDS=ON_CHIP, **(WINDOW | {"KERNEL_ROWS": 3, "KERNEL_COLUMNS": 5}), IN_CHANNELS=7,
        OUT_CHANNELS=1 << 20, OUT_ROWS=2, OUT_COLUMNS=11,
    ) + "tconv zero\ntend\n"  # fmt: skip
    words = assemble(text, isa=TILE_ISA)
    assert longest_work(TILE_ISA.decode_array(words)) == (7 * 3 * 5) * (1 << 20) * 2 * 11
