"""The trap of all kinds: its text, and that it passes from process to process."""

from __future__ import annotations

import pickle

import pytest

from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.traps import Place, Trap, Waiter

PLACE = Place(
    unit="core 3", position="at 0x10", index=4, address=16, instruction="nop", layer="c1",
    tile={"m": 2, "row": -1}, registers={"A": 5, "B": 6},
)  # fmt: skip
WAITERS = (Waiter(Place("core 0", "at 0x8", layer="c1"), "rain"), Waiter(Place("a"), "b"))


@pytest.mark.parametrize(
    ("trap", "text"),
    [
        (Trap(TrapCode.HAZARD, PLACE, "hot"),
         "core 3 at 0x10 (nop) in layer 'c1' tile m=2, row=-1: hot [A 5, B 6]"),
        (Trap(TrapCode.RACE, Place(position="instruction 7"), "late"), "instruction 7: late"),
        (Trap(TrapCode.DEADLOCK, PLACE, "deadlock", WAITERS),
         "deadlock: core 0 at 0x8 in layer 'c1' waits for rain; a waits for b"),
    ],
)  # fmt: skip
def test_text_and_copy(trap: Trap, text: str) -> None:
    assert str(trap) == text
    copy = pickle.loads(pickle.dumps(trap))
    assert str(copy) == text and copy.code == trap.code and copy.place == trap.place
    assert copy != trap and len({copy, trap}) == 2
