"""Fronts, ranks and sensitivities beside their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.sweep.front import geometric_mean, ranks, sensitivities


def dominates(one: list[float], other: list[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 4).map(float), min_size=width, max_size=width),
            min_size=1, max_size=24,
        )
    )
)  # fmt: skip
def test_ranks_are_fronts_taken_off_one_by_one(rows: list[list[float]]) -> None:
    found = ranks(np.array(rows))
    left, rank = set(range(len(rows))), 0
    while left:
        front = {a for a in left if not any(dominates(rows[b], rows[a]) for b in left)}
        assert {a for a in left if found[a] == rank} == front
        left, rank = left - front, rank + 1


def test_designs_without_outcomes_have_no_rank() -> None:
    assert ranks(np.array([[1.0, 2.0], [np.nan, 0.0], [2.0, 1.0]])).tolist() == [0, -1, 0]


def test_sensitivity_is_the_span_of_means() -> None:
    changes = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)]
    scores = np.array([[a * 10.0, b + 1.0] for a in (1, 2) for b in (1, 2)])
    found = sensitivities(changes, scores)
    assert found["a"] == pytest.approx((2.0, 1.0)) and found["b"] == pytest.approx((1.0, 1.5))


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([0.0, 4.0]) == 0.0
