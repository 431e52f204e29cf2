"""Frames that flow through a pipeline of simulated places: when each was where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.pipelines.errors import FleetError
from tvm_npu.pipelines.fleet import SLOTS, check_slots, check_stages, check_work, stage_factors
from tvm_npu.pipelines.fleet_kernel import END, run_line
from tvm_npu.runtime.pipeline.statistics import PipelineStatistics, summarize_arrays
from tvm_npu.runtime.pipeline.times import FrameTimes, StageTime

NS = 1e9
MOST_TRACED = 200_000
"""Times of a frame in a stage that a trace holds: about 100 MB."""


@dataclass(frozen=True)
class SimulatedStream:
    """``put_ns`` [frames]: when a frame was given to the first stage, as soon as there was room;
    ``stage_ns`` [frames, stages, 4]: the first four times of `StageTime`."""

    put_ns: np.ndarray
    stage_ns: np.ndarray

    @property
    def latency_s(self) -> np.ndarray:
        """[frames]: from when a frame was given to the first stage until its result came out."""
        return np.asarray((self.stage_ns[:, -1, END] - self.put_ns) / NS)

    def statistics(self, stages: Sequence[str], places: Sequence[str]) -> PipelineStatistics:
        """As of a pipeline that runs; ``cpu_s`` is ``busy_s``."""
        return summarize_arrays(
            self.put_ns, self.stage_ns[:, -1, END], self.stage_ns,
            self.stage_ns[..., 3] - self.stage_ns[..., 2], stages, places,
        )  # fmt: skip

    def frame_times(self) -> Iterator[FrameTimes]:
        """For a trace. Raises FleetError for more than it should hold."""
        frames, stages, _ = self.stage_ns.shape
        if frames * stages > MOST_TRACED:
            raise FleetError(
                f"a trace of {frames:,} frames in {stages:,} stages; at most {MOST_TRACED:,} "
                f"frames times stages: at most {MOST_TRACED // stages:,} frames"
            )
        return self._frame_times()

    def _frame_times(self) -> Iterator[FrameTimes]:
        puts = np.rint(self.put_ns).astype(np.int64).tolist()
        marks = np.rint(self.stage_ns).astype(np.int64).tolist()
        for frame, (put_ns, rows) in enumerate(zip(puts, marks, strict=True)):
            stages = tuple(
                StageTime(waits, has, begins, ends, ends - begins)
                for waits, has, begins, ends in rows
            )
            yield FrameTimes(frame, 0, put_ns, rows[-1][END], stages)


def simulate_stream(
    stage_s: Sequence[float],
    frames: int,
    *,
    noise: float = 0.0,
    seed: int = 0,
    slots: int = SLOTS,
) -> SimulatedStream:
    """``frames`` frames of a stream that always has one more, through stages of these times and
    queues of ``slots`` frames. ``noise``: deviation of the logarithm of each stage's time for each
    frame. Raises FleetError."""
    check_stages(stage_s, "the pipeline")
    check_slots(slots)
    check_work(len(stage_s), frames)
    factors = stage_factors(frames, len(stage_s), noise, seed)
    given, times = run_line(np.asarray(stage_s, np.float64), factors, min(slots, frames))
    return SimulatedStream(given * NS, times * NS)
