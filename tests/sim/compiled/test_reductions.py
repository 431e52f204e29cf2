"""Loops in the place of NumPy's reductions: the same results, of strided arrays, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.sim.compiled import entry
from tvm_npu.sim.compiled.reductions import (
    are_all,
    are_same,
    count_below,
    least,
    total,
    total_of_plane,
)


@entry
def reduced(values: Any, plane: Any) -> Any:
    return total(values), least(plane[1]), total_of_plane(plane)


@entry
def compared(values: Any, other: Any, wanted: int) -> Any:
    return are_same(values, other), are_all(values, wanted)


@entry
def counted(values: Any, limit: int) -> Any:
    return count_below(values, limit)


def test_reductions_are_those_of_numpy() -> None:
    generator = np.random.default_rng()
    for length in (1, 2, 7, 64):
        values = generator.integers(-99, 100, length)
        plane = generator.normal(size=(5, 2 * length))[:, ::2]
        found = reduced(values, plane)
        assert found[:2] == (values.sum(), plane[1].min())
        np.testing.assert_allclose(found[2], plane.sum(), rtol=1e-12, atol=1e-12)


def test_comparisons_are_those_of_numpy() -> None:
    generator = np.random.default_rng()
    for length in (1, 2, 7, 64):
        values = np.full(length, 5)
        assert compared(values, values.copy(), 5) == (True, True)
        other = values.copy()
        other[generator.integers(length)] = 6
        assert compared(other, values, 5) == (False, False)


def test_searches_are_those_of_numpy() -> None:
    generator = np.random.default_rng()
    for length in (0, 1, 2, 7, 64):
        values = np.sort(generator.integers(-9, 10, length))
        for limit in range(-11, 12):
            assert counted(values, limit) == np.searchsorted(values, limit)
