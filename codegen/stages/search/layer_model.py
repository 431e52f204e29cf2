"""What measured stages say about single layers: a Gaussian model of every layer on every place.

A measured stage is a sum of layer times, so that with a Gaussian prior the layer times given all
measured stages are Gaussian too, in closed form. The prior is a roofline without its figures: a
layer's time is a share of the work (its weight), a share of the bytes and a share of the number of
layers, each with a factor of the place that is not known, and a deviation of its own. Factors and
deviations are alike on places that the platform describes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tvm_npu.codegen.stages.chain import LayerChain
from tvm_npu.codegen.stages.platform import Platform
from tvm_npu.codegen.stages.search.session import Trial
from tvm_npu.codegen.stages.times import TimeTable, layer_bytes, links_table

ALIKE, DIFFERENT = 0.95, 0.6
"""Correlation between places of equal description, and between others."""
FACTORS = (0.7, 0.4, 0.1)
"""Prior deviation of a place's factor for work, bytes and number of layers."""
SHARES = (0.85, 0.12, 0.03)
"""Prior mean: how a place's time for all layers is made of work, bytes and number of layers."""
DEVIATIONS = (0.03, 0.1, 0.3)
"""Tried deviations of a layer from its roofline, relative; the likeliest is used."""
NOISES = (0.001, 0.01, 0.03, 0.06)
"""Tried deviations of a measurement, relative; the likeliest is used."""
SMOOTH_LAYERS = 2.0
"""Half of a layer's deviation is shared with layers within this distance."""
LEAST_SHARE = 0.1
"""No layer is believed to take less than this share of its prior time."""
ROUNDS = 3
"""Fits, each with the places' scales of the one before."""


@dataclass(frozen=True)
class Fit:
    """Layer times [layers, places]: ``mean_s``, and what samples are made of (``covariance``, of
    the flattened table). ``noise``: relative, of one measured stage."""

    mean_s: np.ndarray
    covariance: np.ndarray
    noise: float
    deviation: float

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Layer times that agree with what was measured, [layers, places]."""
        size = self.covariance.shape[0]
        scale = np.sqrt(np.clip(np.diag(self.covariance), 0.0, None))
        tiny = 1e-9 * float(np.max(scale)) ** 2
        root = np.linalg.cholesky(self.covariance + tiny * np.eye(size))
        drawn = self.mean_s + (root @ random.standard_normal(size)).reshape(self.mean_s.shape)
        return np.maximum(drawn, LEAST_SHARE * self.mean_s)


class LayerTimeModel:
    """Layer times of ``chain`` on ``platform`` given trials."""

    def __init__(self, chain: LayerChain, platform: Platform) -> None:
        layers, places = len(chain), len(platform)
        self._links = links_table(chain, platform, np.zeros((layers, places)))
        work = _shares(np.array(chain.weights))
        moved = _shares(np.array(layer_bytes(chain), dtype=np.float64))
        even = np.full(layers, 1.0 / layers)
        self._features = np.stack([work, moved, even], axis=1)
        self._prior = self._features @ np.array(SHARES)
        speeds = np.array([place.speed for place in platform.places])
        self._hint = speeds.max() / speeds
        ignored = {"name", "core_ids"}
        told = [place.model_dump(exclude=ignored) for place in platform.places]
        self._alike = np.array(
            [
                [
                    1.0 if p == q else ALIKE if told[p] == told[q] else DIFFERENT
                    for q in range(places)
                ]
                for p in range(places)
            ]
        )
        distance = np.subtract.outer(np.arange(layers), np.arange(layers))
        smooth = np.exp(-0.5 * (distance / SMOOTH_LAYERS) ** 2)
        self._own = np.outer(self._prior, self._prior) * (0.5 * smooth + 0.5 * np.eye(layers))
        self._roofline = (self._features * np.array(FACTORS) ** 2) @ self._features.T

    def table(self, layer_s: np.ndarray) -> TimeTable:
        """With the platform's links."""
        return self._links.with_layers(layer_s)

    def prior_s(self) -> np.ndarray:
        """Before any trial: shares of an unknown total, places by their hints."""
        return np.outer(self._prior, self._hint)

    def fit(self, trials: Sequence[Trial]) -> Fit:
        """Raises nothing: any trials of valid configurations can be fitted."""
        rows, values = self._observations(trials)
        scale = self._first_scale(rows, values)
        best: tuple[float, Fit] | None = None
        for _ in range(ROUNDS):
            best = None
            prior = np.outer(self._prior, scale)
            for deviation in DEVIATIONS:
                shared = self._roofline + deviation**2 * self._own
                covariance = np.einsum(
                    "lm,pq->lpmq", shared, self._alike * np.outer(scale, scale)
                ).reshape(prior.size, prior.size)
                for noise in NOISES:
                    score, fit = _posterior(prior, covariance, rows, values, noise, deviation)
                    if best is None or score > best[0]:
                        best = score, fit
            assert best is not None
            scale = best[1].mean_s.sum(axis=0)
        assert best is not None
        return best[1]

    def _observations(self, trials: Sequence[Trial]) -> tuple[np.ndarray, np.ndarray]:
        """Which layer times each measured stage is the sum of, and that sum: transfers are taken
        off by the platform's links, at most nine tenths of what was measured."""
        shape = self._features.shape[0], len(self._hint)
        rows, values = [], []
        for trial in trials:
            transfers = self._links.times(trial.configuration).seconds
            stages = zip(
                trial.configuration.ranges(),
                trial.configuration.places,
                trial.times.seconds,
                transfers,
                strict=True,
            )
            for (first, end), place, seconds, transfer in stages:
                row = np.zeros(shape)
                row[first:end, place] = 1.0
                rows.append(row.ravel())
                values.append(max(seconds - transfer, 0.1 * seconds))
        return np.array(rows), np.array(values)

    def _first_scale(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Each place's time for all layers: from its own stages, others' by the hints."""
        places = len(self._hint)
        shares = rows.reshape(len(rows), -1, places) * self._prior[:, None]
        share = shares.sum(axis=1)  # [stages, places]
        at = share.argmax(axis=1)
        scale = np.zeros(places)
        for place in range(places):
            own = at == place
            if own.any():
                scale[place] = values[own].sum() / share[own, place].sum()
        measured = scale > 0
        common = float(np.exp(np.mean(np.log(scale[measured] / self._hint[measured]))))
        return np.where(measured, scale, common * self._hint)


def _shares(values: np.ndarray) -> np.ndarray:
    total = values.sum()
    return values / total if total > 0 else np.full(len(values), 1.0 / len(values))


def _posterior(
    prior: np.ndarray,
    covariance: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    noise: float,
    deviation: float,
) -> tuple[float, Fit]:
    """Logarithm of the likelihood, and the layer times given ``values`` = ``rows`` @ times."""
    seen = covariance @ rows.T
    inner = rows @ seen + np.diag((noise * values) ** 2)
    factor = cho_factor(inner, lower=True)
    off = values - rows @ prior.ravel()
    mean = prior.ravel() + seen @ cho_solve(factor, off)
    score = -0.5 * off @ cho_solve(factor, off) - np.log(np.diag(factor[0])).sum()
    left = covariance - seen @ cho_solve(factor, seen.T)
    mean_s = np.maximum(mean.reshape(prior.shape), LEAST_SHARE * prior)
    return float(score), Fit(mean_s, left, noise, deviation)
