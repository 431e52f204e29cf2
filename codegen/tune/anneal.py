"""Simulated annealing: over a cost model, many walks side by side, or over measurements, one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from tvm_npu.codegen.tune.space import Features, Space

P = TypeVar("P")

WALKS, STEPS = 64, 60
FIRST_TEMPERATURE = 0.5
"""In log2 of cycles: a plan sqrt(2) times slower is accepted with probability 1/e."""


def anneal(
    space: Space[P],
    predict: Callable[[Features], Any],
    starts: Sequence[P],
    visited: Collection[P],
    count: int,
    generator: np.random.Generator,
) -> list[P]:
    """The ``count`` plans of least predicted log2 cycles that `WALKS` walks of `STEPS` steps come
    by and that are not among ``visited``, best first; of plans that the model cannot tell apart
    (one score: the same leaf of every tree) only the first. Walks begin at ``starts``, then at
    random plans, and cool down to zero; where they meet nothing new, fewer plans come back."""
    points = list(starts[:WALKS])
    points += [space.sample(generator) for _ in range(WALKS - len(points))]
    scores = np.asarray(predict(space.features(points)), np.float64)
    seen: dict[P, float] = dict(zip(points, scores.tolist(), strict=True))
    for step in range(STEPS):
        temperature = FIRST_TEMPERATURE * (1 - step / STEPS)
        moved = [space.neighbour(point, generator) for point in points]
        new = np.asarray(predict(space.features(moved)), np.float64)
        accepted = accepts(new - scores, temperature, generator.random(WALKS))
        for index in range(WALKS):
            seen.setdefault(moved[index], float(new[index]))
            if accepted[index]:
                points[index], scores[index] = moved[index], new[index]
    first: dict[float, P] = {}
    for plan, score in seen.items():
        if plan not in visited:
            first.setdefault(score, plan)
    return [first[score] for score in sorted(first)[:count]]


def accepts(worse_by: Any, temperature: float, chances: Any) -> Any:
    """Metropolis' rule: better always, worse with probability exp(-difference / temperature)."""
    scaled = np.minimum(-np.asarray(worse_by, np.float64) / max(temperature, 1e-9), 0.0)
    return np.asarray(chances) < np.exp(np.maximum(scaled, -700.0))
