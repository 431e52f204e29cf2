"""Everything that the reproduction found."""

from __future__ import annotations

from dataclasses import dataclass, field

from studies.pipelines.guided_study import Trust
from studies.pipelines.pipe_study import Adapted, Hints, Offline, Quality, Synthetic
from studies.pipelines.rows import Row
from studies.pipelines.shisha_study import Latency, OwnPlaces, Seeds

SEEDED = ("shisha-h1", "shisha-h3")
"""The heuristics that the paper compares closest, H3 being its recommendation."""


@dataclass
class Found:
    """Parts are empty when their networks were left out."""

    rows: list[Row] = field(default_factory=list)
    own_places: list[OwnPlaces] = field(default_factory=list)
    seeds: list[Seeds] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    quality: Quality | None = None
    hints: Hints | None = None
    adapted: list[Adapted] = field(default_factory=list)
    offline: list[Offline] = field(default_factory=list)
    synthetic: list[Synthetic] = field(default_factory=list)
    trust: list[Trust] = field(default_factory=list)
