"""Designs with what came out of them, as a search compares them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.front import costs, ranks
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.spec import Fidelity


@dataclass(frozen=True)
class Judged:
    """A design at one fidelity: an outcome a model, and its scores by objective (NaN: none).
    ``meets`` says whether each outcome has what the search requires."""

    design: Design
    fidelity: Fidelity
    outcomes: tuple[Outcome, ...]
    extras: tuple[dict[str, float | None], ...]
    scores: tuple[float, ...]
    meets: bool = True

    def score(self, objectives: Sequence[str], name: str) -> float:
        return self.scores[objectives.index(name)]


def promoted(
    judged: Sequence[Judged], objectives: Sequence[str], promote: float | str
) -> list[Judged]:
    """The front, or the best share of those that have outcomes, by rank and then by order."""
    if not isinstance(promote, float):
        return front(judged, objectives)
    order = enumerate(_ranks(judged, objectives))
    usable = sorted((rank, at) for at, rank in order if rank >= 0)
    count = math.ceil(promote * len(usable))
    return [judged[at] for at in sorted(at for _, at in usable[:count])]


def front(judged: Sequence[Judged], objectives: Sequence[str]) -> list[Judged]:
    """Those that no other is better than, among those that meet what is required."""
    ranked = zip(judged, _ranks(judged, objectives), strict=True)
    return [one for one, rank in ranked if rank == 0]


def best_first(judged: Sequence[Judged], objectives: Sequence[str]) -> list[Judged]:
    """By their objectives, the first one first."""
    if not judged:
        return []
    scores = costs(np.array([one.scores for one in judged], np.float64), objectives)
    order = sorted(range(len(judged)), key=lambda at: tuple(scores[at].tolist()))
    return [judged[at] for at in order]


def _ranks(judged: Sequence[Judged], objectives: Sequence[str]) -> list[int]:
    if not judged:
        return []
    scores = costs(np.array([one.scores for one in judged], np.float64), objectives)
    scores[[not one.meets for one in judged]] = math.nan
    result: list[int] = ranks(scores).tolist()
    return result
