"""Random programs, a few; scripts/differential runs thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.sim.nmp.differential import CASES, compare


@pytest.mark.parametrize(("name", "count"), [("nmp", 100), ("rv32im", 60)])
def test_the_simulator_agrees_with_the_interpreter(name: str, count: int) -> None:
    run: Callable[[int], str] = CASES[name]
    found = {seed: run(seed) for seed in range(count)}
    assert not {seed: text for seed, text in found.items() if text.startswith("differs")}
    kinds = Counter(text.split()[0] for text in found.values())
    assert kinds["agrees"] > count // 3 and kinds["traps"] > count // 10


def test_races_are_named() -> None:
    """Of programs in which an instruction may meet what it must not meet most are stopped."""
    found = {seed: CASES["nmp"](seed) for seed in range(100, 500)}
    assert not {seed: text for seed, text in found.items() if text.startswith("differs")}
    kinds = Counter(text.split()[0] for text in found.values())
    assert kinds["races"] > 10 and kinds["races"] > 3 * kinds["unnamed"]


def test_elements_of_different_widths_in_mb2() -> None:
    """A store of elements of one width that an operation on the other width changes: bytes were
    compared, and the two lie at different ones."""
    assert compare(8519) == "races"
