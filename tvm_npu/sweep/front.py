"""Which designs are worth building: Pareto fronts, ranks, sensitivities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sweep.outcome import MAXIMIZED

Scores = NDArray[np.float64]
"""[designs, objectives]; NaN: the design has no outcome."""


def ranks(scores: Scores) -> NDArray[np.int64]:
    """Of each design the number of the front that it is on (Deb et al., NSGA-II, 2002): 0 for those
    that no other is better than; -1 without an outcome. Scores are to be small."""
    found = np.full(len(scores), -1, np.int64)
    left = np.flatnonzero(np.isfinite(scores).all(axis=1))
    rank = 0
    while left.size:
        on_front = ~_dominated(scores[left])
        found[left[on_front]] = rank
        left = left[~on_front]
        rank += 1
    return found


def _dominated(scores: Scores) -> NDArray[np.bool_]:
    """Which rows another row is at least as good as everywhere, and better than somewhere."""
    order = np.lexsort(scores.T[::-1])
    result = np.zeros(len(scores), bool)
    front: list[Any] = []
    for index in order:  # whoever dominates a row comes before it
        row = scores[index]
        if front:
            above = np.array(front)
            worse = (above <= row).all(axis=1) & (above < row).any(axis=1)
            result[index] = bool(worse.any())
        if not result[index]:
            front.append(row)
    return result


def costs(scores: Scores, objectives: Sequence[str]) -> Scores:
    """The same, each to be small."""
    signs = [-1.0 if name in MAXIMIZED else 1.0 for name in objectives]
    return scores * np.array(signs)


def sensitivities(
    changes: Sequence[Mapping[str, Any]], scores: Scores, objectives: Sequence[str]
) -> dict[str, tuple[float | None, ...]]:
    """By key and objective: the largest over the smallest of the geometric means that its values
    have, all other keys taken as they come. 1: the key does nothing. Of ratios in dB it is that of
    the ratios; None of an objective that is 0 or less somewhere, which has no such mean."""
    logarithms = np.stack(
        [_logarithms(name, scores[:, at]) for at, name in enumerate(objectives)], axis=1
    )
    found: dict[str, tuple[float | None, ...]] = {}
    for key in dict.fromkeys(key for one in changes for key in one):
        groups: dict[Any, list[int]] = {}
        for index, one in enumerate(changes):
            if key in one and np.isfinite(scores[index]).any():
                groups.setdefault(one[key], []).append(index)
        if groups:
            parts = [logarithms[rows] for rows in groups.values()]
            found[key] = tuple(
                _largest_over_smallest([part[:, at] for part in parts])
                for at in range(len(objectives))
            )
    return found


def _logarithms(objective: str, values: Scores) -> Scores:
    """NaN for designs without, and all NaN where some have none."""
    if objective == "sqnr_db":
        return values * (math.log(10) / 10)
    given = values[np.isfinite(values)]
    return np.log(values) if (given > 0).all() else np.full(len(values), np.nan)


def _largest_over_smallest(groups: Sequence[Scores]) -> float | None:
    """Of the geometric means of groups, which are given as logarithms."""
    known = [group[np.isfinite(group)] for group in groups]
    means = [group.mean() for group in known if len(group)]
    return math.exp(max(means) - min(means)) if means else None
