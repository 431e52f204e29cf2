"""Tuners: what plan to try next, given all that was tried. Deterministic by seed.

A tuner proposes batches and is told their outcome; whether that comes from a machine or from a log
makes no difference to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.tune.anneal import accepts, anneal
from tvm_npu.codegen.tune.model import CostModel, log_cycles
from tvm_npu.codegen.tune.space import Space, machine_fingerprint

P = TypeVar("P")

BATCH = 8
RANDOM_SHARE = 1 / 8
"""Epsilon: the share of a batch that is drawn at random."""
REPEATED_DRAWS = 50
"""Draws of a plan that was tried before until it is tried again: tiny spaces have few."""


class Tuner(Protocol[P]):
    def propose(self) -> list[P]:
        """The next plans to try, at least one."""

    def update(self, plan: P, cycles: float | None) -> None:
        """What a proposed plan took; None where it could not be measured."""


class _Base(Generic[P]):
    def __init__(self, space: Space[P], seed: int, first: Sequence[P] = ()) -> None:
        self.space, self.seed = space, seed
        self.generator = np.random.default_rng([seed, subject_number(space)])
        self.first = list(first)
        self.plans: list[P] = []
        self.cycles: list[float | None] = []
        self.visited: set[P] = set()

    def update(self, plan: P, cycles: float | None) -> None:
        self.plans.append(plan)
        self.cycles.append(cycles)
        self.visited.add(plan)

    def propose(self) -> list[P]:
        if self.first:
            given, self.first = self.first, []
            return given
        return self.next_batch()

    def next_batch(self) -> list[P]:
        raise NotImplementedError

    def fresh(self, avoid: Sequence[P] = ()) -> P:
        """A random plan that was not tried, if one is found."""
        for _ in range(REPEATED_DRAWS):
            plan = self.space.sample(self.generator)
            if plan not in self.visited and plan not in avoid:
                break
        return plan


class RandomTuner(_Base[P]):
    """Random plans, none twice."""

    def next_batch(self) -> list[P]:
        return [self.fresh()]


class LearnedTuner(_Base[P]):
    """Stock TVM's XGBTuner: a cost model trained on all trials, annealing over the model, the best
    plans that it finds and some random ones as the next batch; the first batch is random."""

    def next_batch(self) -> list[P]:
        batch: list[P] = []
        measured = [one for one in self.cycles if one is not None]
        if len(self.plans) >= BATCH and measured:
            model = CostModel(self.seed)
            model.fit(self.space.features(self.plans), self.cycles)
            order = np.argsort(log_cycles(self.cycles), kind="stable")
            starts = [self.plans[index] for index in order[: 2 * BATCH]]
            wanted = BATCH - max(1, round(RANDOM_SHARE * BATCH))
            batch = anneal(self.space, model.predict, starts, self.visited, wanted, self.generator)
        while len(batch) < BATCH:
            batch.append(self.fresh(batch))
        return batch


class AnnealingTuner(_Base[P]):
    """Simulated annealing without a model: one walk in which every step is measured."""

    FIRST_TEMPERATURE, COOLING = 0.5, 0.97
    """In log2 of cycles, and how it falls from trial to trial."""

    def __init__(self, space: Space[P], seed: int, first: Sequence[P] = ()) -> None:
        super().__init__(space, seed, first)
        self.point: P | None = None
        self.score = float("inf")

    def next_batch(self) -> list[P]:
        if self.point is None:
            return [self.fresh()]
        for _ in range(REPEATED_DRAWS):
            plan = self.space.neighbour(self.point, self.generator)
            if plan not in self.visited:
                break
        return [plan]

    def update(self, plan: P, cycles: float | None) -> None:
        super().update(plan, cycles)
        if cycles is None:
            return
        score = float(np.log2(cycles))
        temperature = self.FIRST_TEMPERATURE * self.COOLING ** len(self.plans)
        chance = self.generator.random()
        if self.point is None or bool(accepts(score - self.score, temperature, chance)):
            self.point, self.score = plan, score


TUNERS: dict[str, Callable[..., Any]] = {
    "learned": LearnedTuner,
    "random": RandomTuner,
    "annealing": AnnealingTuner,
}


def tuner_names() -> tuple[str, ...]:
    return tuple(TUNERS)


def make_tuner(name: str, space: Space[P], seed: int, first: Sequence[P] = ()) -> Tuner[P]:
    """The tuner ``name``, which tries the plans ``first`` before its own. Raises PlanningError for
    an unknown name, MissingPackageError where `learned` has no xgboost."""
    if name not in TUNERS:
        raise PlanningError(f"unknown tuner {name!r}; known tuners: {', '.join(TUNERS)}")
    if name == "learned":
        CostModel(seed)  # better now than after the first batch
    tuner: Tuner[P] = TUNERS[name](space, seed, first)
    return tuner


def subject_number(space: Space[Any]) -> int:
    """A number of a layer on a machine, so that layers do not all draw the same."""
    text = json.dumps([space.kind, machine_fingerprint(space.machine), space.problem])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
