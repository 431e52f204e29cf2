"""What measured stages say about single layers: a Gaussian model of every layer on every place.

A measured stage is a sum of layer times, so that with a Gaussian prior the layer times given all
measured stages are Gaussian too, in closed form. The prior is a roofline without its figures: a
layer's time is a share of the work (its weight), a share of the bytes and a share of the number of
layers, each with a factor of the place that is not known, and a deviation of its own. Factors and
deviations are alike on places that the platform describes alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search.session import Trial
from tvm_npu.pipelines.times import TimeTable, layer_bytes, links_table
from tvm_npu.sim.lazy import cached_property

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
EXACT_NOISE = 0.002
"""Below this relative noise measurements are taken at their word."""
DECISIVE = 5.0
"""Logarithm of likelihoods: below it deviations of layers may be noise."""
MOST_MEASURED = 512
"""Stages that a fit takes into account: its time grows with the cube of their number."""
ROUNDS = 3
"""Fits, each with the places' scales of the one before."""


@dataclass(frozen=True)
class MeasuredStages:
    """What trials say of every stage that was measured: ``layers`` [stages, layers] of 0 and 1,
    ``places`` [stages], how often it was measured, ``runs`` [stages], what it took without
    transfers on average, ``seconds`` [stages], and the sum of squares of how far single
    measurements are from that, relative, ``scatter`` [stages]."""

    layers: np.ndarray
    places: np.ndarray
    runs: np.ndarray
    seconds: np.ndarray
    scatter: np.ndarray

    def some(self, chosen: np.ndarray) -> MeasuredStages:
        """Those of these numbers."""
        columns = (self.layers, self.places, self.runs, self.seconds, self.scatter)
        return MeasuredStages(*(column[chosen] for column in columns))

    def log_likelihood(self, noise: float) -> float:
        """Of what single measurements say beside their averages."""
        return float(
            -((self.runs - 1) * np.log(noise * self.seconds)).sum()
            - 0.5 * self.scatter.sum() / noise**2
        )


@dataclass(frozen=True)
class _LayerCovariance:
    """``covariance`` [layers, layers] between the layers of one place. The model has one for each
    deviation: it does not change from trial to trial."""

    covariance: np.ndarray

    @cached_property
    def root(self) -> np.ndarray:
        """A matrix whose product with its transpose is ``covariance``."""
        return _root(self.covariance)


@dataclass(frozen=True)
class _StageCovariance:
    """What a _LayerCovariance says of the ``stages`` of one fit; made once for all its noises."""

    between_layers: _LayerCovariance
    stages: MeasuredStages

    @cached_property
    def with_layers(self) -> np.ndarray:
        """[stages, layers]: of each stage with each layer."""
        return np.asarray(self.stages.layers @ self.between_layers.covariance)

    @cached_property
    def own(self) -> np.ndarray:
        """[stages, stages]: of the stages, as if all were on one place."""
        return np.asarray(self.with_layers @ self.stages.layers.T)


@dataclass(frozen=True)
class _Prior:
    """Layer times before any measurement: means [layers, places]; the covariance of (l, p) and
    (m, q) is that between the layers l and m times ``between_places[p, q]``."""

    mean_s: np.ndarray
    covered: _StageCovariance
    between_places: np.ndarray

    @cached_property
    def roots(self) -> tuple[np.ndarray, np.ndarray]:
        """Of both covariances."""
        return self.covered.between_layers.root, _root(self.between_places)

    def sums(self, layer_s: np.ndarray, stages: MeasuredStages) -> np.ndarray:
        """Seconds of ``stages`` under a table of layer times."""
        return np.einsum("nl,ln->n", stages.layers, layer_s[:, stages.places])

    def posterior(self, layer_s: np.ndarray, factor: Any, seconds: np.ndarray) -> np.ndarray:
        """``layer_s``, which has this covariance, corrected by ``seconds`` measured."""
        stages = self.covered.stages
        off = cho_solve(factor, seconds - self.sums(layer_s, stages))
        by_layer = self.covered.with_layers.T * off  # [layers, stages]
        return layer_s + by_layer @ self.between_places[stages.places]

    @cached_property
    def between_stages(self) -> np.ndarray:
        """[stages, stages]: covariance of the stages if measurements were exact."""
        places = self.covered.stages.places
        return np.asarray(self.covered.own * self.between_places[np.ix_(places, places)])

    def inner(self, noise: float) -> np.ndarray:
        """Covariance of the measured stages."""
        stages = self.covered.stages
        found = self.between_stages.copy()
        found.flat[:: len(found) + 1] += (noise * stages.seconds) ** 2 / stages.runs
        return found


