"""Tuning while frames flow: what is found and noticed, and that no frame is lost for it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.streams_made_up import (
    CHAIN,
    LAYERS_MS,
    PATIENCE_S,
    NominalTuner,
    Speeds,
    needs_two_cores,
    stream,
    two_places,
)
from tests.runtime.pipeline.stages import CORES, make, numbers
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import PlatformError, SearchError
from tvm_npu.pipelines.places import running_places
from tvm_npu.pipelines.platform import platform_from_dict
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.pipelines.search import SearchResult, Trial, run_search
from tvm_npu.pipelines.times import StageTimes
from tvm_npu.pipelines.tuner import OnlineTuner, TunerOptions
from tvm_npu.runtime.pipeline import Deployment, Pipeline
from tvm_npu.runtime.pipeline.errors import StageDied


@needs_two_cores
def test_tunes_and_tunes_again_when_a_place_changes(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path, 1, 3)
    platform = two_places()
    before_ms = []
    changed_at = []

    def enough(number: int) -> bool:
        if tuner.history and not changed_at:
            if number > tuner.history[0].tuned + 12:  # it has seen what is usual now
                before_ms.append(speeds.bottleneck_ms(tuner.history[0].best))
                assert before_ms[0] <= 1.3 * speeds.least_ms()
                speeds.set(3, 1)
                changed_at.append(number)
        return len(tuner.history) >= 2

    start = speeds.deploy(Configuration((3, 3), (0, 1)))
    with Pipeline(start, running_places(platform), timeout_s=120) as pipeline:
        tuner = NominalTuner(pipeline, CHAIN, platform, speeds.deploy, TunerOptions(change=0.5))
        tuner.speeds = speeds
        results = stream(pipeline, tuner, enough)
    first, second = tuner.history[:2]
    assert numbers(results) == [n + len(LAYERS_MS) for n in range(len(results))]
    assert first.reason == "start" and len(first.trials) <= 12
    assert "times as long" in second.reason and "p0 takes" in second.reason
    assert changed_at[0] - 8 <= second.noticed < second.tuned
    assert len(second.trials) <= 12 and first.best != second.best
    assert speeds.bottleneck_ms(second.best) <= 1.3 * speeds.least_ms()
    assert tuner.configuration == second.best
    assert second.search_s > 0


@needs_two_cores
def test_noisy_measurements_are_repeated_on_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = Speeds(tmp_path, 0.1, 0.3)
    platform = two_places()
    deployed: list[Configuration] = []
    remembered: list[Sequence[Trial]] = []

    def deploy(configuration: Configuration) -> Deployment:
        deployed.append(configuration)
        return speeds.deploy(configuration)

    def search(*args: Any, **options: Any) -> SearchResult:
        remembered.append(tuple(options["known"]))
        return run_search(*args, **options)

    def enough(number: int) -> bool:
        if tuner.history and number > tuner.history[0].tuned + 12 and len(speeds.since) == 1:
            deployments.extend(deployed)
            speeds.set(0.3, 0.1)
        return len(remembered) == 2

    monkeypatch.setattr("tvm_npu.pipelines.tuner.run_search", search)
    deployments: list[Configuration] = []
    start = speeds.deploy(Configuration((3, 3), (0, 1)))
    with Pipeline(start, running_places(platform), timeout_s=120) as pipeline:
        options = TunerOptions(frames=1, change=0.8)
        tuner = NominalTuner(pipeline, CHAIN, platform, deploy, options)
        tuner.speeds, tuner.noise = speeds, 0.05
        stream(pipeline, tuner, enough)
    first = tuner.history[0]
    tried = [trial.configuration for trial in first.trials]
    assert max(Counter(tried).values()) > 1 and len(set(first.trials)) == len(tried)
    # Whatever is measured runs then: only what runs already is not deployed for it.
    assert deployments == [one for one, _ in groupby([*tried, first.best])]
    assert remembered[0] == ()
    # All of it counts in the next search, by the speeds of then; what ran is known afresh.
    kept = [trial for trial in first.trials if trial.configuration != first.best]
    *scaled, now = remembered[1]
    assert [trial.configuration for trial in scaled] == [trial.configuration for trial in kept]
    assert now.configuration == first.best
    factors: dict[int, set[float]] = {}
    for before, after in zip(kept, scaled, strict=True):
        times = zip(before.times.seconds, after.times.seconds, strict=True)
        for place, (was_s, is_s) in zip(before.configuration.places, times, strict=True):
            factors.setdefault(place, set()).add(round(is_s / was_s, 9))
    assert all(len(found) == 1 for found in factors.values()) and factors != {0: {1.0}, 1: {1.0}}


@needs_two_cores
def test_any_search_can_tune(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path, 0.2, 0.4)
    platform = two_places()
    with Pipeline(speeds.deploy(Configuration((6,), (0,))), running_places(platform)) as pipeline:
        options = TunerOptions(search="shisha-h3", frames=2, change=1e9)
        tuner = OnlineTuner(pipeline, CHAIN, platform, speeds.deploy, options)
        results = stream(pipeline, tuner, lambda number: bool(tuner.history))
    (tuning,) = tuner.history
    assert numbers(results) == [n + 6 for n in range(len(results))]
    assert tuning.trials and tuning.best in [trial.configuration for trial in tuning.trials]


@needs_two_cores
def test_the_stream_may_end_first(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path, 0.1, 0.1)
    platform = two_places()
    with Pipeline(speeds.deploy(Configuration((6,), (0,))), running_places(platform)) as pipeline:
        tuner = OnlineTuner(pipeline, CHAIN, platform, speeds.deploy)
        assert numbers(stream(pipeline, tuner, lambda number: number == 2)) == [6, 7]
        assert tuner.history == ()
        assert pipeline.observers == []


@needs_two_cores
def test_what_goes_wrong_in_the_tuner_is_told(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path, 0.1, 0.1)
    platform = two_places()
    start = speeds.deploy(Configuration((6,), (0,)))
    done = threading.Event()

    def broken(configuration: Configuration) -> Deployment:
        done.set()
        raise ValueError("no compiler")

    with Pipeline(start, running_places(platform)) as pipeline:
        tuner = OnlineTuner(pipeline, CHAIN, platform, broken)
        with pytest.raises(ValueError, match="no compiler"):
            stream(pipeline, tuner, lambda number: done.is_set())
        tuner = OnlineTuner(pipeline, CHAIN, platform, speeds.deploy, TunerOptions(search="luck"))
        with pytest.raises(SearchError, match="unknown search 'luck'"):
            with tuner:
                assert not tuner.wait_tuned(timeout_s=PATIENCE_S)

        # A stage that dies in a trial ends the pipeline, and the stream says so.
        def deadly(configuration: Configuration) -> Deployment:
            stages = make("failing", 0, how="kill", at=0), make("affine", 1, last=True)
            return Deployment(stages, (0, 1))

        with pytest.raises(StageDied, match="was killed by SIGKILL"):
            tuner = OnlineTuner(pipeline, CHAIN, platform, deadly)
            stream(pipeline, tuner, lambda number: False)


def test_platforms_that_cannot_run() -> None:
    with pytest.raises(PlatformError, match="is simulated: no frame can run there"):
        running_places(load_platform("shisha-c1"))
    absent = {"name": "far", "kind": "real", "core_ids": [4000]}
    with pytest.raises(PlatformError, match="place far names core 4000"):
        running_places(platform_from_dict({"name": "far-away", "places": [absent]}))
    slow = {"name": "slow", "kind": "throttled", "core_ids": [CORES[0]], "duty": 0.5}
    (place,) = running_places(platform_from_dict({"name": "x", "places": [slow]}))
    assert (place.cores, place.duty) == (CORES[:1], 0.5)


def test_what_earlier_searches_measured_is_not_run_again(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path, 1, 3)
    platform = two_places()

    def measure(configuration: Configuration) -> StageTimes:
        spans = zip(configuration.ranges(), configuration.places, strict=True)
        return StageTimes(
            tuple(sum(LAYERS_MS[a:b]) * (1, 3)[place] * 1e-3 for (a, b), place in spans)
        )

    first = run_search("guided", CHAIN, platform, measure)
    again = run_search("guided", CHAIN, platform, measure, known=first.trials)
    assert again.trials[: len(first.trials)] == first.trials
    assert len(again.trials) - len(first.trials) <= 2
    assert again.best.bottleneck_s == pytest.approx(speeds.least_ms() * 1e-3)
    budgeted = run_search("guided", CHAIN, platform, measure, known=first.trials[:1], budget=1)
    assert len(budgeted.trials) == 2
