"""A small space of another kind of plans than any machine has: points of a grid. Everything about
tuning has to work on it, so none of it knows convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_npu.codegen.tune.errors import MeasureError
from tvm_npu.codegen.tune.space import Columns, Features
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

SIZE = 24


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(frozen=True)
class Grid:
    """Points of SIZE x SIZE."""

    name: str = "hill"
    kind: str = "grid"
    size: int = SIZE

    @property
    def machine(self) -> NmpMachine:
        return load_nmp_machine("nmp-4x8")

    @property
    def problem(self) -> Columns:
        return {"name": self.name, "size": self.size}

    @property
    def feature_names(self) -> tuple[str, ...]:
        return ("x", "y")

    def sample(self, generator: np.random.Generator) -> Point:
        return Point(*generator.integers(self.size, size=2).tolist())

    def neighbour(self, plan: Point, generator: np.random.Generator) -> Point:
        dx, dy = generator.integers(-2, 3, 2).tolist()
        last = self.size - 1
        return Point(min(max(plan.x + dx, 0), last), min(max(plan.y + dy, 0), last))

    def features(self, plans: Sequence[Point]) -> Features:
        return np.array([(plan.x, plan.y) for plan in plans], np.float32).reshape(-1, 2)

    def encode(self, plan: Point) -> Columns:
        return {"x": plan.x, "y": plan.y}

    def decode(self, columns: Mapping[str, Any]) -> Point:
        if set(columns) != {"x", "y"}:
            raise ValueError(f"a point has x and y, not {sorted(columns)}")
        return Point(columns["x"], columns["y"])


def cycles(plan: Point) -> float:
    """Least at (17, 5); nothing is known of a corner."""
    if plan.x + plan.y < 3:
        raise MeasureError("the corner cannot be measured")
    return 100.0 + 3 * (plan.x - 17) ** 2 + 5 * (plan.y - 5) ** 2 + 0.1 * plan.x


class Counting:
    """Counts measurements; breaks down at one of them, if it should."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.count, self.breaks_at = 0, breaks_at

    def __call__(self, plan: Point) -> float:
        if self.count == self.breaks_at:
            raise KeyboardInterrupt
        self.count += 1
        return cycles(plan)
