"""Sizes of operands against Python's integers, which do not wrap."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_npu.sim.compiled import entry, spans

BEYOND = spans.BEYOND
NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-40, 40),
    st.builds(
        lambda power, more: min(max((1 << power) + more, -(1 << 63)), (1 << 63) - 1),
        st.integers(0, 63), st.integers(-3, 3),
    ),
)  # fmt: skip
COUNTS = NUMBERS.map(abs).map(lambda number: min(number, BEYOND))


@entry
def products(a: int, b: int, c: int) -> Any:
    return spans.product(a, b), spans.volume(a, b, c)


@entry
def reaches(size: int, count: int, step: int, begin: int) -> Any:
    return spans.reach(size, count, step), spans.extent(begin, size, count, step)


def limited(number: int) -> int:
    return max(-BEYOND, min(number, BEYOND))


@settings(deadline=None)
@given(NUMBERS, NUMBERS)
def test_products_stay_at_the_largest_number(a: int, b: int) -> None:
    assert products(a, b, 0)[0] == limited(a * b)


@settings(deadline=None)
@given(COUNTS, COUNTS, COUNTS)
def test_volumes_and_reaches_of_counts(a: int, b: int, c: int) -> None:
    assert products(a, b, c)[1] == limited(a * b * c)
    assert reaches(a, b, c, 0)[0] == (limited((b - 1) * c + a) if a and b else 0)


@settings(deadline=None)
@given(st.integers(-(1 << 60), 1 << 60), st.integers(0, 1 << 60), COUNTS, NUMBERS)
def test_extents_with_steps_of_both_signs(begin: int, size: int, runs: int, step: int) -> None:
    far = limited((max(runs, 1) - 1) * step)
    first, end = reaches(size, max(runs, 1), step, begin)[1]
    assert (first, end) == (begin + min(0, far), begin + max(0, far) + size)
