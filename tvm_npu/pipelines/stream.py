"""A stream of frames through a pipeline: tuned while frames flow, then measured, every result
compared with the serial model's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from numpy.typing import NDArray

from tvm_npu.pipelines.tuner import Deploy, OnlineTuner, Tuning
from tvm_npu.runtime.pipeline import Pipeline, Result
from tvm_npu.runtime.pipeline.statistics import PipelineStatistics, summarize

Frame = Mapping[str, NDArray[Any]]
Progress = Callable[[str, int], None]
"""Called with ``"tuning"`` or ``"measuring"`` and the results of that part so far."""
CALM_S = 0.02


class ResultDiffers(Exception):
    """A pipeline's result is not the serial model's, to the bit."""


@dataclass(frozen=True)
class StreamReport:
    """``tuning_frames`` flowed while the search ran, ``statistics`` are of those after it, all
    through the configuration that was found. Every result was compared with its reference."""

    tuning: Tuning
    tuning_frames: int
    statistics: PipelineStatistics


def tune_and_measure(
    pipeline: Pipeline,
    tuner: OnlineTuner,
    deploy: Deploy,
    samples: Sequence[Frame],
    references: Sequence[Frame],
    frames: int,
    progress: Progress = lambda part, done: None,
    compiling: Callable[[], bool] = lambda: False,
) -> StreamReport:
    """Lets ``samples`` flow, again and again, until the tuner has found a configuration, then
    ``frames`` more through that one. While ``compiling()``, which needs the cores, too, frames
    come `CALM_S` apart instead of as fast as the pipeline takes them.

    Raises ResultDiffers (frame, output, elements) for a result that is not to the bit its sample's
    entry of ``references``, and what the pipeline and the search raise.
    """

    def stream(more: Callable[[int], bool], part: str) -> int:
        """Feeds while ``more(frames so far)``, takes all results."""
        first = pipeline.put_count

        def source() -> Iterator[Frame]:
            for number in count():
                if not more(number):
                    return
                if compiling():
                    time.sleep(CALM_S)
                yield samples[(first + number) % len(samples)]

        done = 0
        for result in pipeline.run(source()):
            compare(result, references[result.frame % len(references)])
            done += 1
            progress(part, done)
        return done

    with tuner:
        tuning_frames = stream(lambda _: tuner.alive and not tuner.history, "tuning")
    tuning = all_of(tuner.history)
    if tuner.configuration != tuning.best:
        pipeline.redeploy(deploy(tuning.best))
    begin = pipeline.out_count
    stream(lambda number: number < frames, "measuring")
    measured = [one for one in pipeline.times() if one.frame >= begin]
    deployment = pipeline.deployment
    statistics = summarize(
        measured,
        [stage.name for stage in deployment.stages],
        [pipeline.places[index].name for index in deployment.places],
    )
    return StreamReport(tuning, tuning_frames, statistics)


def all_of(tunings: Sequence[Tuning]) -> Tuning:
    """With its last look at the frames a tuner may have tuned again, by trials that it knew: what
    it chose last, and what all of it took."""
    trials = tuple(trial for one in tunings for trial in one.trials)
    return replace(tunings[-1], trials=trials, search_s=sum(one.search_s for one in tunings))


def compare(result: Result, reference: Frame) -> None:
    """Raises ResultDiffers unless every output is to the bit that of ``reference``."""
    for number, (name, expected) in enumerate(reference.items()):
        found = result.outputs[name]
        if found.tobytes() != expected.tobytes():
            bits = f"u{expected.itemsize}"  # values would call -0.0 and 0.0 the same
            differing = int((found.view(bits) != expected.view(bits)).sum())
            raise ResultDiffers(
                f"frame {result.frame}: {differing} of {expected.size} elements of output "
                f"{number} differ from the serial model's"
            )
