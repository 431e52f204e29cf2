"""Pipe-Search's own questions: VGG16 on four cores, hints, governor settings, Synth 1-3.

Its space is that of the paper: cuts into 2 to C stages, each number of stages on the platform's
arrangement of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from studies.pipelines.cases import Case, case_of
from studies.pipelines.published import (
    BANDS,
    HINT_THROUGHPUT,
    SETTINGS,
    SYNTH_SEEDS,
    Setting,
    SynthOptimum,
)
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.search import run_search
from tvm_npu.pipelines.search.balance import balanced_cuts, coefficient_of_variation
from tvm_npu.pipelines.search.space import all_stages
from tvm_npu.pipelines.times import SimulatedMeasure

ALPHA = 10
SYNTH_ALPHA = 15
"""Section 6.1 and Figure 3."""
RANDOM_WALKS = 20


@dataclass(frozen=True)
class Quality:
    """VGG16 on four cores. ``bands``: percent of the configurations with 1 to 1.5, 1.5 to 2 and 2
    to 5 times the best bottleneck, and beyond."""

    trials: int
    space: int
    found: Configuration
    best: Configuration
    share_of_best: float
    pipe_bands: tuple[float, ...]
    space_bands: tuple[float, ...]


@dataclass(frozen=True)
class Hints:
    """Throughput and trials of Pipe-Search with weights, with numbers of layers only, and of a
    random walk that ends at the paper's share (0.9 of 1.2) of what the first found, on average."""

    throughput: tuple[float, float, float]
    trials: tuple[float, float, float]


@dataclass(frozen=True)
class Adapted:
    """VGG16 under one governor setting: the paper's answer, its rank in our order and its
    throughput on our platform, and our Pipe-Search's answer beside the best of its space."""

    paper: Setting
    paper_rank_here: int
    paper_throughput_here: float
    found: Configuration
    rank: int
    throughput: float
    best_throughput: float


@dataclass(frozen=True)
class Synthetic:
    """One synthetic network under one setting; variations in percent."""

    paper: SynthOptimum
    seed_variation: float
    paper_rank_here: tuple[int, int]
    paper_variation_here: float
    paper_share_here: float
    found: Configuration
    rank: int
    variation: float
    trials: int
    share_of_best: float


@dataclass(frozen=True)
class Offline:
    """The most even cut beside what Pipe-Search found, setting 3: longest stage's share of a two
    stage pipeline's time (Figure 4), and throughput gained by tuning."""

    model: str
    seed_share: float
    found_share: float
    gain: float


def pipe_space(case: Case) -> list[Configuration]:
    """All configurations of the paper's space."""
    most = min(len(case.chain), case.platform.most_stages)
    found = []
    for count in range(2, most + 1):
        places = case.platform.arrangement(count)
        if places is not None:
            found += [Configuration(s, places) for s in all_stages(len(case.chain), count)]
    return found


def rank_of(weights: Sequence[float], stages: tuple[int, ...]) -> tuple[int, int]:
    """First and last place, from 1, that a cut can have among all of as many stages in the order of
    their coefficient of variation: cuts of equal variation have no order of their own."""
    own = _squares(weights, stages)
    before = equal = 0
    for cut in takewhile(
        lambda cut: _squares(weights, cut) <= own, balanced_cuts(weights, len(stages))
    ):
        if _squares(weights, cut) < own:
            before += 1
        else:
            equal += 1
    return before + 1, before + equal


def _squares(weights: Sequence[float], stages: tuple[int, ...]) -> float:
    """In the order of the variation; weights are whole numbers, so that it is exact."""
    first = total = 0
    for layers in stages:
        total += sum(int(weight) for weight in weights[first : first + layers]) ** 2
        first += layers
    return total


def bands_of(bottlenecks_s: Sequence[float], best_s: float) -> tuple[float, ...]:
    """Percent in each band of BANDS, in multiples of ``best_s``, and beyond the last."""
    edges = [*(edge * best_s for edge in BANDS), np.inf]
    counts, _ = np.histogram(np.array(bottlenecks_s), edges)
    return tuple(float(100 * count / len(bottlenecks_s)) for count in counts)


