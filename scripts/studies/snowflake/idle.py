"""What a machine does while its vMACs do nothing, out of the events of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.events import EventColumn, Events

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Idle:
    """Cycles of a layer in which no trace is multiplied, mean over the clusters: those in which the
    memory moves words, and all others."""

    memory_cycles: float
    other_cycles: float


def idle_by_layer(events: Events, layer_ends: Sequence[float]) -> list[Idle]:
    """``layer_ends`` are the times at which layers end, in order; a layer begins where the one
    before ends."""
    ends = np.asarray(layer_ends)
    transfers = _intervals(events, "memory")
    units = [name for name in events.names.units if name.split()[0] == "mac"]
    found = [_of_unit(_intervals(events, unit), transfers, ends) for unit in units]
    memory, other = np.mean(found, axis=0)
    return [Idle(*pair) for pair in zip(memory.tolist(), other.tolist(), strict=True)]


def _intervals(events: Events, unit: str) -> tuple[Times, Times]:
    """Begins and ends, each in order, of what a unit does."""
    number = events.names.units.index(unit)
    chosen = (events.column(EventColumn.UNIT) == number) & (events.column(EventColumn.WAITS) == 0)
    return np.sort(events.begin_cycles[chosen]), np.sort(events.end_cycles[chosen])


def _of_unit(work: tuple[Times, Times], transfers: tuple[Times, Times], ends: Times) -> NDArray:
    """[2, layers]: cycles without work, with and without a transfer."""
    edges = np.unique(np.concatenate([*work, *transfers, ends, [0.0]]))
    edges = edges[edges <= ends[-1]]
    middles = (edges[1:] + edges[:-1]) / 2
    idle = ~_covered(middles, work)
    moving = _covered(middles, transfers)
    layers = np.searchsorted(ends, middles, side="left")
    lengths = np.diff(edges)
    return np.array(
        [
            np.bincount(layers[chosen], lengths[chosen], minlength=len(ends))
            for chosen in (idle & moving, idle & ~moving)
        ]
    )


def _covered(times: Times, intervals: tuple[Times, Times]) -> NDArray[np.bool_]:
    """Whether any of the intervals has begun and not ended."""
    begins, ends = intervals
    begun = np.searchsorted(begins, times, side="right")
    return begun > np.searchsorted(ends, times, side="right")
