"""A run that is watched: the words of a program, one command at a time."""

from __future__ import annotations

from collections.abc import Callable

from tvm_npu.sim.compiled.steps import shortest_slice
from tvm_npu.sim.tiles.dma_control import DmaControl
from tvm_npu.sim.tiles.engine import TEND, TGO, TSETU, TSTORE, TWAIT
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.state import State
from tvm_npu.sim.traps import Place
from tvm_npu.sim.watch import Store, Watch, layer_number

PlaceOf = Callable[[int], Place]
"""Row -> place."""


class Steps:
    """The steps of a run. Commands of a core write to DRAM themselves; a program of the DMA
    controller writes from its tgo to the twait for it, while the controller is asked."""

    def __init__(
        self, watch: Watch, machine: TileMachine, dram_bytes: int, place_of: PlaceOf
    ) -> None:
        self._watch, self._dram_bytes, self._place_of = watch, dram_bytes, place_of
        self._has_core = machine.core is not None
        self._first = 0
        self._flying: dict[int, Store] = {}

    def begin(self, state: State) -> None:
        """The loop over words goes on, by one command."""
        shortest_slice(state.work)
        self._first = int(state.pc[0])

    def end(self, state: State, trapped: bool) -> None:
        """The loop is back; ``trapped`` in the middle of a command."""
        stopped = min(int(state.pc[0]) + trapped, len(state.words))
        stores = [
            self._store(state, row, 0, self._dram_bytes)
            for row in range(self._first, stopped)
            if self._writes(int(state.decoded[row, 0]))
        ]
        if stores:
            self._watch.stored(stores)

    def controlled(self, state: State, control: DmaControl | None) -> None:
        """The controller has been asked: programs in flight have gone on."""
        flying = {}
        for row, begin, end in () if control is None else control.stores_in_flight():
            flying[row] = self._store(state, row, begin, end)
        stores = {**self._flying, **flying}
        self._flying = flying
        if stores:
            self._watch.stored(list(stores.values()))

    def _writes(self, operation: int) -> bool:
        if operation in (TGO, TWAIT, TEND):
            return False
        return operation == TSTORE or (self._has_core and operation > TSETU)

    def _store(self, state: State, row: int, begin: int, end: int) -> Store:
        layer = layer_number(state.layer_end, int(state.layer_of[row]))
        return Store(self._place_of(row), layer, begin, end)
