"""Where layers meet on a machine with a DMA controller: what a layer loads first comes beside the
last store of the layer before, if neither touches what the other moves.

Both take turns at the memory outside, burst by burst. So the load has come as far as the store when
that ends, and the store ends later by what that much of the load keeps the memory busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tvm_npu.codegen.tiles.emit.commands import Command, Transfer
from tvm_npu.codegen.tiles.emit.dmac import flight_of, in_conflict
from tvm_npu.codegen.tiles.emit.pipeline import moves
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass
class Seams:
    """First and last commands of layers, collected as these are emitted."""

    machine: TileMachine
    _ends: list[tuple[Command | None, Command | None]] = field(default_factory=list)

    def watched(self, commands: Iterable[Command]) -> Iterator[Command]:
        """The ``commands`` of the next layer."""
        first: Command | None = None
        last: Command | None = None
        for last in commands:
            first = first or last
            yield last
        self._ends.append((first, last))

    def start_cycles(self) -> tuple[float, ...]:
        """By layer, what its time differs for the sake of its neighbours (`Code.start_cycles`)."""
        found = [0.0] * len(self._ends)
        if self.machine.dmac is None:
            return tuple(found)
        for at in range(1, len(found)):
            store, load = self._ends[at - 1][1], self._ends[at][0]
            if not isinstance(store, Transfer) or not isinstance(load, Transfer):
                continue
            if store.to_chip or not load.to_chip or in_conflict(flight_of(load), flight_of(store)):
                continue
            beside = min(1.0, store.runs.size_bytes / load.runs.size_bytes)
            moved = moves((load,), self.machine)
            found[at] -= beside * moved.cycles
            found[at - 1] += beside * moved.busy
        return tuple(found)
