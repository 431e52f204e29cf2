"""The space of configurations: its size, its members one by one, random members, neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import combinations

import numpy as np

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform

MOST_SETS = 200_000
"""Sets of places that share cores, looked through to count configurations."""


@lru_cache(maxsize=64)
def twins(platform: Platform) -> tuple[int, ...]:
    """For each place the last one before it that it can be exchanged with, or -1: simulated places
    with equal figures, links and conflicts. Real places are never the same."""
    result = []
    described: dict[str, list[int]] = {}
    for place, figures in enumerate(platform.places):
        text = figures.model_dump_json(exclude={"name", "core_ids"})
        before = described.setdefault(text, [])
        alike = (other for other in reversed(before) if _exchangeable(platform, place, other))
        result.append(next(alike, -1))
        before.append(place)
    return tuple(result)


def _exchangeable(platform: Platform, one: int, other: int) -> bool:
    """Two places of equal figures."""
    if not platform.simulated:
        return False
    both = (1 << one) | (1 << other)
    if platform.conflicts[one] & ~both != platform.conflicts[other] & ~both:
        return False
    return not platform.links or all(
        platform.link_between(one, third) == platform.link_between(other, third)
        for third in range(len(platform))
        if third not in (one, other)
    )


def next_places(platform: Platform, used: int) -> Iterator[int]:
    """Places that can serve the next stage when those of the bit mask ``used`` serve others. Of
    exchangeable places the first free one stands for all."""
    taken = 0
    for place, conflicts in enumerate(platform.conflicts):
        if used & (1 << place):
            taken |= conflicts
    for place, twin in enumerate(twins(platform)):
        if not taken & (1 << place) and (twin < 0 or used & (1 << twin)):
            yield place


@lru_cache(maxsize=256)
def placements(platform: Platform, stages: int) -> int:
    """In how many ways ``stages`` stages can be placed; exchangeable places counted once."""
    ways = _all_placements(platform)
    return ways[stages] if stages < len(ways) else 0


@lru_cache(maxsize=64)
def _all_placements(platform: Platform) -> tuple[int, ...]:
    """For each number of stages in how many ways they can be placed. Groups of places that have to
    do with each other are counted apart, then their stages mixed in every order."""
    total = [1]
    for group in _groups(platform):
        own = _placements_in(platform, group)
        mixed = [0] * (len(total) + len(own) - 1)
        for one, ways in enumerate(total):
            for other, more in enumerate(own):
                mixed[one + other] += ways * more * math.comb(one + other, one)
        total = mixed
    return tuple(total)


def _groups(platform: Platform) -> list[tuple[int, ...]]:
    """Places that share cores or are exchangeable, directly or by way of others."""
    left = (1 << len(platform)) - 1
    beside = list(platform.conflicts)
    for place, twin in enumerate(twins(platform)):
        if twin >= 0:
            beside[place] |= 1 << twin
            beside[twin] |= 1 << place
    groups = []
    while left:
        group, waiting = 0, left & -left
        while waiting:
            place = (waiting & -waiting).bit_length() - 1
            group |= 1 << place
            waiting = (waiting | beside[place]) & ~group
        groups.append(tuple(place for place in range(len(platform)) if group >> place & 1))
        left &= ~group
    return groups


def _placements_in(platform: Platform, group: tuple[int, ...]) -> list[int]:
    """For each number of stages in how many ways they can be placed on ``group``. Raises
    SearchError for a group of too many sets (`MOST_SETS`)."""
    twin = twins(platform)
    ways = {0: 1}
    found = []
    seen = 0
    while ways:
        found.append(sum(ways.values()))
        seen += len(ways)
        if seen > MOST_SETS:
            raise SearchError(
                f"platform {platform.name}: {len(group)} places share cores in more than "
                f"{MOST_SETS:,} ways, too many to count the configurations"
            )
        longer: dict[int, int] = {}
        for used, count in ways.items():
            taken = 0
            for place in group:
                if used >> place & 1:
                    taken |= platform.conflicts[place]
            for place in group:
                if not taken >> place & 1 and (twin[place] < 0 or used >> twin[place] & 1):
                    longer[used | 1 << place] = longer.get(used | 1 << place, 0) + count
        ways = longer
    return found


def cuts(layers: int, stages: int) -> int:
    """In how many ways ``layers`` layers can be cut into ``stages`` stages."""
    return math.comb(layers - 1, stages - 1)


def space_size(layers: int, platform: Platform) -> int:
    """Configurations of any number of stages; exchangeable places counted once."""
    most = min(layers, platform.most_stages)
    return sum(cuts(layers, n) * placements(platform, n) for n in range(1, most + 1))


def size_text(size: int) -> str:
    """In digits, or as a power of ten where nobody could read them."""
    return f"{size:,}" if size < 10**15 else f"{Decimal(size):.2e}"


def all_stages(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every cut of ``layers`` layers into ``stages`` stages, one by one."""
    for inner in combinations(range(1, layers), stages - 1):
        edges = (0, *inner, layers)
        yield tuple(b - a for a, b in zip(edges, edges[1:], strict=False))


