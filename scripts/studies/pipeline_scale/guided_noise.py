"""The guided search under noise, on chains and platforms at random."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from studies.pipeline_scale.cases import random_chain, random_platform
from tvm_npu.pipelines.search import exact_configuration, run_search
from tvm_npu.pipelines.times import SimulatedMeasure, simulated_table

NOISE = 0.05
LIMIT = 0.01
FEWEST_PLACES, MOST_PLACES = 2, 8
FEWEST_LAYERS, MOST_LAYERS = 10, 60


@dataclass(frozen=True)
class NoisyRun:
    """``share``: of the proven optimum's throughput, by the true times."""

    seed: int
    places: int
    kinds: int
    layers: int
    trials: int
    share: float
    cpu_s: float


def noisy_run(seed: int) -> NoisyRun:
    """Number of places, kinds and layers by ``seed``, too."""
    random = np.random.default_rng(seed)
    places = int(random.integers(FEWEST_PLACES, MOST_PLACES + 1))
    kinds = int(random.integers(1, min(places, 4) + 1))
    layers = int(random.integers(FEWEST_LAYERS, MOST_LAYERS + 1))
    chain, platform = random_chain(layers, seed), random_platform(places, kinds, seed)
    table = simulated_table(chain, platform)
    begin = time.process_time()
    result = run_search("guided", chain, platform, SimulatedMeasure(table, NOISE, seed), seed=seed)
    spent = time.process_time() - begin
    true_s = table.times(result.best.configuration).bottleneck_s
    share = exact_configuration(table, platform)[1] / true_s
    return NoisyRun(seed, places, kinds, layers, len(result.trials), share, spent)
