"""What the measurements amount to: speed-ups, distances to the bound, how good predictions are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from studies.planning.measuring import LayerRow, Row
from studies.shared.accuracy import Accuracy, accuracy_of
from studies.shared.titles import TITLES

BASE = ("nmp-4x8", "tso")
"""Machine and planner over which speed-ups are counted."""
GOALS: dict[tuple[str, str], float] = {
    ("nmp-4x8", "exact-dma"): 1.05,
    ("nmp-4x8", "exact"): 1.55,
    ("nmp-4x8-dual", "exact-dma"): 1.40,
    ("nmp-4x8-dual", "exact"): 2.1,
}
"""Geometric mean speed-ups over `BASE` that the project set itself, by machine and planner, for
all of `GOAL_NETWORKS`."""
BYTES_GOALS: dict[tuple[str, str, str], int] = {
    ("mobilenet_v2", "nmp-4x8-dual", "exact-traffic"): 10_090_000,
}
"""Bytes to and from the DRAM that the project set itself, by network, machine and planner: half of
what plans layer by layer moved."""
GOAL_NETWORKS = frozenset(TITLES)
TIME_GOAL = 20.0
"""How many times faster than brute force over all layers of `GOAL_NETWORKS` planner tso is to
be."""

Pair = tuple[str, str]


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(fmean(logs))


def pairs_of(rows: Iterable[Row]) -> tuple[Pair, ...]:
    """(machine, planner) in order of first appearance."""
    return tuple(dict.fromkeys((row.machine, row.planner) for row in rows))


def models_of(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.model for row in rows))


def base_rows(rows: Sequence[Row]) -> dict[str, Row]:
    """The base's row of every model that has one."""
    return {row.model: row for row in rows if (row.machine, row.planner) == BASE}


def speed_ups(rows: Sequence[Row]) -> dict[tuple[str, Pair], float]:
    """Simulated time under the base over that of every other row, by model and pair; empty
    without base rows."""
    bases = base_rows(rows)
    return {
        (row.model, (row.machine, row.planner)): bases[row.model].simulated_us / row.simulated_us
        for row in rows
        if row.model in bases and (row.machine, row.planner) != BASE
    }


def mean_speed_ups(rows: Sequence[Row]) -> dict[Pair, float]:
    """Geometric mean of `speed_ups` over the models, by pair."""
    gains = speed_ups(rows)
    return {
        pair: geometric_mean(gain for (_, other), gain in gains.items() if other == pair)
        for pair in pairs_of(rows)
        if any(other == pair for _, other in gains)
    }


def goal_figures(rows: Sequence[Row]) -> dict[Pair, float]:
    """What `GOALS` are about: geometric mean speed-ups over `GOAL_NETWORKS` alone, of the pairs
    that all of them were measured for."""
    gains = {key: gain for key, gain in speed_ups(rows).items() if key[0] in GOAL_NETWORKS}
    found = {}
    for pair in GOALS:
        own = [gain for (_, other), gain in gains.items() if other == pair]
        if len(own) == len(GOAL_NETWORKS):
            found[pair] = geometric_mean(own)
    return found


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """Which of `goal_figures` are below their goals, and what moves more than `BYTES_GOALS`, in
    words."""
    slow = [
        f"{pair[1]} on {pair[0]} is {figure:.3f} times as fast as {BASE[1]} on {BASE[0]}, the goal "
        f"is {GOALS[pair]:g}"
        for pair, figure in goal_figures(rows).items()
        if figure < GOALS[pair]
    ]
    most = [(row, BYTES_GOALS.get((row.model, row.machine, row.planner))) for row in rows]
    return slow + [
        f"{row.planner} on {row.machine} moves {row.dram_bytes / 1e6:.2f} MB for "
        f"{TITLES[row.model]}, the goal is {goal / 1e6:.2f}"
        for row, goal in most
        if goal is not None and row.dram_bytes > goal
    ]


def limits_of_speed_up(rows: Sequence[Row]) -> dict[str, float]:
    """By machine: what `mean_speed_ups` would be if every network took its bound's time (the
    lowest one's, where programs differ in their layers)."""
    bases = base_rows(rows)
    bounds: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.model in bases:
            key = (row.machine, row.model)
            bounds[key] = min(row.bound_us, bounds.get(key, row.bound_us))
    return {
        machine: geometric_mean(
            bases[model].simulated_us / bound
            for (other, model), bound in bounds.items()
            if other == machine
        )
        for machine in dict.fromkeys(machine for machine, _ in bounds)
    }


def accuracy(layers: Sequence[LayerRow]) -> Accuracy:
    """Raises ValueError without layers."""
    return accuracy_of([(layer.predicted_us, layer.simulated_us) for layer in layers])
