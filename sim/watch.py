"""Whoever looks at a run from store to store: which instruction wrote which bytes of DRAM.

A simulator that can be watched takes ``watch`` in its `run`. Compiled ones come back to Python at
the ends of slices (`compiled.steps`); a watched run has slices so short that at most the stores
that are given to the watch happened since the call before. Nothing else of a run differs, and a run
without a watch does not pay for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.traps import Place


@dataclass(frozen=True)
class Store:
    """An instruction that may have written bytes ``begin`` to ``end`` of DRAM, counted from the
    machine's base address; the span may reach beyond the memory, where nothing is written.
    ``layer`` is its layer's number; None: it belongs to none."""

    place: Place
    layer: int | None
    begin: int
    end: int

    @property
    def within(self) -> slice:
        """The bytes that lie behind the beginning of DRAM, for an array of it."""
        return slice(max(self.begin, 0), max(self.end, 0))


class Watch(Protocol):
    """What is called around and while a program runs."""

    def begins(self, dram: NDArray[np.uint8]) -> None:
        """Whoever starts the run calls this before: ``dram`` is the simulator's, inputs lie in
        it."""

    def stored(self, stores: Sequence[Store]) -> None:
        """What happened since the last call: no byte of DRAM changed that none of ``stores``, in
        their order, covers. What this raises ends the run."""


def can_be_watched(simulator: Any) -> bool:
    """Whether ``simulator.run`` takes a watch."""
    return "watch" in inspect.signature(simulator.run).parameters


def layer_number(layer_end: NDArray[np.float64], row: int) -> int | None:
    """The layer of a row of statistics, whose last one is for what belongs to no layer."""
    return row if row < len(layer_end) - 1 else None
