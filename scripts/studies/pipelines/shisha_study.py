"""Shisha's own questions: is its seed worth it, does the link's latency matter, is its answer the
best one on the places it chose."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from studies.pipelines.cases import Case, best_cut
from studies.pipelines.rows import FRAMES, searched
from tvm_npu.pipelines.platform import Link, platform_from_dict
from tvm_npu.pipelines.search import run_search
from tvm_npu.pipelines.search.space import random_configuration
from tvm_npu.pipelines.times import SimulatedMeasure

LATENCIES_S = tuple(10.0**exponent for exponent in range(-9, 1))
"""Section 7.6: 1 ns to 1 s."""


@dataclass(frozen=True)
class OwnPlaces:
    """Shisha's bottleneck beside the best of any cut on the places that it chose, in their order:
    it moves layers only, so that this is the space which the papers count."""

    model: str
    platform: str
    search: str
    shisha_s: float
    best_cut_s: float

    @property
    def share(self) -> float:
        return self.best_cut_s / self.shisha_s


@dataclass(frozen=True)
class Seeds:
    """Shisha from its own seed and from random ones: ``gain``: its solution's throughput over the
    mean of theirs; ``slower``: mean convergence time of theirs over its own; ``beaten``: share of
    random seeds whose solution is slower; ``seeds_beaten``: share that is slower before tuning."""

    model: str
    platform: str
    search: str
    seeds: int
    gain: float
    slower: float
    beaten: float
    seeds_beaten: float
    throughputs: tuple[float, ...]
    times_s: tuple[float, ...]
    own_throughput: float
    own_time_s: float


@dataclass(frozen=True)
class Latency:
    """Frames a second with a latency added to every transfer: Shisha's solution, the optimum."""

    latency_s: float
    shisha: float
    guided: float
    optimum: float


def own_places(case: Case, search: str) -> OwnPlaces:
    best = searched(case, search).best
    least = best_cut(case.table, best.configuration.places)
    return OwnPlaces(case.model, case.platform.name, search, best.bottleneck_s, least)


def compare_seeds(case: Case, search: str, count: int) -> Seeds:
    """``count`` random configurations of as many stages as Shisha's seed has, on random places."""
    own = searched(case, search)
    stages = len(own.best.configuration)
    own_time_s = own.seconds(FRAMES, own.trials_to_best)
    random = np.random.default_rng(0)
    starts, throughputs, times_s = [], [], []
    for _ in range(count):
        start = random_configuration(len(case.chain), case.platform, random, stages)
        result = run_search(
            search, case.chain, case.platform, SimulatedMeasure(case.table), start=start
        )
        starts.append(result.trials[0].times.throughput)
        throughputs.append(result.best.times.throughput)
        times_s.append(result.seconds(FRAMES, result.trials_to_best))
    own_throughput = own.best.times.throughput
    return Seeds(
        case.model,
        case.platform.name,
        search,
        count,
        own_throughput / statistics.fmean(throughputs),
        statistics.fmean(times_s) / own_time_s,
        statistics.fmean(one < own_throughput for one in throughputs),
        statistics.fmean(one < own.trials[0].times.throughput for one in starts),
        tuple(throughputs),
        tuple(times_s),
        own_throughput,
        own_time_s,
    )


def with_latency(case: Case, latency_s: float) -> Case:
    """The case with ``latency_s`` more for every transfer between places."""
    link = case.platform.link
    values = case.platform.model_dump()
    longer = Link(latency_s=link.latency_s + latency_s, bytes_per_s=link.bytes_per_s)
    values["link"] = longer.model_dump()
    return Case(case.chain, platform_from_dict(values, case.platform.name))


def latencies(case: Case, search: str) -> list[Latency]:
    found = []
    for latency_s in LATENCIES_S:
        slower = with_latency(case, latency_s)
        found.append(
            Latency(
                latency_s,
                searched(slower, search).best.times.throughput,
                searched(slower, "guided").best.times.throughput,
                1.0 / slower.optimum[1],
            )
        )
    return found
