"""One search of one network on one platform: a row of the JSON file."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from studies.pipelines.cases import Case
from tvm_npu.pipelines.search import SearchResult, run_search
from tvm_npu.pipelines.search.space import cuts
from tvm_npu.pipelines.times import SimulatedMeasure
from tvm_npu.sim.making_code import Stopwatch

FRAMES = 10
"""Frames that a trial runs: its time is that of the first through all stages and of nine more at
the pace of the slowest stage."""
BUDGET = 1000
"""Trials of the searches that do not end by themselves."""
UNENDING = ("random-walk", "hill-climbing", "annealing")
NEAR = 0.99


@dataclass(frozen=True)
class Row:
    """``trials``: configurations that were run; ``executions``: how often the search asked for one,
    remembered ones included (an iteration of Shisha's Algorithm 2 is one); ``space``: all
    configurations, exchangeable places counted once; ``cuts``: cuts into as many stages as there
    are places, the space in which the papers count; ``search_s``: time of all trials,
    ``convergence_s``: up to the best one; ``near_s``: up to the first within 1 % of the optimum,
    or None; ``planning_s``: the search's own computing time. Of searches that draw random numbers,
    the run of median convergence time among ``seeds``.
    """

    model: str
    platform: str
    search: str
    trials: int
    executions: int
    space: int
    cuts: int
    throughput: float
    best_throughput: float
    share_of_best: float
    search_s: float
    convergence_s: float
    near_s: float | None
    trials_to_best: int
    planning_s: float
    seeds: int
    configuration: str
    proof: str


def random_search(name: str) -> bool:
    """True when the seed matters to the search's trials."""
    return name.startswith(UNENDING) or name in ("shisha-h5", "shisha-h6")


def row_of(case: Case, name: str, seeds: int) -> Row | None:
    """Runs the search (`exhaustive` on the whole table at once, and None where it does not end)."""
    if name == "exhaustive":
        return _exhaustive_row(case) if case.enumeration else None
    runs = []
    for seed in range(seeds if random_search(name) else 1):
        watch = Stopwatch()
        with watch.part("planning"):
            result = searched(case, name, seed)
        runs.append(_row(case, result, watch.seconds["planning"], seed + 1))
    middle = statistics.median_low([row.convergence_s for row in runs])
    chosen = next(row for row in runs if row.convergence_s == middle)
    return replace(chosen, seeds=len(runs))


def searched(case: Case, name: str, seed: int = 0, noise: float = 0.0) -> SearchResult:
    """One run on simulated places."""
    budget = BUDGET if name.startswith(UNENDING) else None
    measure = SimulatedMeasure(case.table, noise, seed)
    return run_search(name, case.chain, case.platform, measure, seed=seed, budget=budget)


def share_of_best(case: Case, result: SearchResult) -> float:
    """True throughput of what the search chose over the optimum's, at most 1."""
    return case.optimum[1] / case.table.times(result.best.configuration).bottleneck_s


def _row(case: Case, result: SearchResult, planning_s: float, seeds: int) -> Row:
    best_s = case.optimum[1]
    near = [i for i, trial in enumerate(result.trials) if best_s / trial.bottleneck_s >= NEAR]
    return Row(
        model=case.model,
        platform=case.platform.name,
        search=result.search,
        trials=len(result.trials),
        executions=result.asked,
        space=case.space,
        cuts=cuts_of(case),
        throughput=result.best.times.throughput,
        best_throughput=1.0 / best_s,
        share_of_best=best_s / result.best.bottleneck_s,
        search_s=result.seconds(FRAMES),
        convergence_s=result.seconds(FRAMES, result.trials_to_best),
        near_s=result.seconds(FRAMES, near[0] + 1) if near else None,
        trials_to_best=result.trials_to_best,
        planning_s=planning_s,
        seeds=seeds,
        configuration=str(result.best.configuration),
        proof=_proof(case),
    )


def _exhaustive_row(case: Case) -> Row:
    watch = Stopwatch()
    with watch.part("planning"):
        found = case.enumeration
    assert found is not None
    spent = found.seconds(FRAMES)
    return Row(
        model=case.model,
        platform=case.platform.name,
        search="exhaustive",
        trials=found.space,
        executions=found.space,
        space=case.space,
        cuts=cuts_of(case),
        throughput=1.0 / found.bottleneck_s,
        best_throughput=1.0 / case.optimum[1],
        share_of_best=case.optimum[1] / found.bottleneck_s,
        search_s=spent,
        convergence_s=spent,
        near_s=spent,
        trials_to_best=found.space,
        planning_s=watch.seconds["planning"],
        seeds=1,
        configuration=str(found.best),
        proof=_proof(case),
    )


def cuts_of(case: Case) -> int:
    """Cuts into as many stages as can be placed."""
    layers = len(case.chain)
    return cuts(layers, min(layers, case.platform.most_stages))


def _proof(case: Case) -> str:
    return "enumeration" if case.enumeration else "dynamic programming"
