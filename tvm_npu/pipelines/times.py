"""Times of stages: measured ones, and those of simulated places by a roofline.

A layer on a simulated place takes the longer of its MACs at the place's rate (one core's rate times
Amdahl's speed-up of the place's cores) and its bytes (parameters, inputs, outputs) at the place's
bandwidth, and what it costs to start a layer. A stage takes its layers' sum and the transfer of
what crosses the cut before it. This stands for the gem5 layer times (Shisha, section 6) and the
Jetson TX2 (Pipe-Search, section 5.2), neither of which is published layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import PlatformError, SearchError
from tvm_npu.pipelines.platform import Platform, SimulatedPlace
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.numbers import check_whole, is_finite
from tvm_npu.sim.texts import shown

MOST_NOISE = 1.0
"""Of simulated times: a standard deviation as large as the time itself."""


@dataclass(frozen=True)
class StageTimes:
    """Seconds that each stage takes for a frame, in the order of the stages."""

    seconds: tuple[float, ...]

    @property
    def bottleneck_s(self) -> float:
        """Time of the slowest stage: a full pipeline delivers a frame in that time."""
        return max(self.seconds)

    @property
    def slowest(self) -> int:
        """Index of the slowest stage, the first of equals."""
        return self.seconds.index(self.bottleneck_s)

    @property
    def throughput(self) -> float:
        """Frames a second."""
        return 1.0 / self.bottleneck_s


@dataclass(frozen=True)
class TimeTable:
    """What every layer takes on every place and every tensor between two places.

    ``layer_s`` [layers, places] seconds; ``crossing_bytes`` [layers]: bytes over the cut behind a
    layer; ``latency_s`` and ``byte_s`` [places, places]: seconds a transfer and a byte.
    """

    layer_s: np.ndarray
    crossing_bytes: np.ndarray
    latency_s: np.ndarray
    byte_s: np.ndarray

    @property
    def layer_count(self) -> int:
        return int(self.layer_s.shape[0])

    @property
    def place_count(self) -> int:
        return int(self.layer_s.shape[1])

    @cached_property
    def prefix_s(self) -> np.ndarray:
        """[layers + 1, places]: seconds of all layers before one."""
        sums = np.zeros((self.layer_count + 1, self.place_count))
        np.cumsum(self.layer_s, axis=0, out=sums[1:])
        return sums

    @cached_property
    def one_link(self) -> bool:
        """True when every pair of places has the same link."""
        pairs = ~np.eye(self.place_count, dtype=bool)
        return all(len(np.unique(of[pairs])) <= 1 for of in (self.latency_s, self.byte_s))

    def times(self, configuration: Configuration) -> StageTimes:
        """Stage times of a configuration that is valid for this table."""
        prefix = self.prefix_s
        seconds = []
        before = -1
        for (first, end), place in zip(configuration.ranges(), configuration.places, strict=True):
            taken = float(prefix[end, place] - prefix[first, place])
            if before >= 0:
                taken += float(
                    self.latency_s[before, place]
                    + self.crossing_bytes[first - 1] * self.byte_s[before, place]
                )
            seconds.append(taken)
            before = place
        return StageTimes(tuple(seconds))

    def with_layers(self, layer_s: np.ndarray) -> TimeTable:
        """The same links, other times of layers."""
        return replace(self, layer_s=layer_s)


def links_table(chain: LayerChain, platform: Platform, layer_s: np.ndarray) -> TimeTable:
    """``layer_s`` [layers, places] with the platform's links."""
    places = range(len(platform))
    links = [[platform.link_between(one, other) for other in places] for one in places]
    return TimeTable(
        np.asarray(layer_s, dtype=np.float64),
        np.array([layer.activation_bytes for layer in chain.layers], dtype=np.float64),
        np.array([[link.latency_s for link in row] for row in links]),
        np.array([[1.0 / link.bytes_per_s for link in row] for row in links]),
    )


def simulated_table(chain: LayerChain, platform: Platform) -> TimeTable:
    """Times of the chain on simulated places. Raises PlatformError for real ones."""
    columns = []
    for place in platform.places:
        if not isinstance(place, SimulatedPlace):
            raise PlatformError(
                f"platform {platform.name}: place {place.name} is {place.kind}: its times are "
                "measured, not simulated"
            )
        columns.append(_place_times(chain, place))
    return links_table(chain, platform, np.array(columns).T)


def simulated_times(
    chain: LayerChain, platform: Platform, configuration: Configuration
) -> StageTimes:
    """Stage times on simulated places. Raises PlatformError and ConfigurationError."""
    platform.check(configuration, len(chain))
    return simulated_table(chain, platform).times(configuration)


class SimulatedMeasure:
    """Measures configurations on a time table: what a running pipeline would show. ``noise``: the
    standard deviation of each measured stage time, relative. Raises SearchError."""

    def __init__(self, table: TimeTable, noise: float = 0.0, seed: int = 0) -> None:
        if not (is_finite(noise) and 0.0 <= noise <= MOST_NOISE):
            raise SearchError(f"noise = {shown(noise)}; from 0 to {MOST_NOISE:g}")
        check_whole(seed, "seed", SearchError)
        self.table = table
        self._noise = noise
        self._random = np.random.default_rng(seed)

    def __call__(self, configuration: Configuration) -> StageTimes:
        times = self.table.times(configuration)
        if not self._noise:
            return times
        factors = np.exp(self._random.normal(0.0, self._noise, len(times.seconds)))
        return StageTimes(tuple(float(s * f) for s, f in zip(times.seconds, factors, strict=True)))


def layer_bytes(chain: LayerChain) -> tuple[int, ...]:
    """Bytes that each layer moves: its parameters, what enters it and what leaves it."""
    entering: Sequence[int] = (
        chain.input_bytes,
        *(layer.activation_bytes for layer in chain.layers[:-1]),
    )
    return tuple(
        layer.parameter_bytes + came + layer.activation_bytes
        for layer, came in zip(chain.layers, entering, strict=True)
    )


def _place_times(chain: LayerChain, place: SimulatedPlace) -> list[float]:
    rate = place.macs_per_s * place.thread_speedup
    # A layer without MACs (a pool) does one operation an input: its weight.
    work = [layer.macs or layer.weight for layer in chain.layers]
    moved = layer_bytes(chain)
    return [
        place.layer_s + max(operations / rate, size / place.bytes_per_s)
        for operations, size in zip(work, moved, strict=True)
    ]
