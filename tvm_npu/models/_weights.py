"""Seeded random weights that keep activations of a ReLU network in a sane range.

Every builder follows an estimate of each tensor's mean and variance (`Moments`). Weights drawn
with variance `gain / fan_in` turn power P (the mean of squares) into `gain * P`; a ReLU halves
it. So gain 2 (He et al. 2015) keeps the power of a convolution + ReLU pair, and batch
normalization statistics drawn around the estimate really normalize, also behind residual sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

HE_GAIN = 2.0
BIAS_SCALE = 0.05
"""Standard deviation of biases in units of the output's standard deviation."""


MAX_POOL_SHIFT = 1.0
MAX_POOL_SHRINK = 0.6
"""Maximum of a small window of correlated values: mean up by one deviation, variance x 0.6."""


@dataclass(frozen=True)
class Moments:
    """Estimated mean and variance of a tensor's elements, taken as normally distributed."""

    mean: float = 0.0
    variance: float = 1.0

    @property
    def power(self) -> float:
        """The mean of squares."""
        return self.mean**2 + self.variance

    def weighted(self, gain: float) -> Moments:
        """Behind a convolution or dense layer with zero-mean weights of `gain / fan_in`."""
        return Moments(0.0, gain * self.power)

    def relu(self) -> Moments:
        """Exact for a normal distribution: E[max(x, 0)] and E[max(x, 0)^2]."""
        deviation = math.sqrt(self.variance)
        z = self.mean / deviation
        density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        above = 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
        mean = self.mean * above + deviation * density
        power = self.power * above + self.mean * deviation * density
        return Moments(mean, max(power - mean**2, 1e-6 * self.power))

    def leaky_relu(self, slope: float) -> Moments:
        """Exact for a normal distribution: slope * x plus (1 - slope) * max(x, 0)."""
        above = self.relu()
        mean = slope * self.mean + (1.0 - slope) * above.mean
        power = slope**2 * self.power + (1.0 - slope**2) * above.power
        return Moments(mean, max(power - mean**2, 1e-6 * self.power))

    def max_pool(self) -> Moments:
        deviation = math.sqrt(self.variance)
        return Moments(self.mean + MAX_POOL_SHIFT * deviation, MAX_POOL_SHRINK * self.variance)

    def larger(self) -> Moments:
        """The larger one of two independent values: exact for a normal distribution."""
        shift = math.sqrt(self.variance / math.pi)
        return Moments(self.mean + shift, self.variance * (1.0 - 1.0 / math.pi))

    def through(self, function: Callable[[Values], Values]) -> Moments:
        """Behind any function of one value: Gauss-Hermite quadrature over a normal distribution."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(61)
        values = function(self.mean + math.sqrt(self.variance) * nodes)
        weights = weights / weights.sum()
        mean, power = float(weights @ values), float(weights @ values**2)
        return Moments(mean, max(power - mean**2, 1e-6 * power))

    def times(self, other: Moments) -> Moments:
        """Product of two independent tensors."""
        mean = self.mean * other.mean
        return Moments(mean, self.power * other.power - mean**2)

    def plus(self, other: Moments) -> Moments:
        """Sum of two uncorrelated tensors."""
        return Moments(self.mean + other.mean, self.variance + other.variance)


def mixed(parts: Sequence[tuple[Moments, int]]) -> Moments:
    """Concatenation of tensors with the given element counts (or channels)."""
    total = sum(count for _, count in parts)
    mean = sum(moments.mean * count for moments, count in parts) / total
    power = sum(moments.power * count for moments, count in parts) / total
    return Moments(mean, power - mean**2)


def generator(seed: int) -> np.random.Generator:
    """The one random stream a model is drawn from."""
    return np.random.Generator(np.random.PCG64(seed))


def he_weights(
    rng: np.random.Generator, shape: Sequence[int], fan_in: int, gain: float = HE_GAIN
) -> Array:
    """Normal weights of `shape` with variance `gain / fan_in`."""
    values: Array = rng.standard_normal(tuple(shape), dtype=np.float32)
    values *= np.float32(math.sqrt(gain / fan_in))
    return values


def small_biases(rng: np.random.Generator, count: int, power: float) -> Array:
    """`count` small non-zero biases for an output whose power is `power`."""
    values: Array = rng.standard_normal(count, dtype=np.float32)
    values += np.sign(values) * np.float32(0.1)
    values *= np.float32(BIAS_SCALE * math.sqrt(power))
    return values


@dataclass(frozen=True)
class BatchNormStatistics:
    """Parameters of one inference batch normalization; all arrays have shape [channels]."""

    scale: Array
    bias: Array
    mean: Array
    variance: Array


def batch_norm_statistics(
    rng: np.random.Generator, channels: int, moments: Moments, *, scaled: bool = True
) -> BatchNormStatistics:
    """Statistics that bring `moments` to about (0, 1); the variance is always positive.

    `scaled=False` leaves the scale at one, as TF-slim and Keras do for InceptionV3.
    """
    if scaled:
        scale = rng.uniform(0.8, 1.2, channels).astype(np.float32)
    else:
        scale = np.ones(channels, dtype=np.float32)
    deviation = math.sqrt(moments.variance)
    noise = rng.standard_normal(channels)
    return BatchNormStatistics(
        scale=scale,
        bias=(rng.standard_normal(channels) * 0.1).astype(np.float32),
        mean=(moments.mean + noise * 0.1 * deviation).astype(np.float32),
        variance=(rng.uniform(0.75, 1.35, channels) * moments.variance).astype(np.float32),
    )
