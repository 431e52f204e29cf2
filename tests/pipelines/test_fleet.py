"""Fleets: what is known on paper comes out of the simulation."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from tvm_npu.pipelines.errors import FleetError
from tvm_npu.pipelines.fleet import even_rate, paper_rates, simulate_fleet


def test_a_pipeline_delivers_at_the_rate_of_its_slowest_stage() -> None:
    run = simulate_fleet([[1.0, 3.0, 2.0]], 200)
    assert run.throughput == pytest.approx(1 / 3) and run.frames == (200,)
    # A frame's turn at the slowest stage comes with the fourth of its periods, then the last stage.
    assert run.latency_s == pytest.approx(4 * 3 + 2)
    assert simulate_fleet([[1.0, 3.0, 2.0]], 200, slots=1).latency_s < run.latency_s


def test_unequal_machines_deliver_the_sum_of_their_rates_unless_they_take_turns() -> None:
    random = np.random.default_rng(0)
    machines = [random.uniform(0.5, 4.0, int(random.integers(1, 5))).tolist() for _ in range(6)]
    total = sum(paper_rates(machines))
    for policy in ("free", "shares"):
        run = simulate_fleet(machines, 6000, policy)
        assert run.throughput == pytest.approx(total, rel=0.02)
        shares = np.array(run.frames) / 6000
        np.testing.assert_allclose(shares, np.array(paper_rates(machines)) / total, atol=0.01)
    turns = simulate_fleet(machines, 6000, "turns")
    assert turns.throughput == pytest.approx(even_rate(machines), rel=0.02)
    assert turns.frames == (1000,) * 6


def test_queues_hold_what_they_say() -> None:
    """Beside a plain simulation, step by step, of what each stage holds."""
    stage_s = np.random.default_rng(1).uniform(0.5, 2.0, 4)
    queues: list[deque[int]] = [deque() for _ in stage_s]
    left, sent, now = [], 0, 0.0
    free_at: list[float | None] = [None] * 4
    while len(left) < 60:
        moved = True
        while moved:
            moved = False
            if len(queues[0]) < 2:
                queues[0].append(sent)
                sent, moved = sent + 1, True
            for stage in range(4):
                if free_at[stage] is None and queues[stage]:
                    free_at[stage] = now + stage_s[stage]
                    moved = True
                done = free_at[stage] is not None and free_at[stage] <= now  # type: ignore[operator]
                if done and (stage == 3 or len(queues[stage + 1]) < 2):
                    frame = queues[stage].popleft()
                    free_at[stage], moved = None, True
                    if stage == 3:
                        left.append(now)
                    else:
                        queues[stage + 1].append(frame)
        now = min(at for at in free_at if at is not None and at > now)
    expected = 30 / (left[59] - left[29])
    assert simulate_fleet([stage_s.tolist()], 60).throughput == pytest.approx(expected)


def test_noise_costs_throughput_and_seeds_repeat() -> None:
    one = simulate_fleet([[1.0] * 20], 2000, noise=0.2, seed=3)
    assert one == simulate_fleet([[1.0] * 20], 2000, noise=0.2, seed=3)
    assert 0.7 < one.throughput < 0.95


@pytest.mark.parametrize(
    ("machines", "options", "text"),
    [
        ([], {}, "at least one machine"),
        ([[1.0], [0.0]], {}, "machine 1 has stages of .0.0,. s; .* above 0 s"),
        ([[1.0]], {"policy": "luck"}, "unknown policy 'luck'; known: turns, shares, free"),
        ([[1.0]], {"frames": 1}, "frames = 1; from 2"),
        ([[1.0]], {"noise": -0.1}, "noise = -0.1; from 0 to 1"),
        ([[1.0]], {"slots": 0}, "slots = 0; at least 1"),
        ([[1.0] * 100], {"frames": 1_000_000}, "at most 50,000,000: fewer frames"),
    ],
)
def test_fleets_that_cannot_be(machines: list[list[float]], options: dict, text: str) -> None:
    with pytest.raises(FleetError, match=text):
        simulate_fleet(machines, **{"frames": 10, **options})
