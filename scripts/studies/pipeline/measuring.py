"""Throughput of configurations on a running pipeline, measured so that noise hits all alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from studies.pipeline.network import Frame, Network
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.runtime.pipeline import Pipeline, Result
from tvm_npu.runtime.pipeline.times import FrameTimes

WARM_UP = 3
"""Frames until the pipeline is full and memory is touched."""


class References:
    """The serial run's results by frame, to compare with bit by bit."""

    def __init__(self, network: Network, pipeline: Pipeline) -> None:
        """Runs every frame through the pipeline's stages as they are."""
        self._count = len(network.frames)
        results = pipeline.run(network.frames)
        self._outputs = [dict(result.outputs) for result in results]

    def equal(self, number: int, outputs: Mapping[str, NDArray[np.generic]]) -> bool:
        """``number`` of the frame in its stream."""
        expected = self._outputs[number % self._count]
        return expected.keys() == outputs.keys() and all(
            np.array_equal(expected[name], outputs[name]) for name in expected
        )


def stream_of(network: Network, count: int) -> Iterator[Frame]:
    return (network.frame(number) for number in range(count))


def run_some(
    network: Network, pipeline: Pipeline, configuration: Configuration, frames: int
) -> list[Result]:
    """Exchanges the stages and runs ``frames`` after the warm-up, which is left out."""
    pipeline.redeploy(network.deployment(configuration))
    return list(pipeline.run(stream_of(network, frames + WARM_UP)))[WARM_UP:]


def throughput(times: Sequence[FrameTimes]) -> float:
    """Frames a second from the first result to the last; at least two."""
    return (len(times) - 1) / ((times[-1].out_ns - times[0].out_ns) * 1e-9)


def slowest_stage_s(times: Sequence[FrameTimes]) -> float:
    stages = range(len(times[0].stages))
    return max(median(one.stages[stage].busy_s for one in times) for stage in stages)


def interleaved(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Medians of ``rounds`` in each of which every contender is measured once, in an order that
    changes from round to round (fixed seed)."""
    generator = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for _ in range(rounds):
        generator.shuffle(names)
        for name in names:
            found[name].append(contenders[name]())
    return {name: median(values) for name, values in found.items()}