def all_places(platform: Platform, stages: int) -> Iterator[tuple[int, ...]]:
    """Every placement of ``stages`` stages; exchangeable places once."""

    def extend(chosen: tuple[int, ...], used: int) -> Iterator[tuple[int, ...]]:
        if len(chosen) == stages:
            yield chosen
            return
        for place in next_places(platform, used):
            yield from extend((*chosen, place), used | 1 << place)

    return extend((), 0)


def all_configurations(layers: int, platform: Platform) -> Iterator[Configuration]:
    """The whole space, fewest stages first."""
    for count in range(1, min(layers, platform.most_stages) + 1):
        for places in all_places(platform, count):
            for stages in all_stages(layers, count):
                yield Configuration(stages, places)


def random_configuration(
    layers: int, platform: Platform, random: np.random.Generator, stages: int | None = None
) -> Configuration:
    """Number of stages, cuts and places at random, each uniformly; fewer stages than asked for when
    the drawn places leave no room."""
    most = min(layers, platform.most_stages)
    wanted = int(random.integers(1, most + 1)) if stages is None else stages
    chosen: list[int] = []
    taken = 0
    for place in random.permutation(len(platform)):
        if len(chosen) < wanted and not taken & (1 << int(place)):
            chosen.append(int(place))
            taken |= platform.conflicts[int(place)]
    inner = np.sort(random.choice(np.arange(1, layers), len(chosen) - 1, replace=False))
    edges = (0, *(int(edge) for edge in inner), layers)
    return Configuration(
        tuple(b - a for a, b in zip(edges, edges[1:], strict=False)), tuple(chosen)
    )


def neighbours(configuration: Configuration, platform: Platform) -> list[Configuration]:
    """Configurations one step away: a layer over one cut, two stages' places exchanged, a stage on
    a free place, two stages joined, a stage divided."""
    stages, places = configuration.stages, configuration.places
    count = len(stages)
    found: list[Configuration] = []
    for cut in range(count - 1):
        for give, take in ((cut, cut + 1), (cut + 1, cut)):
            if stages[give] > 1:
                moved = list(stages)
                moved[give] -= 1
                moved[take] += 1
                found.append(Configuration(tuple(moved), places))
    for one in range(count):
        for other in range(one + 1, count):
            swapped = list(places)
            swapped[one], swapped[other] = places[other], places[one]
            found.append(Configuration(stages, tuple(swapped)))
    for stage in range(count):
        rest = places[:stage] + places[stage + 1 :]
        for place in _free(platform, rest):
            if place != places[stage]:
                found.append(Configuration(stages, places[:stage] + (place,) + places[stage + 1 :]))
        for place in _free(platform, places):
            for first in range(1, stages[stage]):
                parts = (first, stages[stage] - first)
                divided = stages[:stage] + parts + stages[stage + 1 :]
                for pair in ((places[stage], place), (place, places[stage])):
                    found.append(
                        Configuration(divided, places[:stage] + pair + places[stage + 1 :])
                    )
    for stage in range(count - 1):
        joined = stages[:stage] + (stages[stage] + stages[stage + 1],) + stages[stage + 2 :]
        for gone in (stage, stage + 1):
            found.append(Configuration(joined, places[:gone] + places[gone + 1 :]))
    return found


def _free(platform: Platform, places: tuple[int, ...]) -> list[int]:
    taken = 0
    for place in places:
        taken |= platform.conflicts[place]
    return [place for place in range(len(platform)) if not taken & (1 << place)]
