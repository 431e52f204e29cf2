"""Partition and placement when times are known: dynamic programming, enumeration as its proof."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search import bottleneck
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.pipelines.search.space import twins
from tvm_npu.pipelines.times import TimeTable, simulated_table


@dataclass(frozen=True)
class Enumeration:
    """The whole space on a time table. ``bottlenecks_s`` and ``stages_s``: sums over all
    configurations of the slowest stage's and of all stages' times."""

    best: Configuration
    bottleneck_s: float
    space: int
    bottlenecks_s: float
    stages_s: float

    def seconds(self, frames: int) -> float:
        """How long it takes to run every configuration for ``frames`` frames."""
        return self.stages_s + (frames - 1) * self.bottlenecks_s


def exact_configuration(table: TimeTable, platform: Platform) -> tuple[Configuration, float]:
    """A configuration with the least bottleneck of all, and that in seconds: dynamic programming
    over (layers done, places used, last place)."""
    value, firsts, places = bottleneck.shortest_bottleneck(
        *_arrays(table), *_rules(platform), table.one_link
    )
    if not np.isfinite(value):
        raise SearchError("no configuration has a finite time: layer times are not finite")
    edges = [*(int(first) for first in firsts[::-1]), table.layer_count]
    stages = tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
    return Configuration(stages, tuple(int(place) for place in places[::-1])), float(value)


def enumerate_space(table: TimeTable, platform: Platform) -> Enumeration:
    """Every configuration of the space, `space_size` of them, one by one."""
    most = min(table.layer_count, platform.most_stages)
    value, ends, places, count, bottlenecks, totals = bottleneck.enumerate_all(
        *_arrays(table), *_rules(platform), most
    )
    stages = tuple(int(b - a) for a, b in zip(ends, ends[1:], strict=False))
    best = Configuration(stages, tuple(int(place) for place in places))
    return Enumeration(best, float(value), int(count), float(bottlenecks), float(totals))


def search_exact(session: Session, times: TimeTable | None = None) -> Trial:
    """One trial: the optimum under known ``times``; those of a simulated platform are known."""
    if times is None:
        if not session.platform.simulated:
            raise SearchError(
                f"search exact needs the times of every layer on every place; platform "
                f"{session.platform.name} is real: give measured times, or choose another search"
            )
        times = simulated_table(session.chain, session.platform)
    shape = (len(session.chain), len(session.platform))
    if times.layer_s.shape != shape:
        raise SearchError(f"times are for {times.layer_s.shape} layers and places; this is {shape}")
    configuration, _ = exact_configuration(times, session.platform)
    return session.try_out(configuration)


def _arrays(table: TimeTable) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return table.prefix_s, table.crossing_bytes, table.latency_s, table.byte_s


def _rules(platform: Platform) -> tuple[np.ndarray, np.ndarray]:
    return np.array(platform.conflicts, np.int64), np.array(twins(platform), np.int64)