class LayerFit(Protocol):
    """What a layer model makes of trials."""

    @property
    def mean_s(self) -> np.ndarray:
        """The likeliest layer times [layers, places]."""

    @property
    def noise(self) -> float:
        """Relative deviation of one measured stage time, as far as the model knows."""

    @property
    def is_decided(self) -> bool:
        """Whether the trials tell noise from deviations of layers."""

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Other layer times [layers, places] that agree with what was measured."""


@dataclass(frozen=True)
class Fit:
    """Layer times given what was measured: ``mean_s`` [layers, places], and samples. ``noise`` of
    one measured stage and ``deviation`` of one layer from the roofline: relative, the likeliest."""

    noise: float
    deviation: float
    is_decided: bool
    _prior: _Prior
    _stages: MeasuredStages
    _factor: Any

    @cached_property
    def mean_s(self) -> np.ndarray:
        """Computed on demand: of most fits only the likelihood is asked for."""
        prior = self._prior
        mean = prior.posterior(prior.mean_s, self._factor, self._stages.seconds)
        return np.maximum(mean, LEAST_SHARE * prior.mean_s)

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Layer times that agree with what was measured: a sample of the prior, corrected by how
        far its stages are from the measured ones (Matheron's rule)."""
        prior = self._prior
        of_layers, of_places = prior.roots
        drawn = prior.mean_s + (
            of_layers @ random.standard_normal(prior.mean_s.shape) @ of_places.T
        )
        stages = self._stages
        errors = self.noise * stages.seconds * random.standard_normal(len(stages.seconds))
        errors /= np.sqrt(stages.runs)
        agreed = prior.posterior(drawn, self._factor, stages.seconds - errors)
        return np.maximum(agreed, LEAST_SHARE * self.mean_s)


