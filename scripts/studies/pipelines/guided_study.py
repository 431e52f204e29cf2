"""The guided search from cold on every case, under noise, and off the roofline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studies.pipelines.cases import Case
from studies.pipelines.rows import searched, share_of_best
from tvm_npu.pipelines.search import run_search
from tvm_npu.pipelines.times import SimulatedMeasure

NOISE = 0.05
ROUGH = 0.25
LIMIT = 0.01


@dataclass(frozen=True)
class Trust:
    """Runs on one case: ``shares`` of the optimum's throughput by true times, and ``trials``."""

    model: str
    platform: str
    condition: str
    shares: tuple[float, ...]
    trials: tuple[int, ...]

    @property
    def within(self) -> float:
        """Share of the runs within LIMIT of the optimum."""
        return sum(share >= 1 - LIMIT for share in self.shares) / len(self.shares)


def exactly(case: Case) -> Trust:
    """Measurements without noise."""
    return _trust(case, "exact measurements", 1, 0.0)


def noisy(case: Case, runs: int) -> Trust:
    """Every measured stage time off by 5 % (standard deviation)."""
    return _trust(case, "5 % noise", runs, NOISE)


def rough(case: Case, runs: int) -> Trust:
    """Layers off the roofline that the search supposes: each by 25 % (standard deviation) on each
    sort of place, in ``runs`` ways."""
    shares, trials = [], []
    places = case.platform.places
    kinds = [place.model_dump(exclude={"name", "core_ids"}) for place in places]
    sorts = [kinds.index(kind) for kind in kinds]
    for seed in range(runs):
        random = np.random.default_rng(seed)
        factors = np.exp(random.normal(0.0, ROUGH, case.table.layer_s.shape))[:, sorts]
        other = RoughCase(case, case.table.layer_s * factors)
        result = run_search(
            "guided", case.chain, case.platform, SimulatedMeasure(other.table), seed=seed
        )
        shares.append(share_of_best(other, result))
        trials.append(len(result.trials))
    return Trust(
        case.model, case.platform.name, "layers 25 % off the roofline", tuple(shares), tuple(trials)
    )


class RoughCase(Case):
    """A case with other times of layers."""

    def __init__(self, case: Case, layer_s: np.ndarray) -> None:
        super().__init__(case.chain, case.platform)
        self.__dict__["table"] = case.table.with_layers(layer_s)


def _trust(case: Case, condition: str, runs: int, noise: float) -> Trust:
    results = [searched(case, "guided", seed, noise) for seed in range(runs)]
    return Trust(
        case.model,
        case.platform.name,
        condition,
        tuple(share_of_best(case, result) for result in results),
        tuple(len(result.trials) for result in results),
    )
