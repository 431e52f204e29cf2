"""A fleet: machines of unequal speed behind one stream of frames, on paper and simulated.

A machine is a pipeline of stages, or a single one. On paper it delivers a frame in the time of its
slowest stage, and a fleet delivers the sum of what its machines deliver. The simulation sends frame
after frame through bounded queues, as the runtime does (`runtime/pipeline/worker.py`): a stage
takes a frame, waits for room behind it, computes. Results leave the fleet in the order of the
frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.pipelines.errors import FleetError
from tvm_npu.pipelines.fleet_kernel import POLICIES, run_fleet
from tvm_npu.pipelines.times import MOST_NOISE
from tvm_npu.runtime.pipeline.statistics import latency_percentiles
from tvm_npu.sim.numbers import check_whole, is_finite
from tvm_npu.sim.texts import cut, shown

SLOTS = 2
"""Frames in a queue, that which is read included."""
MOST_FRAMES = 1_000_000
MOST_STAGE_RUNS = 50_000_000
_LISTS = (list, tuple, np.ndarray)


@dataclass(frozen=True)
class FleetRun:
    """What a simulated fleet did. ``throughput``: frames a second over the second half of them;
    ``latency_s``: from when a frame is given to a machine until its result leaves the fleet, the
    median and the 99th percentile; ``frames``: of each machine."""

    throughput: float
    latency_s: float
    latency_p99_s: float
    frames: tuple[int, ...]


def paper_rates(machines: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Frames a second of each machine; ``machines``: seconds of each of their stages."""
    _check_machines(machines)
    return tuple(1.0 / max(stages) for stages in machines)


def even_rate(machines: Sequence[Sequence[float]]) -> float:
    """Frames a second when every machine gets as many: the slowest decides."""
    return len(machines) * min(paper_rates(machines))


def simulate_fleet(
    machines: Sequence[Sequence[float]],
    frames: int,
    policy: str = "free",
    *,
    noise: float = 0.0,
    seed: int = 0,
    slots: int = SLOTS,
) -> FleetRun:
    """``frames`` frames of a stream that always has one more. ``policy`` says who gets a frame:
    ``turns``: the machines in turn; ``shares``: by their rates on paper; ``free``: who has room
    first, the fastest of equals. ``noise``: deviation of the logarithm of each stage's time for
    each frame. Raises FleetError."""
    rates = np.array(paper_rates(machines))
    if not isinstance(policy, str) or policy not in POLICIES:
        raise FleetError(f"unknown policy {shown(policy)}; known: {', '.join(POLICIES)}")
    check_whole(frames, "frames", FleetError, 2, MOST_FRAMES)
    check_slots(slots)
    check_work(sum(map(len, machines)), frames)
    factors = stage_factors(frames, max(map(len, machines)), noise, seed)
    firsts = np.cumsum([0, *map(len, machines)])
    given, left, served = run_fleet(
        np.concatenate([np.asarray(one, np.float64) for one in machines]), firsts, rates,
        POLICIES.index(policy), factors, min(slots, frames),
    )  # fmt: skip
    half = frames // 2
    latency_s = latency_percentiles(left - given)
    throughput = (frames - half) / (left[-1] - left[half - 1]) if left[-1] > left[half - 1] else 0.0
    return FleetRun(
        float(throughput),
        latency_s[50],
        latency_s[99],
        tuple(int(count) for count in np.bincount(served, minlength=len(machines))),
    )


def check_stages(stages: object, what: str) -> None:
    """FleetError for what are no seconds of stages."""
    if not isinstance(stages, _LISTS):
        raise FleetError(f"{what} has stages {shown(stages)}; a list of their seconds")
    if not len(stages) or not all(is_finite(taken) and taken > 0 for taken in stages):
        raise FleetError(
            f"{what} has stages of {cut(repr(tuple(stages)))} s; at least one stage, each of a "
            "finite time above 0 s"
        )


def check_slots(slots: int) -> None:
    """FleetError for a number of frames that no queue holds."""
    check_whole(slots, "slots", FleetError, 1)


def check_work(stages: int, frames: int) -> None:
    """Raises FleetError for more than can be simulated."""
    check_whole(frames, "frames", FleetError, 1, MOST_FRAMES)
    if stages * frames > MOST_STAGE_RUNS:
        raise FleetError(
            f"{frames:,} frames and {stages:,} stages are {frames * stages:,} stage times; at most "
            f"{MOST_STAGE_RUNS:,}: fewer frames"
        )


def stage_factors(frames: int, stages: int, noise: float, seed: int) -> np.ndarray:
    """[frames, stages]: how much longer than on paper each stage takes for each frame. Raises
    FleetError."""
    if not (is_finite(noise) and 0.0 <= noise <= MOST_NOISE):
        raise FleetError(f"noise = {shown(noise)}; from 0 to {MOST_NOISE:g}")
    check_whole(seed, "seed", FleetError)
    if not noise:
        return np.ones((frames, stages))
    return np.exp(noise * np.random.default_rng(seed).standard_normal((frames, stages)))


def _check_machines(machines: Sequence[Sequence[float]]) -> None:
    if not isinstance(machines, _LISTS):
        raise FleetError(f"machines are {shown(machines)}; a list of their stages' seconds")
    if not len(machines):
        raise FleetError("a fleet needs at least one machine; this one has none")
    for number, stages in enumerate(machines):
        check_stages(stages, f"machine {number}")