class LayerTimeModel:
    """Layer times of ``chain`` on ``platform`` given trials."""

    def __init__(self, chain: LayerChain, platform: Platform) -> None:
        layers, places = len(chain), len(platform)
        self._links = links_table(chain, platform, np.zeros((layers, places)))
        work = _shares(np.array([float(layer.macs) or layer.weight for layer in chain.layers]))
        moved = _shares(np.array(layer_bytes(chain), dtype=np.float64))
        even = np.full(layers, 1.0 / layers)
        features = np.stack([work, moved, even], axis=1)
        self._prior = features @ np.array(SHARES)
        speeds = np.array([place.speed for place in platform.places])
        self._hint = speeds.max() / speeds
        ignored = {"name", "core_ids"}
        told = [place.model_dump(exclude=ignored) for place in platform.places]
        alike = [[ALIKE if one == other else DIFFERENT for other in told] for one in told]
        self._alike = np.array(alike)
        np.fill_diagonal(self._alike, 1.0)
        distance = np.subtract.outer(np.arange(layers), np.arange(layers))
        smooth = np.exp(-0.5 * (distance / SMOOTH_LAYERS) ** 2)
        own = np.outer(self._prior, self._prior) * (0.5 * smooth + 0.5 * np.eye(layers))
        roofline = (features * np.array(FACTORS) ** 2) @ features.T
        self._between_layers = [_LayerCovariance(roofline + d**2 * own) for d in DEVIATIONS]

    def table(self, layer_s: np.ndarray) -> TimeTable:
        """With the platform's links."""
        return self._links.with_layers(layer_s)

    def prior_s(self) -> np.ndarray:
        """Before any trial: shares of an unknown total, places by their hints."""
        return np.outer(self._prior, self._hint)

    def fit(self, trials: Sequence[Trial]) -> LayerFit:
        """The likeliest deviation and noise, and the layer times under them; at least one trial."""
        stages = self.measured(trials)
        covered = self._covered(stages)
        fits = self._all_fits(covered, self.first_scale(stages))
        for _ in range(ROUNDS - 1):
            _, likeliest = max(fits, key=lambda scored: scored[0])
            fits = self._all_fits(covered, likeliest.mean_s.sum(axis=0))
        best, fit = max(fits, key=lambda scored: scored[0])
        is_exact = fit.noise <= EXACT_NOISE
        rival = max(score for score, one in fits if (one.noise <= EXACT_NOISE) != is_exact)
        return replace(fit, is_decided=best - rival >= DECISIVE)

    def _covered(self, stages: MeasuredStages) -> list[_StageCovariance]:
        """For each of `DEVIATIONS`."""
        return [_StageCovariance(between, stages) for between in self._between_layers]

    def _all_fits(
        self, covered: Sequence[_StageCovariance], scale: np.ndarray
    ) -> list[tuple[float, Fit]]:
        """Under all deviations and noises, the places' times for all layers being ``scale``."""
        return [
            scored
            for deviation, of_stages in zip(DEVIATIONS, covered, strict=True)
            for scored in self._fits(of_stages, scale, deviation, NOISES)
        ]

    def _fits(
        self,
        covered: _StageCovariance,
        scale: np.ndarray,
        deviation: float,
        noises: Sequence[float],
    ) -> Iterator[tuple[float, Fit]]:
        """For each of ``noises`` the logarithm of the likelihood, and the fit."""
        stages = covered.stages
        prior = _Prior(np.outer(self._prior, scale), covered, self._alike * np.outer(scale, scale))
        off = stages.seconds - (stages.layers @ self._prior) * scale[stages.places]
        for noise in noises:
            factor = cho_factor(prior.inner(noise), lower=True)
            score = -0.5 * off @ cho_solve(factor, off) - np.log(np.diag(factor[0])).sum()
            score += stages.log_likelihood(noise)
            yield float(score), Fit(noise, deviation, True, prior, stages, factor)

    def measured(self, trials: Sequence[Trial]) -> MeasuredStages:
        """Transfers are taken off by the platform's links, at most nine tenths of what was
        measured. Of more than `MOST_MEASURED` stages those measured last."""
        found: dict[tuple[int, int, int], list[float]] = {}
        latest: dict[tuple[int, int, int], int] = {}
        for number, trial in enumerate(trials):
            transfers = self._links.times(trial.configuration).seconds
            for stage, (first, end) in enumerate(trial.configuration.ranges()):
                measured = trial.times.seconds[stage]
                own = max(measured - transfers[stage], 0.1 * measured)
                key = (first, end, trial.configuration.places[stage])
                found.setdefault(key, []).append(own)
                latest[key] = number
        if len(found) > MOST_MEASURED:
            kept = set(sorted(found, key=lambda key: -latest[key])[:MOST_MEASURED])
            found = {key: seconds for key, seconds in found.items() if key in kept}
        layers = np.zeros((len(found), len(self._prior)))
        for inside, (first, end, _) in zip(layers, found, strict=True):
            inside[first:end] = 1.0
        means = [float(np.mean(seconds)) for seconds in found.values()]
        scatter = [
            float(np.sum((np.array(seconds) / mean - 1.0) ** 2))
            for seconds, mean in zip(found.values(), means, strict=True)
        ]
        return MeasuredStages(
            layers,
            np.array([place for _, _, place in found]),
            np.array([len(seconds) for seconds in found.values()]),
            np.array(means),
            np.array(scatter),
        )

    def first_scale(self, stages: MeasuredStages) -> np.ndarray:
        """Each place's time for all layers: from its own stages, others' by the hints."""
        share = stages.layers @ self._prior
        scale = np.zeros(len(self._hint))
        for place in range(len(scale)):
            own = stages.places == place
            if own.any():
                runs = stages.runs[own]
                scale[place] = (runs @ stages.seconds[own]) / (runs @ share[own])
        measured = scale > 0
        common = float(np.exp(np.mean(np.log(scale[measured] / self._hint[measured]))))
        return np.where(measured, scale, common * self._hint)


def _shares(values: np.ndarray) -> np.ndarray:
    total = values.sum()
    return values / total if total > 0 else np.full(len(values), 1.0 / len(values))


def _root(covariance: np.ndarray) -> np.ndarray:
    """A matrix whose product with its transpose is ``covariance``, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.clip(values, 0.0, None))
