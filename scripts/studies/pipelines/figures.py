"""What the rows amount to: ratios beside the published ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from studies.pipelines.cases import CHIPLET_PLATFORMS, CHIPLETS
from studies.pipelines.rows import Row

HEURISTICS = tuple(f"shisha-h{number}" for number in range(1, 7))
OTHERS = (
    "pipe-search", "random-walk", "random-walk-seeded", "hill-climbing", "hill-climbing-seeded",
    "annealing", "annealing-seeded", "exhaustive",
)  # fmt: skip
"""What the paper compares Shisha with (Figures 4 and 5), and the random walk from Shisha's seed."""
COMPARED = tuple(name for name in OTHERS if name not in ("random-walk-seeded", "exhaustive"))
"""Those whose convergence time is averaged."""
EIGHT = "shisha-c5"


def find(rows: Sequence[Row], model: str, platform: str, search: str) -> Row | None:
    for row in rows:
        if (row.model, row.platform, row.search) == (model, platform, search):
            return row
    return None


def chiplet_rows(rows: Sequence[Row], search: str) -> list[Row]:
    """Rows of Shisha's networks and platforms."""
    return [
        row
        for row in rows
        if row.search == search and row.model in CHIPLETS and row.platform in CHIPLET_PLATFORMS
    ]


@dataclass(frozen=True)
class Slower:
    """Convergence time of a search over that of a Shisha heuristic, over Shisha's networks on eight
    places: arithmetic mean (the paper's "on average") and geometric mean."""

    search: str
    mean: float
    geometric: float


def slower(rows: Sequence[Row], heuristic: str) -> list[Slower]:
    found = []
    for search in COMPARED:
        ratios = []
        for model in CHIPLETS:
            other = find(rows, model, EIGHT, search)
            own = find(rows, model, EIGHT, heuristic)
            if other is not None and own is not None:
                ratios.append(other.convergence_s / own.convergence_s)
        if ratios:
            geometric = math.exp(statistics.fmean(map(math.log, ratios)))
            found.append(Slower(search, statistics.fmean(ratios), geometric))
    return found


def heuristic_shares(rows: Sequence[Row], heuristic: str) -> dict[str, float]:
    """Mean share of the optimum over the networks, by platform."""
    own = chiplet_rows(rows, heuristic)
    return {
        platform: statistics.fmean(row.share_of_best for row in own if row.platform == platform)
        for platform in dict.fromkeys(row.platform for row in own)
    }


def faster_share(rows: Sequence[Row], one: str, other: str) -> float | None:
    """In what share of the cases ``one`` converges no later than ``other``."""
    pairs = [
        (row.convergence_s, twin.convergence_s)
        for row in chiplet_rows(rows, one)
        if (twin := find(rows, row.model, row.platform, other)) is not None
    ]
    if not pairs:
        return None
    return sum(mine <= theirs for mine, theirs in pairs) / len(pairs)


def best_heuristics(rows: Sequence[Row]) -> float | None:
    """In what share of the cases H1 or H3 is as good as every other heuristic."""
    won = []
    for row in chiplet_rows(rows, "shisha-h1"):
        found = {
            name: twin.throughput
            for name in HEURISTICS
            if (twin := find(rows, row.model, row.platform, name)) is not None
        }
        best = max(found.values())
        won.append(max(found["shisha-h1"], found["shisha-h3"]) >= best * (1 - 1e-9))
    return sum(won) / len(won) if won else None
