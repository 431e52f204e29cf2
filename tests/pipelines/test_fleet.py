"""Fleets: what is known on paper comes out of the simulation."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from tvm_npu.pipelines.errors import FleetError
from tvm_npu.pipelines.fleet import even_rate, paper_rates, simulate_fleet
from tvm_npu.pipelines.simulated_stream import simulate_stream
from tvm_npu.runtime.pipeline.statistics import summarize


def test_a_pipeline_delivers_at_the_rate_of_its_slowest_stage() -> None:
    run = simulate_fleet([[1.0, 3.0, 2.0]], 200)
    assert run.throughput == pytest.approx(1 / 3) and run.frames == (200,)
    # Given when the second frame before it leaves the first stage, 8 s before its turn at the next.
    assert run.latency_s == pytest.approx(8 + 3 + 2)
    # With a single slot a stage computes only while its neighbour behind it rests.
    assert simulate_fleet([[1.0, 3.0, 2.0]], 200, slots=1).throughput == pytest.approx(1 / 5)


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


def left_of_plain_simulation(stage_s: list[float], slots: int, frames: int) -> list[float]:
    """When results come out, by the rules: event after event, what each stage and queue holds."""
    count = len(stage_s)
    ready: list[deque[int]] = [deque() for _ in stage_s]  # frames that stand before a stage
    used = [0] * (count + 1)  # slots of each queue: filled, being filled or being read
    ends: list[float | None] = [None] * count
    left, sent, now = [], 0, 0.0
    while len(left) < frames:
        moved = True
        while moved:
            moved = False
            if used[0] < slots:
                ready[0].append(sent)
                used[0] += 1
                sent, moved = sent + 1, True
            for stage in range(count):
                end = ends[stage]
                if end is None and ready[stage] and (stage == count - 1 or used[stage + 1] < slots):
                    used[stage + 1] += 1
                    ends[stage], moved = now + stage_s[stage], True
                elif end is not None and end <= now:
                    frame = ready[stage].popleft()
                    used[stage] -= 1
                    ends[stage], moved = None, True
                    if stage == count - 1:
                        left.append(now)
                    else:
                        ready[stage + 1].append(frame)
        now = min(at for at in ends if at is not None)
    return left


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_queues_hold_what_they_say(slots: int) -> None:
    random = np.random.default_rng(slots)
    stage_s = random.uniform(0.5, 2.0, 5).tolist()
    left = left_of_plain_simulation(stage_s, slots, 60)
    stream = simulate_stream(stage_s, 60, slots=slots)
    np.testing.assert_allclose(stream.stage_ns[:, -1, 3] * 1e-9, left)
    run = simulate_fleet([stage_s], 60, slots=slots)
    assert run.throughput == pytest.approx(30 / (left[59] - left[29]))


def test_a_stream_says_where_each_frame_was() -> None:
    """What must hold whatever the times; with noise, and from the seed alone."""
    stage_s = np.random.default_rng(7).uniform(0.5, 2.0, 6).tolist()
    stream = simulate_stream(stage_s, 400, noise=0.1, seed=5)
    wait, taken, begin, end = np.moveaxis(stream.stage_ns, 2, 0)
    assert (np.diff(stream.stage_ns, axis=2) >= 0).all()
    np.testing.assert_array_equal(wait[1:], end[:-1])
    np.testing.assert_array_equal(taken[:, 1:], np.maximum(wait[:, 1:], end[:, :-1]))
    np.testing.assert_array_equal(begin[2:, :-1], np.maximum(taken[2:, :-1], end[:-2, 1:]))
    np.testing.assert_array_equal(stream.put_ns[2:], end[:-2, 0])
    factors = (end - begin) / (1e9 * np.array(stage_s))
    assert np.log(factors).std() == pytest.approx(0.1, rel=0.05)
    assert abs(np.log(factors).mean()) < 0.01
    assert (simulate_stream(stage_s, 400, noise=0.1, seed=5).stage_ns == stream.stage_ns).all()
    assert not (simulate_stream(stage_s, 400, noise=0.1, seed=6).stage_ns == stream.stage_ns).all()


def test_statistics_of_a_stream_are_those_of_its_records() -> None:
    """`summarize` of what the trace gets, rounded to nanoseconds, says the same."""
    stage_s = np.random.default_rng(8).uniform(0.5, 2.0, 4).tolist()
    stream = simulate_stream(stage_s, 50, noise=0.05)
    names = ["a", "b", "c", "d"]
    ours = stream.statistics(names, names)
    records = summarize(list(stream.frame_times()), names, names)
    assert ours.throughput == pytest.approx(records.throughput)
    assert ours.latency_s == pytest.approx(records.latency_s)
    for one, other in zip(ours.stages, records.stages, strict=True):
        assert asdict(one) == pytest.approx(asdict(other), abs=1e-8)
    latency_s = (stream.stage_ns[:, -1, 3] - stream.put_ns) * 1e-9
    np.testing.assert_allclose(stream.latency_s, latency_s)
    fleet = simulate_fleet([stage_s], 50, noise=0.05)
    assert fleet.latency_s == pytest.approx(ours.latency_s[50])
    assert fleet.latency_p99_s == pytest.approx(ours.latency_s[99])


def test_the_largest_pipelines() -> None:
    """256 stages fill in their times' sum; then the slowest sets the pace."""
    stage_s = np.random.default_rng(9).uniform(0.5, 1.0, 256).tolist()
    stream = simulate_stream(stage_s, 700)
    names = [str(stage) for stage in range(256)]
    assert stream.latency_s[0] == pytest.approx(sum(stage_s))
    found = stream.statistics(names, names)
    assert found.throughput == pytest.approx(1 / max(stage_s), rel=0.01)
    with pytest.raises(FleetError, match="800 frames in 256 stages; .*: at most 781 frames"):
        simulate_stream(stage_s, 800).frame_times()


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
        (None, {}, "machines are None; a list"),
        ([1.0], {}, "machine 0 has stages 1.0; a list"),
        (["a"], {}, "machine 0 has stages 'a'; a list"),
        ([["a"]], {}, "machine 0 has stages of .'a',. s"),
        ([[1.0]], {"policy": None}, "unknown policy None"),
        ([[1.0]], {"frames": 2.5}, "frames = 2.5; from 2"),
        ([[1.0]], {"noise": "a"}, "noise = 'a'; from 0 to 1"),
        ([[1.0]], {"slots": float("nan")}, "slots = nan; at least 1"),
        ([[1.0]], {"seed": None, "noise": 0.1}, "seed = None; at least 0"),
        ([[1.0] * 100], {"frames": 1_000_000}, "at most 50,000,000: fewer frames"),
    ],
)
def test_fleets_that_cannot_be(machines: Any, options: dict, text: str) -> None:
    with pytest.raises(FleetError, match=text):
        simulate_fleet(machines, **{"frames": 10, **options})


@pytest.mark.parametrize("stages", [None, 1.0, [], [float("nan")], [-1.0, 1.0], ["a"], [1j]])
def test_streams_that_cannot_be(stages: Any) -> None:
    with pytest.raises(FleetError, match="the pipeline has stages"):
        simulate_stream(stages, 10)


def test_queues_longer_than_the_stream_take_no_memory() -> None:
    """They took the memory of all their slots, whose number had no limit."""
    machines, stage_s = [[0.1, 0.2], [0.3]], [0.1, 0.2]
    assert simulate_fleet(machines, 20, slots=10**18) == simulate_fleet(machines, 20, slots=20)
    longer = simulate_stream(stage_s, 20, slots=10**18).stage_ns
    assert (longer == simulate_stream(stage_s, 20, slots=20).stage_ns).all()
