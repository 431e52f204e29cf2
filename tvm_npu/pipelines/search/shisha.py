"""Shisha (Soomro et al., 2022): a seed by merging layers, then layers off the slowest stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.sim.numbers import check_whole
from tvm_npu.sim.texts import shown

Rank = Literal["layers", "weight", "random"]
Balance = Literal["nearest", "nearest-lightest"]


@dataclass(frozen=True)
class Heuristic:
    """A row of the paper's Table 2. ``rank``: which stages get the fast places; ``balance``: which
    fast place takes a layer of the slowest stage."""

    rank: Rank
    balance: Balance


HEURISTICS: dict[str, Heuristic] = {
    "h1": Heuristic("layers", "nearest-lightest"),
    "h2": Heuristic("layers", "nearest"),
    "h3": Heuristic("weight", "nearest-lightest"),
    "h4": Heuristic("weight", "nearest"),
    "h5": Heuristic("random", "nearest-lightest"),
    "h6": Heuristic("random", "nearest"),
}


def fast_places(platform: Platform) -> frozenset[int]:
    """Fast execution places: the faster part of the list of places at its widest relative step; all
    of them when they are equally fast."""
    order = platform.speed_order
    speeds = [platform.places[place].speed for place in order]
    steps = [fast / slow for fast, slow in zip(speeds, speeds[1:], strict=False)]
    if not steps or max(steps) <= 1.0:
        return frozenset(order)
    return frozenset(order[: steps.index(max(steps)) + 1])


def merged_stages(weights: Sequence[float], stages: int) -> tuple[int, ...]:
    """Algorithm 1, lines 3 to 8: the lightest group joins its lighter neighbour until ``stages``
    are left; the first of equals."""
    groups = [(weight, 1) for weight in weights]
    while len(groups) > stages:
        lightest = min(range(len(groups)), key=lambda index: groups[index][0])
        beside = [index for index in (lightest - 1, lightest + 1) if 0 <= index < len(groups)]
        other = min(beside, key=lambda index: groups[index][0])
        left = min(lightest, other)
        one, two = groups[left], groups[left + 1]
        groups[left : left + 2] = [(one[0] + two[0], one[1] + two[1])]
    return tuple(layers for _, layers in groups)


def chosen_places(platform: Platform, stages: int) -> list[int]:
    """H_e for ``stages`` stages, fastest first. Where places share cores, those are taken first
    that leave enough others."""
    chosen: list[int] = []

    def extend(rest: tuple[int, ...], taken: int) -> bool:
        if len(chosen) == stages:
            return True
        for index, place in enumerate(rest):
            if not taken & (1 << place):
                chosen.append(place)
                if extend(rest[index + 1 :], taken | platform.conflicts[place]):
                    return True
                chosen.pop()
        return False

    extend(platform.speed_order, 0)
    return chosen


def seed_configuration(
    weights: Sequence[float], platform: Platform, rank: Rank, random: np.random.Generator
) -> Configuration:
    """Algorithm 1: as many stages as there are places. Ranked by weight, heavy stages get the fast
    places; by layers, stages of few layers do (the paper gives high ranks to slow places)."""
    count = min(len(weights), platform.most_stages)
    stages = merged_stages(weights, count)
    order = list(range(count))
    if rank == "random":
        order = [int(stage) for stage in random.permutation(count)]
    elif rank == "layers":
        order.sort(key=lambda stage: stages[stage])
    else:
        ranges = list(Configuration(stages, tuple(range(count))).ranges())
        order.sort(key=lambda stage: -math.fsum(weights[slice(*ranges[stage])]))
    places = [0] * count
    for stage, place in zip(order, chosen_places(platform, count), strict=True):
        places[stage] = place
    return Configuration(stages, tuple(places))


def search_shisha(
    session: Session,
    heuristic: str = "h3",
    alpha: int = 10,
    start: Configuration | None = None,
) -> Trial:
    """Algorithm 2, from the seed or from ``start``. It ends after ``alpha`` moves in a row that
    were no better than the best, or when the slowest stage has no layer to give."""
    if heuristic not in HEURISTICS:
        raise SearchError(f"unknown heuristic {heuristic!r}; known: {', '.join(HEURISTICS)}")
    check_whole(alpha, "alpha", SearchError, 1)
    if start is not None and not isinstance(start, Configuration):
        raise SearchError(f"start is {shown(start)}; a Configuration")
    chosen = HEURISTICS[heuristic]
    fast = fast_places(session.platform)
    if start is None:
        weights = session.chain.weights
        start = seed_configuration(weights, session.platform, chosen.rank, session.random)
    trial = best = session.try_out(start)
    unlucky = 0
    while unlucky < alpha:
        target = _target(trial, fast, chosen.balance)
        moved = None if target is None else moved_layer(trial.configuration, trial, target)
        if moved is None:
            break
        trial = session.try_out(moved)
        if trial.bottleneck_s < best.bottleneck_s:
            best, unlucky = trial, 0
        else:
            unlucky += 1
    return best


def _target(trial: Trial, fast: frozenset[int], balance: Balance) -> int | None:
    """The stage that takes a layer: of those on fast places the nearest (equal ones: the lighter),
    or the lightest (equal ones: the nearer). Without another fast place any stage will do."""
    slowest = trial.times.slowest
    others = [stage for stage in range(len(trial.configuration)) if stage != slowest]
    wanted = [stage for stage in others if trial.configuration.places[stage] in fast] or others
    if not wanted:
        return None

    def near(stage: int) -> tuple[float, float]:
        return abs(stage - slowest), trial.times.seconds[stage]

    def light(stage: int) -> tuple[float, float]:
        return trial.times.seconds[stage], abs(stage - slowest)

    return min(wanted, key=near if balance == "nearest" else light)


def moved_layer(configuration: Configuration, trial: Trial, target: int) -> Configuration | None:
    """One layer off the slowest stage towards ``target``: every cut between the two moves by a
    layer, so that stages between keep their number of layers. None when it has only one."""
    slowest = trial.times.slowest
    stages = list(configuration.stages)
    if stages[slowest] < 2:
        return None
    stages[slowest] -= 1
    stages[target] += 1
    return Configuration(tuple(stages), configuration.places)
