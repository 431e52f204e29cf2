"""Streams through sleeping stages, whose places can be slowed down, for tests of tuning."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from tests.runtime.pipeline.stages import CORES, frame, make
from tvm_npu.pipelines.chain import ChainLayer, LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.pipelines.tuner import OnlineTuner
from tvm_npu.runtime.pipeline import Deployment, Pipeline, Result
from tvm_npu.runtime.pipeline.times import FrameTimes

LAYERS_MS = (9.0, 3.0, 6.0, 4.0, 2.0, 12.0)
CHAIN = LayerChain(
    "sleepers",
    tuple(
        ChainLayer(f"l{n}", weight=ms, macs=int(ms * 1000), parameter_bytes=0, activation_bytes=8)
        for n, ms in enumerate(LAYERS_MS)
    ),
)
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core is one place")


def two_places() -> Platform:
    described = [
        {"name": f"p{n}", "kind": "real", "core_ids": [core]}
        for n, core in enumerate((CORES[0], CORES[-1]))
    ]
    return platform_from_dict({"name": "two", "places": described})


class Speeds:
    """How many times slower each place is, in files that its stages read."""

    def __init__(self, folder: Path, *values: float) -> None:
        self.files = [folder / f"place{n}" for n in range(len(values))]
        self.since: list[tuple[int, tuple[float, ...]]] = []
        """(moment on the clock of `StageTime`, speeds from then on)."""
        self.set(*values)

    def set(self, *values: float) -> None:
        self.since.append((time.monotonic_ns(), values))
        for file, value in zip(self.files, values, strict=True):
            temporary = file.with_suffix(".new")
            temporary.write_text(str(value))
            temporary.rename(file)

    def deploy(self, configuration: Configuration) -> Deployment:
        last = len(configuration) - 1
        stages = [
            make(
                "sleeper", n, last=n == last, layers=end - first, speed=self.files[place],
                seconds=sum(LAYERS_MS[first:end]) * 1e-3,
            )
            for n, ((first, end), place) in enumerate(
                zip(configuration.ranges(), configuration.places, strict=True)
            )
        ]  # fmt: skip
        return Deployment(tuple(stages), configuration.places)

    def bottleneck_ms(self, configuration: Configuration) -> float:
        values = [float(file.read_text()) for file in self.files]
        return max(
            sum(LAYERS_MS[first:end]) * values[place]
            for (first, end), place in zip(
                configuration.ranges(), configuration.places, strict=True
            )
        )

    def least_ms(self) -> float:
        total = len(LAYERS_MS)
        return min(
            self.bottleneck_ms(Configuration((cut, total - cut), order))
            for cut in range(1, total)
            for order in permutations((0, 1))
        )


class NominalTuner(OnlineTuner):
    """Sees the times that stages should take, whatever else this machine does: frames, queues and
    processes are real, only busy times are by the book, times a random factor where ``noise`` is
    not 0."""

    speeds: Speeds
    noise = 0.0
    random = np.random.default_rng(0)

    def _observe(self, times: FrameTimes) -> None:
        places = self._pipeline.deployments[times.epoch].places
        stages = self._pipeline.deployments[times.epoch].stages
        nominal = []
        for stage, place, at in zip(stages, places, times.stages, strict=True):
            values = [one for since, one in self.speeds.since if since <= at.begin_ns][-1]
            busy_ns = float(stage.options["seconds"]) * values[place] * 1e9
            busy_ns *= np.exp(self.noise * self.random.standard_normal())
            nominal.append(replace(at, end_ns=at.begin_ns + round(busy_ns)))
        super()._observe(replace(times, stages=tuple(nominal)))


def stream(pipeline: Pipeline, tuner: OnlineTuner, at: Callable[[int], bool]) -> list[Result]:
    """Frames until ``at`` says that it was enough, then what is on its way."""

    def source():
        limit = time.monotonic() + PATIENCE_S
        number = 0
        while not at(number):
            assert time.monotonic() < limit, f"{number} frames were not enough"
            yield frame(number)
            number += 1

    with tuner:
        return list(pipeline.run(source()))
