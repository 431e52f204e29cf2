"""Results of a stream are compared to the bit; it goes through what the search chose, also when the
tuner has begun to tune again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.pipelines.streams_made_up import CHAIN, Speeds, needs_two_cores, two_places
from tests.runtime.pipeline.stages import frame
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.places import running_places
from tvm_npu.pipelines.search import Trial
from tvm_npu.pipelines.stream import ResultDiffers, all_of, compare, tune_and_measure
from tvm_npu.pipelines.times import StageTimes
from tvm_npu.pipelines.tuner import OnlineTuner, TunerOptions, Tuning
from tvm_npu.runtime.pipeline import Pipeline, Result
from tvm_npu.runtime.pipeline.errors import StageNotLoaded
from tvm_npu.runtime.pipeline.times import FrameTimes


def result(**outputs: np.ndarray) -> Result:
    return Result(7, outputs, FrameTimes(7, 0, 0, 1, ()))


def test_equal_bits_pass() -> None:
    values = np.array([0.0, -0.0, np.nan], np.float32)
    compare(result(a=values.copy()), {"a": values})


@pytest.mark.parametrize("other", [[0.0, 0.0, 1.0], [1e-45, -0.0, 1.0]])
def test_one_bit_is_enough(other: list[float]) -> None:
    values = np.array([0.0, -0.0, 1.0], np.float32)
    found = result(first=values, a=np.array(other, np.float32))
    with pytest.raises(ResultDiffers, match="^frame 7: 1 of 3 elements of output 1 differ from"):
        compare(found, {"first": values, "a": values})


def test_a_second_tuning_by_known_trials_does_not_hide_the_first() -> None:
    """A busy machine changes the stages' speeds as well."""
    one, other = Configuration((6,), (0,)), Configuration((1, 5), (1, 0))
    trial = Trial(one, StageTimes((0.5,)))
    first = Tuning("start", 0, 0, 9, one, trial.times, (trial,), 2.0)
    second = Tuning("place 0 takes 2 times as long", 9, 9, 9, other, trial.times, (), 0.5)
    found = all_of((first, second))
    assert (found.best, found.reason) == (other, second.reason)
    assert (found.trials, found.search_s) == ((trial,), 2.5)


class Restless(OnlineTuner):
    """Leaves another configuration running when it is stopped."""

    other = Configuration((1, 5), (1, 0))

    def stop(self) -> None:
        super().stop()
        self._pipeline.redeploy(self._deploy(self.other))
        self._running = self.other


@needs_two_cores
def test_what_was_chosen_is_measured(tmp_path: Any) -> None:
    speeds = Speeds(tmp_path, 1.0, 1.0)
    platform = two_places()
    with Pipeline(
        speeds.deploy(Configuration((6,), (0,))), running_places(platform), timeout_s=120
    ) as pipeline:
        samples = [frame(0)]
        (reference,) = [result.outputs for result in pipeline.run(samples)]
        tuner = Restless(pipeline, CHAIN, platform, speeds.deploy, TunerOptions("shisha-h1"))
        report = tune_and_measure(pipeline, tuner, speeds.deploy, samples, [reference], 5)
        assert report.statistics.frames == 5
        assert len(report.statistics.stages) == len(report.tuning.best)
        assert pipeline.deployment.places == report.tuning.best.places
        assert pipeline.out_count == 1 + report.tuning_frames + 5
    assert np.isfinite(report.statistics.throughput)


def test_a_configuration_that_does_not_load_is_told() -> None:
    error = StageNotLoaded("no", stage="s", place="p", frame=-1, delivered=0)

    def deploy(configuration: Configuration) -> Any:
        raise error

    tuner = OnlineTuner(
        SimpleNamespace(observers=[], out_count=0, prepare=None),  # type: ignore[arg-type]
        CHAIN,
        two_places(),
        deploy,
        TunerOptions("shisha-h1"),
    )
    tuner.start()
    with pytest.raises(StageNotLoaded, match="^no$"):
        tuner.stop()
    assert not tuner.history and not tuner.alive
