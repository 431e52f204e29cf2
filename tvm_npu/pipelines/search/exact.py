"""Partition and placement when times are known: dynamic programming, enumeration as its proof."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search import bottleneck, greedy
from tvm_npu.pipelines.search.place_sets import SORTABLE_PLACES, place_classes
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.pipelines.search.space import twins
from tvm_npu.pipelines.times import TimeTable, simulated_table

MOST_BYTES = 1 << 30
"""Of the table of dynamic programming."""
STATE_BYTES = 24
QUICK_STATES = 10_000_000
"""Up to here one plan takes a second or two."""
STARTS, QUICK_STARTS = 500, 100
MOST_TASTE = 0.3
"""Deviation of the greedy choices' random factors in the last start."""


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
    over (layers done, places used, last place), where alike places are only counted. Raises
    SearchError where its table needs more than `MOST_BYTES`."""
    needed = exact_states(table, platform) * STATE_BYTES
    if needed > MOST_BYTES:
        raise SearchError(
            f"search exact on platform {platform.name}: the {len(platform)} places are of "
            f"{len(place_classes(platform).members)} kinds, and with {table.layer_count} layers "
            f"the table would need {needed / 2**30:,.1f} GiB; at most {MOST_BYTES >> 30} GiB. "
            "Fewer places or kinds of places, or another search (guided, shisha-h1)"
        )
    close, close_s = close_configuration(table, platform)
    if not np.isfinite(close_s):
        raise SearchError("no configuration has a finite time: layer times are not finite")
    value, firsts, places = bottleneck.shortest_bottleneck(
        *_arrays(table), place_classes(platform).steps, table.one_link, close_s
    )
    if not len(places):
        return close, close_s
    edges = [*(int(first) for first in firsts[::-1]), table.layer_count]
    stages = tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
    return Configuration(stages, tuple(int(place) for place in places[::-1])), float(value)


def exact_states(table: TimeTable, platform: Platform) -> int:
    """Entries of the table that dynamic programming fills."""
    classes = place_classes(platform)
    return (
        (table.layer_count + 1)
        * classes.set_count
        * (1 if table.one_link else len(classes.members))
    )


def close_configuration(
    table: TimeTable, platform: Platform, starts: int = STARTS
) -> tuple[Configuration, float]:
    """A good configuration of any number of layers and places, the best of ``starts`` greedy ones,
    and its bottleneck in seconds."""
    classes = place_classes(platform)
    whole_s = table.prefix_s[-1]
    if not np.isfinite(whole_s).any():
        raise SearchError("no configuration has a finite time: layer times are not finite")
    finite = np.isfinite(whole_s)
    work = (table.prefix_s[:, finite] / whole_s[finite]).mean(axis=1)
    stages = min(len(platform), table.layer_count)
    value, edges, places = greedy.greedy_cuts(
        *_arrays(table), classes.table, classes.clashes, work,
        _tastes(starts, stages, len(classes.members)),
    )  # fmt: skip
    parts = tuple(int(b - a) for a, b in zip(edges, edges[1:], strict=False))
    return Configuration(parts, tuple(int(place) for place in places)), float(value)


def planned_configuration(
    table: TimeTable, platform: Platform, most_states: int = QUICK_STATES
) -> tuple[Configuration, float]:
    """The optimum where its table has at most ``most_states`` entries, else a close one."""
    if exact_states(table, platform) <= most_states:
        return exact_configuration(table, platform)
    return close_configuration(table, platform, QUICK_STARTS)


@lru_cache(maxsize=8)
def _tastes(starts: int, stages: int, classes: int) -> np.ndarray:
    """Random factors, the same in all runs: the first start has none, the others more and more."""
    random = np.random.default_rng(0)
    deviations = np.linspace(0.0, MOST_TASTE, starts)
    return np.exp(deviations[:, None, None] * random.standard_normal((starts, stages, classes)))


def enumerate_space(table: TimeTable, platform: Platform) -> Enumeration:
    """Every configuration of the space, `space_size` of them, one by one. Raises SearchError for
    more than `SORTABLE_PLACES` places."""
    if len(platform) > SORTABLE_PLACES:
        raise SearchError(
            f"platform {platform.name} has {len(platform)} places; at most {SORTABLE_PLACES} can "
            "be enumerated: use exact_configuration or search guided"
        )
    most = min(table.layer_count, platform.most_stages)
    value, ends, places, count, bottlenecks, totals = bottleneck.enumerate_all(
        *_arrays(table),
        np.array(platform.conflicts, np.int64),
        np.array(twins(platform), np.int64),
        most,
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
