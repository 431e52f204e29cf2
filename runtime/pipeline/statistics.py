"""What a run cost: throughput, latency, and where the time of each stage went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    marks = [
        [(at.wait_ns, at.input_ns, at.begin_ns, at.end_ns, at.cpu_ns) for at in one.stages]
        for one in times
    ]
    stage_ns = np.array(marks, np.int64)
    return summarize_arrays(
        np.array([one.put_ns for one in times]), np.array([one.out_ns for one in times]),
        stage_ns[..., :4], stage_ns[..., 4], stages, places,
    )  # fmt: skip


def summarize_arrays(
    put_ns: NDArray[Any],
    out_ns: NDArray[Any],
    stage_ns: NDArray[Any],
    cpu_ns: NDArray[Any],
    stages: Sequence[str],
    places: Sequence[str],
) -> PipelineStatistics:
    """The same of columns: ``put_ns`` and ``out_ns`` [frames], ``stage_ns`` [frames, stages, 4] and
    ``cpu_ns`` [frames, stages] in the order of StageTime's fields."""
    span_ns = max(1, out_ns[-1] - put_ns[0])
    rows = []
    for index, (stage, place) in enumerate(zip(stages, places, strict=True)):
        wait_ns, input_ns, begin_ns, end_ns = stage_ns[:, index].T
        ready_ns = stage_ns[:, index - 1, 3] if index else put_ns
        busy_ns = end_ns - begin_ns
        rows.append(
            StageStatistics(
                stage,
                place,
                busy_s=float(busy_ns.mean()) * 1e-9,
                median_busy_s=float(np.median(busy_ns)) * 1e-9,
                cpu_s=float(cpu_ns[:, index].mean()) * 1e-9,
                input_wait_s=float((input_ns - wait_ns).mean()) * 1e-9,
                output_wait_s=float((begin_ns - input_ns).mean()) * 1e-9,
                utilization=float(busy_ns.sum() / span_ns),
                fill=float(np.maximum(0, input_ns - ready_ns).sum() / span_ns),
            )
        )
    between_s = float(out_ns[-1] - out_ns[0]) * 1e-9
    return PipelineStatistics(
        len(put_ns),
        (len(put_ns) - 1) / between_s if between_s > 0 else 0.0,
        latency_percentiles((out_ns - put_ns) * 1e-9),
        tuple(rows),
    )


def latency_percentiles(latency_s: NDArray[Any] | Sequence[float]) -> dict[int, float]:
    """Seconds by percentile, of at least one frame. ``latency_s`` [frames]."""
    values = np.percentile(np.asarray(latency_s), PERCENTILES)
    return dict(zip(PERCENTILES, map(float, values), strict=True))
