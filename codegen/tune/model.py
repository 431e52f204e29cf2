"""The cost model: gradient-boosted trees (XGBoost) from a plan's features to log2 of its cycles.

As stock TVM's XGBTuner has it, it is trained anew on all trials so far before every batch, and only
its order of plans matters; unlike there it fits the logarithm of time by least squares, which
also says how far apart plans are (and is what annealing's temperature is measured in).
Deterministic: one thread, a fixed seed, trees of exact splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.tune.errors import MissingPackageError
from tvm_npu.codegen.tune.space import Features

ROUNDS = 120
PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 5,
    "eta": 0.12,
    "min_child_weight": 1,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "lambda": 1.0,
    "tree_method": "exact",
    "nthread": 1,
    "verbosity": 0,
}
FAILED_FACTOR = 2.0
"""A plan that could not be measured counts as this many times slower than the slowest."""


def load_xgboost() -> ModuleType:
    """Raises MissingPackageError without the package."""
    try:
        import xgboost
    except ImportError as error:
        raise MissingPackageError(
            "the learned cost model needs xgboost: pip install '.[learn]' in the checkout, or "
            "pip install xgboost-cpu"
        ) from error
    return xgboost


class Trees:
    """Regression on rows of features."""

    def __init__(self, seed: int = 0, rounds: int = ROUNDS, **parameters: Any) -> None:
        self._parameters = {**PARAMETERS, "seed": seed % (1 << 31), **parameters}
        self._rounds = rounds
        self._xgboost = load_xgboost()
        self._booster: Any = None

    def fit(self, features: Features, values: NDArray[Any]) -> None:
        data = self._xgboost.DMatrix(features, label=values, nthread=1)
        self._booster = self._xgboost.train(self._parameters, data, num_boost_round=self._rounds)

    def predict(self, features: Features) -> NDArray[np.float32]:
        if not len(features):
            return np.zeros(0, np.float32)
        return np.asarray(self._booster.inplace_predict(features), np.float32)


class CostModel:
    """Predicts log2 cycles of plans of one layer from trials of it."""

    def __init__(self, seed: int) -> None:
        self._trees = Trees(seed)

    def fit(self, features: Features, cycles: Sequence[float | None]) -> None:
        """At least one of ``cycles`` is a number."""
        self._trees.fit(features, log_cycles(cycles))

    def predict(self, features: Features) -> NDArray[np.float32]:
        return self._trees.predict(features)


def log_cycles(cycles: Sequence[float | None]) -> NDArray[np.float64]:
    """log2, with plans that could not be measured behind the slowest."""
    slowest = max((one for one in cycles if one is not None), default=1.0)
    return np.log2([FAILED_FACTOR * slowest if one is None else one for one in cycles])
