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


def test_names_add_no_lines_and_are_cut() -> None:
    """They come from a program's file; so a deadlock of hundreds of cores stays readable."""
    place = Place(unit="core 1", layer="a\nb" + "x" * 9999, tile={"m\n\x1b[31m": 2})
    text = str(Trap(TrapCode.HAZARD, place, "hot"))
    assert text.isprintable() and len(text) < 300
    assert "in layer 'a\\nbxxx" in text and text.endswith("tile m\\n\\x1b[31m=2: hot")


def test_a_deadlock_of_many_names_the_first() -> None:
    """Each of 512 cores had a line of its own, with a layer's name."""
    waiters = tuple(Waiter(Place(f"core {k}", layer="x" * 1000), "rain") for k in range(512))
    trap = Trap(TrapCode.DEADLOCK, waiters[0].place, "deadlock", waiters)
    assert "core 31 " in str(trap) and "core 32 " not in str(trap)
    assert str(trap).endswith("; and 480 more wait") and len(str(trap)) < 10_000
    assert len(trap.waiters) == 512
