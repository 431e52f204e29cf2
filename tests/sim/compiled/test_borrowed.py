from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from tvm_npu.sim.compiled import borrowed, device, entry
from tvm_npu.sim.compiled.sources import reach_of


class Arrays(NamedTuple):
    words: Any
    numbers: Any


@entry
def filled(arrays: Any, value: int) -> int:
    """Writes through arrays that are borrowed, rows of them included."""
    mine = Arrays(*borrowed(arrays))
    for row in range(len(mine.words)):
        words = mine.words[row]
        words[:] = value + row
        mine.numbers[row] = words.sum()
    return len(mine.numbers)


def test_the_same_arrays() -> None:
    arrays = Arrays(np.zeros((3, 4), np.int16), np.zeros(3))
    before = [sys.getrefcount(array) for array in arrays]
    for _ in range(1000):
        assert filled(arrays, 7) == 3
    assert arrays.words.tolist() == [[7 + row] * 4 for row in range(3)]
    assert arrays.numbers.tolist() == [28.0, 32.0, 36.0]
    assert [sys.getrefcount(array) for array in arrays] == before


def _made(extra: int) -> Any:
    def one(context: Any, x: Any) -> Any:
        return x(x), lambda c, b, s, a: a[0]

    def other(context: Any, x: Any) -> Any:
        return x(x), lambda c, b, s, a: b.add(a[0], a[0])

    made = intrinsic(other if extra else one)

    @device
    def function(x: int) -> int:
        return made(x)  # type: ignore[no-any-return]

    return function


def test_an_intrinsic_belongs_to_what_uses_it() -> None:
    first, again, second = (reach_of(_made(extra)).hexdigest() for extra in (0, 0, 1))
    assert first == again != second
