"""What all searches share: trials that are counted and remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.times import StageTimes
from tvm_npu.sim.numbers import is_finite, is_whole
from tvm_npu.sim.texts import cut, shown

Measure = Callable[[Configuration], StageTimes]
"""Runs a configuration for some frames, for real or simulated, and tells its stages' times."""
MAXIMUM_BUDGET = 100_000_000


@dataclass(frozen=True)
class Trial:
    """A configuration that was run, and what its stages took."""

    configuration: Configuration
    times: StageTimes

    @property
    def bottleneck_s(self) -> float:
        return self.times.bottleneck_s

    def seconds(self, frames: int) -> float:
        """How long ``frames`` frames take: the first passes all stages, the others follow at the
        pace of the slowest."""
        return sum(self.times.seconds) + (frames - 1) * self.bottleneck_s


@dataclass(frozen=True)
class SearchResult:
    """``best``: what the search would run from now on; ``trials`` in the order in which they were
    run, those known before in front; ``asked``: how often the search wanted one run, remembered
    ones included; ``finished``: it ended by its own rule, not by the budget."""

    search: str
    best: Trial
    trials: tuple[Trial, ...]
    asked: int
    finished: bool = True

    @property
    def trials_to_best(self) -> int:
        """Trials up to the best one, itself included."""
        return self.trials.index(self.best) + 1

    def seconds(self, frames: int, trials: int | None = None) -> float:
        """Time spent on running the first ``trials`` trials (None: all), ``frames`` each."""
        return sum(trial.seconds(frames) for trial in self.trials[:trials])


class BudgetSpent(Exception):
    """Inside a search: no more trials."""


class Session:
    """One search at work. A configuration that was measured is remembered: asking for it again
    costs no trial. ``known``: trials of earlier searches, which still hold; several of one
    configuration all count."""

    def __init__(
        self,
        chain: LayerChain,
        platform: Platform,
        measure: Measure,
        *,
        seed: int = 0,
        budget: int | None = None,
        known: Sequence[Trial] = (),
    ) -> None:
        if not is_whole(seed):
            raise SearchError(f"seed = {shown(seed)}; an integer from 0 to {(1 << 63) - 1}")
        if budget is not None and not is_whole(budget, 1, MAXIMUM_BUDGET):
            raise SearchError(
                f"budget = {shown(budget)} trials; an integer from 1 to {MAXIMUM_BUDGET}"
            )
        _check_kinds(chain, platform, measure)
        self.chain = chain
        self.platform = platform
        self.budget = budget
        self.random = np.random.default_rng(seed)
        self.most_stages = min(len(chain), platform.most_stages)
        self._measure = measure
        self._trials: list[Trial] = []
        self._first: dict[Configuration, int] = {}
        """Where each configuration's first trial is in ``_trials``."""
        self.asked = 0
        if isinstance(known, str | bytes) or not isinstance(known, Sequence):
            raise SearchError(f"known trials are {shown(known)}; a sequence of Trial")
        for trial in known:
            if not isinstance(trial, Trial):
                raise SearchError(f"a known trial is {shown(trial)}; expected a Trial")
            if not _are_times(trial.times, len(trial.configuration)):
                raise SearchError(
                    f"the known trial of {trial.configuration} took {_shown_times(trial.times)}; "
                    f"{len(trial.configuration)} times above 0 s are expected, finite"
                )
            platform.check(trial.configuration, len(chain))
            self._add(trial)
        self._given = len(self._trials)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """In the order in which they were run, those known before in front."""
        return tuple(self._trials)

    @property
    def count(self) -> int:
        """Trials that were run in this search."""
        return len(self._trials) - self._given

    def runs(self, configuration: Configuration) -> int:
        """How often ``configuration`` was run."""
        return sum(trial.configuration == configuration for trial in self._trials)

    def known(self, configuration: Configuration) -> bool:
        return configuration in self._first

    def try_out(self, configuration: Configuration) -> Trial:
        """Measures ``configuration``, or remembers it. BudgetSpent when that is one too many."""
        self.asked += 1
        found = self._first.get(configuration)
        return self._run(configuration) if found is None else self._trials[found]

    def repeat(self, configuration: Configuration) -> Trial:
        """Measures ``configuration`` once more: another trial, for searches that know that
        measurements are noisy. BudgetSpent when that is one too many."""
        self.asked += 1
        return self._run(configuration)

    def _run(self, configuration: Configuration) -> Trial:
        if self.budget is not None and self.count >= self.budget:
            raise BudgetSpent
        self.platform.check(configuration, len(self.chain))
        times = self._measure(configuration)
        if not _are_times(times, len(configuration)):
            raise SearchError(
                f"{configuration} was measured as {_shown_times(times)}; "
                f"{len(configuration)} times above 0 s are expected, finite, as StageTimes"
            )
        trial = Trial(configuration, times)
        self._add(trial)
        return trial

    def _add(self, trial: Trial) -> None:
        self._first.setdefault(trial.configuration, len(self._trials))
        self._trials.append(trial)

    def best(self) -> Trial:
        """The fastest of the configurations' first trials, the earliest of equals."""
        firsts = (self._trials[index] for index in self._first.values())
        return min(firsts, key=lambda trial: trial.bottleneck_s)


def _check_kinds(chain: object, platform: object, measure: object) -> None:
    if not isinstance(chain, LayerChain):
        raise SearchError(f"the chain is {shown(chain)}; expected a LayerChain")
    if not isinstance(platform, Platform):
        raise SearchError(f"the platform is {shown(platform)}; expected a Platform")
    if not callable(measure):
        raise SearchError(f"measure is {shown(measure)}; expected a function of a Configuration")


def _shown_times(times: object) -> str:
    return cut(repr(times.seconds if isinstance(times, StageTimes) else times))


def _are_times(times: object, stages: int) -> bool:
    """Whether a search can compare them: NaN is neither more nor less than another time."""
    return (
        isinstance(times, StageTimes)
        and len(times.seconds) == stages
        and all(is_finite(one) and one > 0 for one in times.seconds)
    )
