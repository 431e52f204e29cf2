"""Tuners on one layer: what they have found after how many trials, and how well the cost model
orders plans by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import spearmanr

from studies.harness.errors import StudyError
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tune.log import Run
from tvm_npu.codegen.tune.model import CostModel
from tvm_npu.codegen.tune.tune import Tuned, tune
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.tuning.measure import LayerMeasure
from tvm_npu.tuning.model import exact_cycles

CLOSE = 1.05
"""Within 5 % of the plan of `exact`."""
GOOD = 2.0
"""Plans that take at most twice as long as that of `exact`."""


@dataclass(frozen=True)
class SearchRow:
    """One run of one tuner, as in the JSON file: ``best_over_exact`` after ``trials`` trials."""

    table: str
    layer: str
    tuner: str
    seed: int
    trials: int
    best_cycles: float | None
    exact_cycles: float
    best_over_exact: float | None


@dataclass(frozen=True)
class CorrelationRow:
    """Spearman's correlation of the cost model after ``trials`` trials of the learned tuner with
    simulated cycles of ``plans`` plans of other runs: ``of`` "random" ones, or of "good" ones."""

    table: str
    layer: str
    seed: int
    trials: int
    of: str
    plans: int
    spearman: float


@dataclass(frozen=True)
class LayerSearch:
    """All runs on one layer by (tuner, seed)."""

    layer: str
    exact_cycles: float
    runs: dict[tuple[str, int], Tuned[ConvPlan]]

    def best_so_far(self, tuner: str) -> np.ndarray:
        """[seeds, trials]: best over exact, inf where nothing was measured yet."""
        rows = []
        for (name, _), run in self.runs.items():
            if name == tuner:
                cycles = [np.inf if one is None else one for one in run.cycles]
                rows.append(np.minimum.accumulate(cycles) / self.exact_cycles)
        return np.array(rows)

    def until_close(self, tuner: str) -> list[int | None]:
        """By seed: trials until within `CLOSE` of exact's plan; None where that was not reached."""
        return [
            int(np.argmax(row <= CLOSE)) + 1 if row[-1] <= CLOSE else None
            for row in self.best_so_far(tuner)
        ]


@lru_cache(maxsize=1)
def layer_measure(problem: ConvProblem, machine: NmpMachine) -> LayerMeasure:
    """Of the layer that is at work: a plan is simulated once, whoever tries it."""
    return LayerMeasure(problem, machine)


def exact_cycles_of(layer: str, problem: ConvProblem, machine: NmpMachine) -> float:
    """Raises StudyError when the plan of `exact` cannot be measured."""
    exact = exact_cycles(layer_measure(problem, machine))
    if exact is None:
        raise StudyError(f"layer {layer!r}: the plan of 'exact' cannot be measured")
    return exact


def tuned_layer(
    problem: ConvProblem, machine: NmpMachine, tuner: str, seed: int, trials: int
) -> Tuned[ConvPlan]:
    """One run of one tuner."""
    space = ConvSpace(problem, machine)
    return tune(space, Run(tuner, False, seed), trials, layer_measure(problem, machine))


def search_rows(search: LayerSearch) -> list[SearchRow]:
    rows = []
    for (tuner, seed), run in search.runs.items():
        best: float | None = None
        for number, cycles in enumerate(run.cycles, 1):
            if cycles is not None and (best is None or cycles < best):
                best = cycles
            ratio = None if best is None else best / search.exact_cycles
            rows.append(
                SearchRow(
                    "search", search.layer, tuner, seed, number, best, search.exact_cycles, ratio
                )
            )
    return rows


def checkpoints(trials: int) -> list[int]:
    """After how many trials the cost model is judged."""
    counts = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    return [count for count in counts if count <= trials]


def correlations(search: LayerSearch, space: ConvSpace) -> list[CorrelationRow]:
    """Of models trained as the learned tuner trains them. No plan that a model is judged by was
    seen by it."""
    rows = []
    for (tuner, seed), run in search.runs.items():
        if tuner != "learned":
            continue
        for trials in checkpoints(len(run.plans)):
            model = CostModel(seed)
            model.fit(space.features(run.plans[:trials]), run.cycles[:trials])
            seen = set(run.plans)
            for of, plans, cycles in _held_out(search, seed, seen):
                predicted = model.predict(space.features(plans))
                rows.append(
                    CorrelationRow(
                        "correlation", search.layer, seed, trials, of, len(plans),
                        float(spearmanr(predicted, cycles).statistic),
                    )
                )  # fmt: skip
    return rows


def _held_out(
    search: LayerSearch, seed: int, seen: set[ConvPlan]
) -> list[tuple[str, Sequence[ConvPlan], Sequence[float]]]:
    random: dict[ConvPlan, float] = {}
    good: dict[ConvPlan, float] = {}
    for (tuner, other), run in search.runs.items():
        for plan, cycles in zip(run.plans, run.cycles, strict=True):
            if cycles is None or plan in seen:
                continue
            if tuner == "random":
                random[plan] = cycles
            if (tuner, other) != ("learned", seed) and cycles <= GOOD * search.exact_cycles:
                good[plan] = cycles
    held_out = (("random", random), ("good", good))
    return [(of, list(one), list(one.values())) for of, one in held_out if len(one) >= 10]
