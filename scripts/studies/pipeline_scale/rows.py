"""Rows of the study, and how each is made."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from studies.pipeline_scale.cases import least_bottleneck_s, random_chain, random_platform
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.fleet import even_rate, paper_rates, simulate_fleet
from tvm_npu.pipelines.search import run_search
from tvm_npu.pipelines.times import SimulatedMeasure, simulated_table

SEARCHES = ("exact", "guided", "shisha-h1")
FLEET_LAYERS = 100
FLEET_FRAMES = 200
"""A machine: the rates at which streams begin and end must not show."""
FLEET_NOISE = 0.05


@dataclass(frozen=True)
class ScaleRow:
    """``share``: of the throughput of the optimum where ``reference`` is ``exact``, else of what no
    configuration can reach (``bound``). ``stages``: of what the search found. A search that cannot
    work there is a row with the ``error``, without trials and time."""

    search: str
    places: int
    kinds: int
    layers: int
    seed: int
    stages: int | None
    trials: int | None
    cpu_s: float | None
    frames_per_s: float | None
    share: float | None
    reference: str
    error: str | None


@dataclass(frozen=True)
class FleetRow:
    """Machines of unequal speed, each a place that holds the whole network, or all places as one
    pipeline. ``paper`` and ``simulated``: frames a second."""

    machines: int
    policy: str
    paper: float
    simulated: float
    latency_s: float
    latency_p99_s: float


@cache
def warm() -> None:
    """Compiles and loads what searches use, so that no row's time holds it."""
    chain, platform = random_chain(12, 0), random_platform(4, 2, 0)
    table = simulated_table(chain, platform)
    for search in SEARCHES:
        run_search(search, chain, platform, SimulatedMeasure(table, 0.05), budget=2)


def scale_rows(places: int, kinds: int, layers: int, seed: int) -> list[ScaleRow]:
    chain, platform = random_chain(layers, seed), random_platform(places, kinds, seed)
    table = simulated_table(chain, platform)
    rows: list[ScaleRow] = []
    least_s, reference = 0.0, "exact"
    for search in SEARCHES:
        begin = time.process_time()
        try:
            found = run_search(search, chain, platform, SimulatedMeasure(table), seed=seed)
        except SearchError as error:
            assert search == "exact", error
            least_s, reference = least_bottleneck_s(table, platform), "bound"
            rows.append(
                ScaleRow(
                    search, places, kinds, layers, seed, None, None, None, None, None, reference,
                    f"SearchError: {error}",
                )
            )  # fmt: skip
            continue
        spent = time.process_time() - begin
        taken_s = table.times(found.best.configuration).bottleneck_s
        least_s = least_s or taken_s
        rows.append(
            ScaleRow(
                search, places, kinds, layers, seed, len(found.best.configuration),
                len(found.trials), spent, 1.0 / taken_s, least_s / taken_s, reference, None,
            )
        )  # fmt: skip
    return rows


def fleet_rows(places: int, seed: int) -> list[FleetRow]:
    """Every place alone with the whole network, under each policy; then one pipeline over all."""
    chain = random_chain(FLEET_LAYERS, seed)
    platform = random_platform(places, min(places, 4), seed)
    table = simulated_table(chain, platform)
    alone = [[float(whole_s)] for whole_s in table.prefix_s[-1]]
    found = run_search("guided", chain, platform, SimulatedMeasure(table), seed=seed)
    pipeline = [list(table.times(found.best.configuration).seconds)]
    fleets = [(policy, alone, policy) for policy in ("turns", "shares", "free")]
    rows, frames = [], places * FLEET_FRAMES
    for name, machines, policy in [*fleets, ("one pipeline", pipeline, "free")]:
        run = simulate_fleet(machines, frames, policy, noise=FLEET_NOISE, seed=seed)
        paper = even_rate(machines) if policy == "turns" else sum(paper_rates(machines))
        rows.append(FleetRow(places, name, paper, run.throughput, run.latency_s, run.latency_p99_s))
    return rows
