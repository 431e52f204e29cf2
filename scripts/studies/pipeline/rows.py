"""What the benchmark reports: flat rows, one sort a measurement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CutRow:
    """One configuration of the exhaustive measurement, frames a second. ``stage_s``: busy seconds
    a frame of the slower stage, stretched by the throttle."""

    measurement: str
    model: str
    configuration: str
    throughput: float
    stage_s: float


@dataclass(frozen=True)
class StreamRow:
    """A network under a throttle. Throughputs are frames a second: medians of rounds in which all
    take turns. ``best``: the fastest contiguous cut of ``configurations`` measured ones;
    ``tuned``: what the search chose while frames flowed, ``trials`` configurations and
    ``tuning_frames`` frames after the start. Beside them stock TVM with all cores on every layer,
    as it is and with its threads bound, and all layers on the fast core alone."""

    measurement: str
    model: str
    layers: int
    configurations: int
    slow_core: int
    duty: float
    best: str
    best_throughput: float
    tuned: str
    tuned_throughput: float
    tuned_share: float
    trials: int
    tuning_frames: int
    layer_parallel_throughput: float
    layer_parallel_bound_throughput: float
    fast_core_throughput: float
    over_layer_parallel: float
    bits_equal: bool


@dataclass(frozen=True)
class RetuneRow:
    """The throttle moves to the other core while frames flow. Counted from the first frame that
    went in afterwards: results until the change was ``noticed``, the frame with which the
    configuration that stays took over (``retuned``), results until the search had ``finished``.
    ``stuck_throughput``: the old configuration under the moved throttle; ``best``: the fastest cut
    for it among those measured."""

    measurement: str
    model: str
    noticed_frames: int
    retuned_frames: int
    finished_frames: int
    trials: int
    before: str
    after: str
    before_throughput: float
    stuck_throughput: float
    after_throughput: float
    best: str
    best_throughput: float
    after_share: float
    lost: int
    bits_equal: bool


@dataclass(frozen=True)
class OrderRow:
    """A long stream during which the stages are exchanged ``exchanges`` times. ``lost``,
    ``repeated`` and ``out_of_order`` count frames by number, ``wrong`` results that differ in a
    bit from the serial run's."""

    measurement: str
    model: str
    frames: int
    exchanges: int
    lost: int
    repeated: int
    out_of_order: int
    wrong: int
    throughput: float
    latency_p50_s: float
    latency_p99_s: float


Row = CutRow | StreamRow | RetuneRow | OrderRow
