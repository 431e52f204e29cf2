"""Layer times by gradient-boosted trees (XGBoost): the learned alternative to `layer_model`.

Only sums of layers are measured. Each fit therefore goes to and fro: layer times are scaled so that
measured stages come out, trees learn the logarithm of what that makes of the prior from a layer's
and a place's features, and their prediction, for layers and places that were not measured
together, too, is scaled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.tune.model import Trees
from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search.layer_model import ROUNDS, LayerTimeModel, MeasuredStages
from tvm_npu.pipelines.search.session import Trial
from tvm_npu.pipelines.times import layer_bytes

TREES = 60
SCALINGS = 20
"""Rounds of proportional scaling; stages of different trials overlap."""


@dataclass(frozen=True)
class BoostedFit:
    """Layer times [layers, places]; samples are fits to measured stages drawn with repetition."""

    mean_s: np.ndarray
    model: BoostedLayerModel
    stages: MeasuredStages
    noise: float = 0.0
    is_decided: bool = True

    def sample(self, random: np.random.Generator) -> np.ndarray:
        count = len(self.stages.seconds)
        drawn = np.unique(random.integers(0, count, count))
        learned = self.model.learned(self.stages.some(drawn), int(random.integers(1 << 30)))
        return _scaled(learned, self.stages)


class BoostedLayerModel(LayerTimeModel):
    """Raises MissingPackageError without XGBoost."""

    def __init__(self, chain: LayerChain, platform: Platform) -> None:
        super().__init__(chain, platform)
        Trees(rounds=TREES)  # says at once when the package is missing
        columns = [
            np.log1p([float(layer.macs) or layer.weight for layer in chain.layers]),
            np.log1p([float(layer.parameter_bytes) for layer in chain.layers]),
            np.log1p([float(layer.activation_bytes) for layer in chain.layers]),
            np.log1p(np.array(layer_bytes(chain), dtype=np.float64)),
            np.arange(len(chain), dtype=np.float64),
        ]
        layers, places = len(chain), len(platform)
        by_layer = np.repeat(np.stack(columns, axis=1), places, axis=0)
        speed = np.log([place.speed for place in platform.places])
        by_place = np.tile(np.stack([np.arange(places), speed], axis=1), (layers, 1))
        self._table = np.concatenate([by_layer, by_place], axis=1).astype(np.float32)

    def fit(self, trials: Sequence[Trial]) -> BoostedFit:
        stages = self.measured(trials)
        return BoostedFit(_scaled(self.learned(stages, 0), stages), self, stages)

    def learned(self, stages: MeasuredStages, seed: int) -> np.ndarray:
        """What the trees make of ``stages``, [layers, places] seconds."""
        base = np.outer(self._prior, self.first_scale(stages))
        seen = np.zeros(base.shape, bool)
        for inside, place in zip(stages.layers, stages.places, strict=True):
            seen[inside > 0, place] = True
        times = base
        for _ in range(ROUNDS):
            factors = np.log(_scaled(times, stages) / base)
            trees = Trees(seed, rounds=TREES)
            trees.fit(self._table[seen.ravel()], factors[seen])
            times = base * np.exp(trees.predict(self._table).astype(np.float64)).reshape(base.shape)
        return times


def _scaled(layer_s: np.ndarray, stages: MeasuredStages) -> np.ndarray:
    """``layer_s`` scaled stage by stage until the measured stages come out, or nearly so."""
    found = layer_s.copy()
    for _ in range(SCALINGS):
        for inside, place, seconds in zip(
            stages.layers > 0, stages.places, stages.seconds, strict=True
        ):
            found[inside, place] *= seconds / found[inside, place].sum()
    return found
