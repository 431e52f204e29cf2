"""What a run cost: throughput, latency, and where the time of each stage went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.runtime.pipeline.times import FrameTimes

PERCENTILES = (50, 90, 99, 100)


@dataclass(frozen=True)
class StageStatistics:
    """Means over frames, in seconds a frame, and shares of the run. ``fill`` is the mean number
    of frames that wait in the queue in front of the stage."""

    stage: str
    place: str
    busy_s: float
    median_busy_s: float
    cpu_s: float
    input_wait_s: float
    output_wait_s: float
    utilization: float
    fill: float


@dataclass(frozen=True)
class PipelineStatistics:
    """Statistics of consecutive frames of one deployment. ``throughput`` is frames a second, from
    the first result to the last; 0 for a single frame. ``latency_s`` has, by percentile (100: the
    largest), the seconds from putting a frame in to taking its results out."""

    frames: int
    throughput: float
    latency_s: dict[int, float]
    stages: tuple[StageStatistics, ...]


def summarize(
    times: Sequence[FrameTimes], stages: Sequence[str], places: Sequence[str]
) -> PipelineStatistics:
    """``times`` in order of frames, all of one epoch; names of the stages and their places.
    Raises ValueError when there are none or they are of several epochs."""
    if not times:
        raise ValueError("no frames to summarize")
    if len({one.epoch for one in times}) > 1:
        raise ValueError("frames of several deployments; summarize each of them alone")
    span_ns = max(1, times[-1].out_ns - times[0].put_ns)
    rows = []
    for index, (stage, place) in enumerate(zip(stages, places, strict=True)):
        mine = [one.stages[index] for one in times]
        busy = np.array([one.busy_s for one in mine])
        ready_ns = [one.stages[index - 1].end_ns if index else one.put_ns for one in times]
        queued_ns = sum(
            max(0, one.input_ns - ready) for one, ready in zip(mine, ready_ns, strict=True)
        )
        rows.append(
            StageStatistics(
                stage,
                place,
                busy_s=float(busy.mean()),
                median_busy_s=float(np.median(busy)),
                cpu_s=float(np.mean([one.cpu_ns for one in mine])) * 1e-9,
                input_wait_s=float(np.mean([one.input_wait_s for one in mine])),
                output_wait_s=float(np.mean([one.output_wait_s for one in mine])),
                utilization=float(busy.sum()) / (span_ns * 1e-9),
                fill=queued_ns / span_ns,
            )
        )
    between_s = (times[-1].out_ns - times[0].out_ns) * 1e-9
    return PipelineStatistics(
        len(times),
        (len(times) - 1) / between_s if between_s > 0 else 0.0,
        latency_percentiles(times),
        tuple(rows),
    )


def latency_percentiles(times: Sequence[FrameTimes]) -> dict[int, float]:
    """Seconds by percentile, of at least one frame."""
    values = np.percentile([one.latency_s for one in times], PERCENTILES)
    return dict(zip(PERCENTILES, map(float, values), strict=True))
