"""Execution places: the cores of one cluster, as this machine has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tvm_npu.runtime.pipeline.errors import PlaceError


@dataclass(frozen=True)
class Place:
    """Where one stage at a time runs. ``duty`` in (0, 1] is the share of time that its cores
    really work for the stage: 1/3 stands for a cluster three times slower."""

    name: str
    cores: tuple[int, ...]
    duty: float = 1.0

    def __post_init__(self) -> None:
        if not self.cores:
            raise PlaceError(f"place {self.name!r} has no cores")
        if len(set(self.cores)) != len(self.cores):
            raise PlaceError(f"place {self.name!r} names a core twice: {list(self.cores)}")
        check_duty(self.duty, f"place {self.name!r}")


def check_duty(duty: float, what: str) -> None:
    """PlaceError outside (0, 1], and below the 1/20 that a core can be held back to."""
    if not 0.05 <= duty <= 1.0:
        raise PlaceError(f"{what} has duty cycle {duty:g}; it lies between 0.05 and 1")


def usable_cores() -> frozenset[int]:
    """Ids of the cores that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


def check_places(places: Sequence[Place]) -> None:
    """PlaceError when there are none, two share a name, or a core cannot be used here."""
    if not places:
        raise PlaceError("a pipeline needs at least one place")
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlaceError(f"two places are called {twice[0]!r}")
    usable = usable_cores()
    for place in places:
        missing = sorted(set(place.cores) - usable)
        if missing:
            raise PlaceError(
                f"place {place.name!r} names core {missing[0]}, which does not exist here or may "
                f"not be used; usable: {ranges(usable)}"
            )


def ranges(cores: Iterable[int]) -> str:
    """``0-3, 6`` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"
