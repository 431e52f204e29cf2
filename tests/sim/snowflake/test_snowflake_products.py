"""Sums of products in vectors of the host, against integers without a limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.sim.compiled import entry
from tvm_npu.sim.snowflake.products import BLOCK, dot, lanes_of_line, lanes_of_word

EXTREMES = np.array([-(1 << 15), (1 << 15) - 1, -1, 0, 255, -256, -257], np.int16)


@entry
def run_dot(maps, weights, sums, count, a, b, length):  # type: ignore[no-untyped-def]
    dot(maps, weights, sums, count, a, b, length)


@entry
def run_lanes(maps, step, weights, sums, count, a, b, length, of_word):  # type: ignore[no-untyped-def]
    for v in range(len(weights)):
        if of_word:
            lanes_of_word(maps, a, step, weights, v, b, length, sums, 16 * v, count)
        else:
            lanes_of_line(maps, a, step, weights, v, b, length, sums, 16 * v, count)


def _words(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Random words, or extreme ones alone."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        return rng.choice(EXTREMES[: 1 + seed % 7], shape)
    return rng.integers(-(1 << 15), 1 << 15, shape).astype(np.int16)


@settings(deadline=None, max_examples=examples(200))
@given(
    seed=st.integers(0, 1 << 20), length=st.integers(1, 3 * BLOCK + 40), count=st.integers(1, 4),
    a=st.integers(0, 40), b=st.integers(0, 40),
)  # fmt: skip
def test_dots(seed: int, length: int, count: int, a: int, b: int) -> None:
    maps, weights = _words(seed, (1000,)), _words(seed + 1, (4, 1000))
    sums = np.arange(4) << 40
    run_dot(maps, weights, sums, count, a, b, length)
    for v in range(4):
        exact = sum(
            int(x) * int(w)
            for x, w in zip(maps[a : a + length], weights[v, b : b + length], strict=True)
        )
        assert sums[v] == (v << 40) + (exact if v < count else 0)


@settings(deadline=None, max_examples=examples(200))
@given(
    seed=st.integers(0, 1 << 20), length=st.integers(1, 60), count=st.integers(1, 16),
    a=st.integers(0, 40), line=st.integers(0, 3), step=st.integers(0, 15), of_word=st.booleans(),
)  # fmt: skip
def test_lanes(
    seed: int, length: int, count: int, a: int, line: int, step: int, of_word: bool
) -> None:
    maps, weights = _words(seed, (1000,)), _words(seed + 1, (2, 1024))
    sums = np.arange(32) << 40
    run_lanes(maps, step, weights, sums, count, a, 16 * line, length, of_word)
    for lane in range(32):
        v, i = divmod(lane, 16)
        exact = sum(
            int(maps[a + t * step + (0 if of_word else i)]) * int(weights[v, 16 * (line + t) + i])
            for t in range(length)
        )
        assert sums[lane] == (lane << 40) + (exact if i < count else 0)


@pytest.mark.parametrize("of_word", [True, False])
def test_the_longest_trace_of_extremes(of_word: bool) -> None:
    """4096 times 2**30, in every lane, and its negative."""
    maps = np.full(4096 + 16, -(1 << 15), np.int16)
    for factor in (-(1 << 15), (1 << 15) - 1):
        weights, sums = np.full((4, 1 << 16), factor, np.int16), np.zeros(64, np.int64)
        run_lanes(maps, 1, weights, sums, 16, 0, 0, 4096, of_word)
        assert (sums == 4096 * -(1 << 15) * factor).all()
        sums[:] = 0
        run_dot(maps, weights, sums, 4, 0, 0, 4096)
        assert (sums[:4] == 4096 * -(1 << 15) * factor).all()
