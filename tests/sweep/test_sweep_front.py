"""Fronts, ranks and sensitivities beside their definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.sweep.front import costs, ranks, sensitivities
from tvm_npu.sweep.outcome import Outcome, mean, means_said


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
    found = sensitivities(changes, scores, ["cycles", "time_us"])
    assert found["a"] == pytest.approx((2.0, 1.0)) and found["b"] == pytest.approx((1.0, 1.5))


def test_sensitivities_are_those_of_each_objective_alone() -> None:
    changes = [{"a": 1}, {"a": 2}, {"a": 4}, {"a": 4}]
    scores = np.array(
        [[40.0, 0.0, -20.0, 3.0], [20.0, 1.0, 10.0, np.nan], [10.0, 3.0, 0.0, 1.5], [np.nan] * 4]
    )
    objectives = ["cycles", "top1", "sqnr_db", "energy"]
    found = sensitivities(changes, scores, objectives)
    assert list(found) == ["a"]
    assert found["a"] == (*map(pytest.approx, (4.0,)), None, *map(pytest.approx, (1000.0, 2.0)))
    for at, name in enumerate(objectives):
        assert sensitivities(changes, scores[:, at : at + 1], [name])["a"] == (found["a"][at],)
    assert sensitivities(changes, np.full((4, 1), np.nan), ["cycles"]) == {}


def test_objectives_that_should_be_large_cost_where_they_are_small() -> None:
    scores = np.array([[1.0, 0.9], [1.0, 0.8], [2.0, 0.95], [2.0, 0.9]])
    assert ranks(costs(scores, ["cycles", "top1"])).tolist() == [0, 1, 0, 1]
    assert ranks(costs(scores, ["cycles", "energy"])).tolist() == [1, 0, 3, 2]


def test_means_over_models() -> None:
    assert mean("cycles", [1.0, 4.0]) == pytest.approx(2.0)
    assert mean("top1", [0.0, 4.0]) == 0.0
    assert mean("sqnr_db", [-10.0, 30.0]) == pytest.approx(10.0)
    assert mean("spare", [-3.0, -3.0]) == -3.0  # of the machine alone
    assert np.isnan([mean("spare", [-100.0, -50.0]), mean("spare", [0.0, -1.0])]).all()


@pytest.mark.parametrize(
    ("objectives", "said"),
    [
        (["cycles", "top1"], "Objectives are geometric means over the models."),
        (["cycles", "sqnr_db"], "Objectives are geometric means over the models, sqnr_db the arit"),
        (["sqnr_db"], "sqnr_db is the arithmetic mean over the models."),
    ],
)
def test_what_is_said_of_means(objectives: list[str], said: str) -> None:
    assert means_said(objectives).startswith(said)


def test_images_of_each_region_are_spread_over_the_devices() -> None:
    """Two images of 10 cycles, which become six rows of 3 in another region."""
    run = Outcome(38.0, 19.0, 100, 7, images=2, image_cycles=((2, 10.0), (6, 3.0)))
    assert run.of_batch(1, 1) == replace(run, frames_per_s=2e6 / 19, image_cycles=())
    found = run.of_batch(3, 4)  # 6 images and 18 rows
    assert (found.cycles, found.time_us) == (2 * 10 + 5 * 3, 17.5)
    assert (found.dram_bytes, found.macs, found.images) == (300, 21, 6)
    assert found.frames_per_s == pytest.approx(6e6 / 17.5)
    speeds = {run.of_batch(batch, 2).frames_per_s for batch in (1, 3, 7, 10)}
    assert len(speeds) == 1
