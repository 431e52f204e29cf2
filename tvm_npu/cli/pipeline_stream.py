"""Frames of ``tvm-npu pipeline --simulate``: what they took, beside what it is on paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search import Trial
from tvm_npu.pipelines.simulated_stream import SimulatedStream, simulate_stream
from tvm_npu.pipelines.times import StageTimes
from tvm_npu.runtime.pipeline.statistics import PipelineStatistics, StageStatistics
from tvm_npu.runtime.pipeline.trace import trace_events


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass(frozen=True)
class _Stages:
    stages: tuple[_Name, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class SimulatedFrames:
    """``places``: of the stages, indices into the platform's."""

    stream: SimulatedStream
    statistics: PipelineStatistics
    places: tuple[int, ...]
    noise: float
    seed: int

    def sentences(self, paper: StageTimes) -> Iterator[str]:
        """Throughput and latency, each with its figure on ``paper``."""
        statistics = self.statistics
        throughput = "one frame has no throughput"
        if statistics.frames > 1:
            throughput = f"{statistics.throughput:.4g} a second"
        frames = "1 frame" if statistics.frames == 1 else f"{statistics.frames:,} frames"
        yield (
            f"{frames}, simulated with {self.noise:.1%} noise: {throughput} (on paper: "
            f"{paper.throughput:.4g})"
        )
        latency_s = self.stream.latency_s
        yield (
            f"latency: first frame {latency_s[0] * 1e3:.4g} ms (on paper: "
            f"{sum(paper.seconds) * 1e3:.4g}), mean {latency_s.mean() * 1e3:.4g} ms, 99 % "
            f"{statistics.latency_s[99] * 1e3:.4g} ms"
        )

    def as_json(self) -> dict[str, Any]:
        """Times in seconds, a frame's on average."""
        latency_s = self.stream.latency_s
        return {
            "frames": self.statistics.frames,
            "noise": self.noise,
            "seed": self.seed,
            "throughput": self.statistics.throughput,
            "latency_s": {
                "first": float(latency_s[0]),
                "mean": float(latency_s.mean()),
                **{str(percent): s for percent, s in self.statistics.latency_s.items()},
            },
            "stages": [stage_json(one) for one in self.statistics.stages],
        }

    def trace_events(self, platform: Platform) -> list[dict[str, Any]]:
        """Raises FleetError for more frames than a trace should hold."""
        names = tuple(_Name(one.stage) for one in self.statistics.stages)
        stages = {0: _Stages(names, self.places)}
        return trace_events(list(self.stream.frame_times()), stages, platform.places)


def simulated_frames(
    platform: Platform, best: Trial, frames: int, noise: float, seed: int
) -> SimulatedFrames:
    """``frames`` frames through the configuration of ``best``. Raises FleetError."""
    places = best.configuration.places
    stream = simulate_stream(best.times.seconds, frames, noise=noise, seed=seed)
    statistics = stream.statistics(
        [f"stage {number}" for number in range(len(places))],
        [platform.places[place].name for place in places],
    )
    return SimulatedFrames(stream, statistics, tuple(places), noise, seed)


def stage_json(stage: StageStatistics) -> dict[str, float]:
    """What frames cost a stage, in seconds a frame and shares of the run."""
    return {
        "busy_s": stage.busy_s,
        "median_busy_s": stage.median_busy_s,
        "input_wait_s": stage.input_wait_s,
        "output_wait_s": stage.output_wait_s,
        "utilization": stage.utilization,
        "queue_frames": stage.fill,
    }
