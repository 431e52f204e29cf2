"""Partition and placement when times are known: dynamic programming, enumeration as its proof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search import bands, bottleneck, greedy
from tvm_npu.pipelines.search.place_sets import SORTABLE_PLACES, place_classes
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.pipelines.search.space import twins
from tvm_npu.pipelines.times import TimeTable, simulated_table
from tvm_npu.sim.texts import shown

MOST_BYTES = 1 << 30
"""Of the table of dynamic programming, and of the steps between sets of places."""
STATE_BYTES = STEP_BYTES = 24
QUICK_STEPS, QUICK_STATES = 1_000_000, 1_000_000
"""Up to here one plan takes a second or two."""
SHORT_STATES = 100_000
"""From here on it is worth to ask whether a close configuration is the optimum."""
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
    over (layers done, places used, last place), where alike places are only counted, and only
    layers between `bands.bands` are looked at. Raises SearchError where a table of it needs more
    than `MOST_BYTES`, or where times are not finite."""
    return _exact(table, platform)


def _exact(
    table: TimeTable, platform: Platform, quick: bool = False
) -> tuple[Configuration, float]:
    """``quick``: where the table would have more than `QUICK_STATES`, a close configuration."""
    _check_bytes(exact_steps(platform) * STEP_BYTES, table, platform)
    close, close_s = close_configuration(table, platform)
    arrays = _arrays(table)
    steps = place_classes(platform).steps
    closer_s, edges, served = bands.farthest_cuts(*arrays, steps, close_s)
    bound_s = close_s
    if len(served):
        close, close_s = _configuration(edges, served), float(closer_s)
        bound_s = np.nextafter(close_s, np.inf)
    fewest, most = bands.bands(table.prefix_s, steps, bound_s)
    lasts = 1 if table.one_link else steps.shape[1]
    states = lasts * int(np.maximum(0, most.astype(np.int64) - fewest + 1).sum())
    if states > SHORT_STATES and close_s <= bands.least_bottleneck(*arrays):
        return close, close_s
    if quick and states > QUICK_STATES:
        return close, close_s
    _check_bytes(states * STATE_BYTES, table, platform)
    value, firsts, served = bottleneck.shortest_bottleneck(
        *arrays, steps, table.one_link, bound_s, fewest, most
    )
    if not len(served):
        return close, close_s
    return _configuration([*firsts[::-1], table.layer_count], served[::-1]), float(value)


def _configuration(edges: Iterable[int], places: Iterable[int]) -> Configuration:
    stages = tuple(int(b - a) for a, b in pairwise(edges))
    return Configuration(stages, tuple(int(place) for place in places))


def _check_bytes(needed: int, table: TimeTable, platform: Platform) -> None:
    if needed > MOST_BYTES:
        raise SearchError(
            f"search exact on platform {platform.name}: the {len(platform)} places are of "
            f"{len(place_classes(platform).members)} kinds, and with {table.layer_count} layers "
            f"the table would need {needed / 2**30:,.1f} GiB; at most {MOST_BYTES >> 30} GiB. "
            "Fewer places or kinds of places, or another search (guided, shisha-h1)"
        )


def exact_steps(platform: Platform) -> int:
    """Steps from a set of places in use to the next, which dynamic programming goes through."""
    classes = place_classes(platform)
    return classes.set_count * len(classes.members)


def close_configuration(
    table: TimeTable, platform: Platform, starts: int = STARTS
) -> tuple[Configuration, float]:
    """A good configuration of any number of layers and places, the best of ``starts`` greedy ones,
    and its bottleneck in seconds."""
    _check_times(table)
    classes = place_classes(platform)
    whole_s = table.prefix_s[-1]
    work = (table.prefix_s / np.where(whole_s > 0, whole_s, 1.0)).mean(axis=1)
    stages = min(len(platform), table.layer_count)
    value, edges, places = greedy.greedy_cuts(
        *_arrays(table), classes.table, classes.clashes, work,
        _tastes(starts, stages, len(classes.members)),
    )  # fmt: skip
    return _configuration(edges, places), float(value)


def planned_configuration(
    table: TimeTable, platform: Platform, most_steps: int = QUICK_STEPS
) -> tuple[Configuration, float]:
    """The optimum where `exact_steps` are at most ``most_steps`` and the table has at most
    `QUICK_STATES`, else a close configuration."""
    if exact_steps(platform) <= most_steps:
        return _exact(table, platform, quick=True)
    return close_configuration(table, platform, QUICK_STARTS)


@lru_cache(maxsize=8)
def _tastes(starts: int, stages: int, classes: int) -> np.ndarray:
    """Random factors, the same in all runs: the first start has none, the others more and more."""
    random = np.random.default_rng(0)
    deviations = np.linspace(0.0, MOST_TASTE, starts)
    return np.exp(deviations[:, None, None] * random.standard_normal((starts, stages, classes)))


def enumerate_space(table: TimeTable, platform: Platform) -> Enumeration:
    """Every configuration of the space, `space_size` of them, one by one. Raises SearchError for
    more than `SORTABLE_PLACES` places, or where times are not finite."""
    _check_times(table)
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
    best = _configuration(ends, places)
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
    if not isinstance(times, TimeTable):
        raise SearchError(f"times are {shown(times)}; expected a TimeTable")
    shape = (len(session.chain), len(session.platform))
    if times.layer_s.shape != shape:
        raise SearchError(f"times are for {times.layer_s.shape} layers and places; this is {shape}")
    configuration, _ = exact_configuration(times, session.platform)
    return session.try_out(configuration)


def _arrays(table: TimeTable) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return table.prefix_s, table.crossing_bytes, table.latency_s, table.byte_s


def _check_times(table: TimeTable) -> None:
    """Raises SearchError for layer times that no sum and no comparison holds for."""
    wrong = np.argwhere(~(np.isfinite(table.layer_s) & (table.layer_s >= 0)))
    if len(wrong):
        layer, place = wrong[0]
        raise SearchError(
            f"layer {layer} takes {table.layer_s[layer, place]} s on place {place}: not finite, or "
            "below 0; give every layer a finite time on every place, a long one where it is not "
            "to be"
        )