def quality(case: Case) -> Quality:
    space = pipe_space(case)
    times = [case.table.times(one).bottleneck_s for one in space]
    best_s = min(times)
    result = run_search(
        "pipe-search", case.chain, case.platform, SimulatedMeasure(case.table), alpha=ALPHA
    )
    return Quality(
        len(result.trials),
        len(space),
        result.best.configuration,
        space[times.index(best_s)],
        best_s / result.best.bottleneck_s,
        bands_of([trial.bottleneck_s for trial in result.trials], best_s),
        bands_of(times, best_s),
    )


def hints(case: Case) -> Hints:
    measure = SimulatedMeasure(case.table)
    found = [
        run_search("pipe-search", case.chain, case.platform, measure, alpha=ALPHA, hints=hinted)
        for hinted in (True, False)
    ]
    best = found[0].best.times.throughput
    wanted = best * HINT_THROUGHPUT["random"] / HINT_THROUGHPUT["with hints"]
    space = pipe_space(case)
    random = np.random.default_rng(0)
    reached, trials = [], []
    for _ in range(RANDOM_WALKS):
        for number, index in enumerate(random.permutation(len(space)), start=1):
            throughput = case.table.times(space[index]).throughput
            if throughput >= wanted:
                reached.append(throughput)
                trials.append(number)
                break
    return Hints(
        (best, found[1].best.times.throughput, float(np.mean(reached))),
        (len(found[0].trials), len(found[1].trials), float(np.mean(trials))),
    )


def adaptation() -> list[Adapted]:
    rows = []
    for paper in SETTINGS:
        case = case_of("vgg16", f"tx2-4core-setting{paper.number}")
        places = case.platform.arrangement(len(paper.stages))
        assert places is not None
        theirs = case.table.times(Configuration(paper.stages, places)).throughput
        best = run_search(
            "pipe-search", case.chain, case.platform, SimulatedMeasure(case.table), alpha=ALPHA
        ).best
        weights = case.chain.weights
        rows.append(
            Adapted(
                paper,
                rank_of(weights, paper.stages)[0],
                theirs,
                best.configuration,
                rank_of(weights, best.configuration.stages)[0],
                best.times.throughput,
                max(case.table.times(one).throughput for one in pipe_space(case)),
            )
        )
    return rows


def synthetic(paper: SynthOptimum) -> Synthetic:
    case = case_of(paper.network, f"tx2-6core-setting{paper.setting}")
    weights = case.chain.weights
    result = run_search(
        "pipe-search", case.chain, case.platform, SimulatedMeasure(case.table), alpha=SYNTH_ALPHA
    )
    best_s = min(case.table.times(one).bottleneck_s for one in pipe_space(case))
    places = case.platform.arrangement(len(paper.stages))
    assert places is not None
    theirs_s = case.table.times(Configuration(paper.stages, places)).bottleneck_s
    found = result.best.configuration
    return Synthetic(
        paper,
        100 * coefficient_of_variation(weights, SYNTH_SEEDS[paper.network][0]),
        rank_of(weights, paper.stages),
        100 * coefficient_of_variation(weights, paper.stages),
        best_s / theirs_s,
        found,
        rank_of(weights, found.stages)[0],
        100 * coefficient_of_variation(weights, found.stages),
        len(result.trials),
        best_s / result.best.bottleneck_s,
    )


def offline(model: str) -> Offline:
    """Two stages, setting 3: the most even cut, and what tuning makes of it."""
    case = case_of(model, "tx2-4core-setting3")
    places = case.platform.arrangement(2)
    assert places is not None
    seed = case.table.times(Configuration(next(balanced_cuts(case.chain.weights, 2)), places))
    cuts = [Configuration(stages, places) for stages in all_stages(len(case.chain), 2)]
    best = min((case.table.times(cut) for cut in cuts), key=lambda times: times.bottleneck_s)
    return Offline(
        model,
        100 * seed.bottleneck_s / sum(seed.seconds),
        100 * best.bottleneck_s / sum(best.seconds),
        seed.bottleneck_s / best.bottleneck_s,
    )
