"""Tuning a pipeline while frames flow: any search, on measured stage times, again after a change.

A configuration that the search wants to know is loaded beside the running one, takes over between
two frames, and is measured on the frames of the stream itself; none is lost or repeated for it.
Afterwards the tuner watches the stages. When one becomes slower or faster for good, its cluster's
speed has changed: what was measured there before is scaled by as much, and the search runs again
with that knowledge, so that it asks for little that is new.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search import Trial, run_search
from tvm_npu.pipelines.times import StageTimes
from tvm_npu.runtime.pipeline.epoch import Deployment
from tvm_npu.runtime.pipeline.errors import PipelineError, StageNotLoaded
from tvm_npu.runtime.pipeline.pipeline import Pipeline
from tvm_npu.runtime.pipeline.times import FrameTimes

Deploy = Callable[[Configuration], Deployment]
"""The stages of a configuration, compiled; called in the tuner's thread."""


@dataclass(frozen=True)
class TunerOptions:
    """``frames`` are measured in each trial, after ``warm_up`` ones that are not. A stage has
    changed when ``patience`` frames in a row take more than 1 + ``change`` times as long as usual,
    or less than one (1 + ``change``)-th."""

    search: str = "guided"
    frames: int = 3
    warm_up: int = 1
    change: float = 0.25
    patience: int = 2
    seed: int = 0
    budget: int | None = None


@dataclass(frozen=True)
class Tuning:
    """One run of the search. Frame numbers: ``noticed``, the last result when it began; ``tuned``,
    the first frame of what was chosen; ``finished``, the last result when it ended. ``trials`` were
    really run for it, in this order; a search may run a configuration again. ``search_s`` is how
    long it took, waiting for frames included."""

    reason: str
    noticed: int
    tuned: int
    finished: int
    best: Configuration
    times: StageTimes
    trials: tuple[Trial, ...]
    search_s: float


class _Stopped(Exception):
    """The tuner is to end, or the pipeline failed."""


