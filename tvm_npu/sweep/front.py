"""Which designs are worth building: Pareto fronts, ranks, sensitivities."""

from __future__ import annotations

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
    changes: Sequence[Mapping[str, Any]], scores: Scores
) -> dict[str, tuple[float, ...]]:
    """By key and objective: the largest over the smallest of the geometric means that its values
    have, all other keys taken as they come. 1: the key does nothing."""
    usable = np.flatnonzero(np.isfinite(scores).all(axis=1) & (scores > 0).all(axis=1))
    keys = dict.fromkeys(key for one in changes for key in one)
    found: dict[str, tuple[float, ...]] = {}
    for key in keys:
        groups: dict[Any, list[int]] = {}
        for index in usable.tolist():
            if key in changes[index]:
                groups.setdefault(changes[index][key], []).append(index)
        if not groups:
            continue
        means = np.array([np.exp(np.log(scores[rows]).mean(axis=0)) for rows in groups.values()])
        found[key] = tuple((means.max(axis=0) / means.min(axis=0)).tolist())
    return found