class OnlineTuner:
    """Tunes ``pipeline`` in a thread of its own, from `start` to `stop`; a context manager.

    ``deploy`` makes a configuration's stages for the places of ``platform``, which are the
    pipeline's places in the same order. Somebody else puts frames in and takes results out.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        chain: LayerChain,
        platform: Platform,
        deploy: Deploy,
        options: TunerOptions | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._chain = chain
        self._platform = platform
        self._deploy = deploy
        self._options = options or TunerOptions()
        self._trials: list[Trial] = []
        self._running: Configuration | None = None
        self._epoch = -1
        self._first_frame = 0
        self._seen: deque[FrameTimes] = deque(maxlen=10_000)
        self._arrived = threading.Condition()
        self._stopping = False
        self._history: list[Tuning] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="pipeline-tuner", daemon=True)

    @property
    def history(self) -> tuple[Tuning, ...]:
        """Finished tunings, the oldest first."""
        return tuple(self._history)

    @property
    def alive(self) -> bool:
        """False once the tuner has ended, of its own (`stop` says why) or because it was told."""
        return self._thread.is_alive()

    @property
    def configuration(self) -> Configuration | None:
        """What new frames go through; None before the first trial."""
        return self._running

    def start(self) -> None:
        self._pipeline.observers.append(self._observe)
        self._thread.start()

    def stop(self) -> None:
        """Waits for the thread. Raises what ended it early, except a failure of the pipeline,
        which whoever takes results is told."""
        with self._arrived:
            self._stopping = True
            self._arrived.notify_all()
        self._thread.join()
        if self._observe in self._pipeline.observers:
            self._pipeline.observers.remove(self._observe)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> OnlineTuner:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.stop()
        except Exception:
            if kind is None:
                raise

    def wait_tuned(self, count: int = 1, timeout_s: float | None = None) -> bool:
        """Whether so many tunings are finished, waiting for them. Not for the thread that takes
        results: without it no frame arrives."""
        with self._arrived:
            self._arrived.wait_for(
                lambda: len(self._history) >= count or not self._thread.is_alive(), timeout_s
            )
            return len(self._history) >= count

    def _observe(self, times: FrameTimes) -> None:
        with self._arrived:
            self._seen.append(times)
            self._arrived.notify_all()

    def _work(self) -> None:
        reason = "start"
        try:
            while True:
                self._tune(reason)
                reason = self._watch()
        except StageNotLoaded as error:  # of a configuration to try: the running one goes on
            self._error = error
        except (_Stopped, PipelineError):
            pass
        except Exception as error:
            self._error = error
        finally:
            with self._arrived:
                self._stopping = True
                self._arrived.notify_all()

    def _tune(self, reason: str) -> None:
        begin, noticed = time.monotonic(), self._pipeline.out_count - 1
        run: list[Trial] = []

        def measure(configuration: Configuration) -> StageTimes:
            run.append(Trial(configuration, self._measured(configuration)))
            return run[-1].times

        options = self._options
        result = run_search(
            options.search,
            self._chain,
            self._platform,
            measure,
            seed=options.seed,
            budget=options.budget,
            known=self._trials,
        )
        self._trials += run
        best = result.best.configuration
        self._run(best)
        tuning = Tuning(
            reason,
            noticed,
            self._first_frame,
            self._pipeline.out_count - 1,
            best,
            result.best.times,
            tuple(run),
            time.monotonic() - begin,
        )
        with self._arrived:
            self._history.append(tuning)
            self._arrived.notify_all()

    def _run(self, configuration: Configuration) -> None:
        """From the next frame on."""
        if configuration == self._running:
            return
        prepared = self._pipeline.prepare(self._deploy(configuration))
        self._running, self._epoch = configuration, prepared.number
        self._first_frame = self._pipeline.switch(prepared)

    def _measured(self, configuration: Configuration) -> StageTimes:
        self._run(configuration)
        return self._settled()

    def _settled(self) -> StageTimes:
        """From the next frames of the running deployment."""
        for _ in range(self._options.warm_up):
            self._next_frame()
        return _typical([self._next_frame() for _ in range(self._options.frames)])

    def _watch(self) -> str:
        """Returns when a stage's speed has changed: what happened, for people. All trials' times
        on its place are scaled; those of what runs now give way to the times it has now."""
        running = self._running
        assert running is not None
        usual = self._settled()
        now = self._changed_times(usual)
        factors = {
            place: is_s / was_s
            for place, was_s, is_s in zip(running.places, usual.seconds, now.seconds, strict=True)
        }
        self._trials = [
            Trial(trial.configuration, _scaled(trial, factors))
            for trial in self._trials
            if trial.configuration != running
        ]
        self._trials.append(Trial(running, now))
        return ", ".join(
            f"{self._platform.places[place].name} takes {factor:.2f} times as long"
            for place, factor in factors.items()
        )

    def _changed_times(self, usual: StageTimes) -> StageTimes:
        """Waits for a change; times of frames of which every stage began after it was seen."""
        options = self._options
        streaks = [0] * len(usual.seconds)
        seen_ns: int | None = None
        after: list[FrameTimes] = []
        while len(after) < options.frames:
            frame = self._next_frame()
            for stage, (at, was_s) in enumerate(zip(frame.stages, usual.seconds, strict=True)):
                ratio = at.busy_s / was_s
                outside = not 1 / (1 + options.change) <= ratio <= 1 + options.change
                streaks[stage] = streaks[stage] + 1 if outside else 0
                if seen_ns is None and streaks[stage] == options.patience:
                    seen_ns = at.begin_ns
            if seen_ns is not None and all(at.begin_ns >= seen_ns for at in frame.stages):
                after.append(frame)
        return _typical(after)

    def _next_frame(self) -> FrameTimes:
        """Of the running deployment. Raises _Stopped."""
        with self._arrived:
            while True:
                while self._seen:
                    frame = self._seen.popleft()
                    if frame.epoch == self._epoch:
                        return frame
                if self._stopping:
                    raise _Stopped
                self._arrived.wait()


def _typical(frames: Sequence[FrameTimes]) -> StageTimes:
    """Medians of the stages' busy times."""
    stages = range(len(frames[0].stages))
    return StageTimes(tuple(median(one.stages[n].busy_s for one in frames) for n in stages))


def _scaled(trial: Trial, factors: Mapping[int, float]) -> StageTimes:
    """Times of ``trial`` when stages on each place take that many times as long."""
    stages = zip(trial.times.seconds, trial.configuration.places, strict=True)
    return StageTimes(tuple(seconds * factors.get(place, 1.0) for seconds, place in stages))
