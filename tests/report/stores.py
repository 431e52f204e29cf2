"""Which bytes of DRAM the instructions of a run write: by its events, and by looking at memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import EventColumn, EventLog, Events
from tvm_npu.sim.watch import Store

Written = dict[int, set[int]]
"""By instruction."""


class Changes:
    """`sim.watch.Watch`: bytes that stores change, where all but the inputs is ``poison`` at
    first."""

    def __init__(self, program: Program, base: int, poison: int) -> None:
        from tvm_npu.report.shares import activations_begin

        self._begin, self._poison = activations_begin(program, base), poison
        self._inputs = [(slot.offset, slot.size_bytes) for slot in program.inputs]
        self._dram = self._shadow = np.zeros(0, np.uint8)
        self.written: Written = {}

    def begins(self, dram: NDArray[np.uint8]) -> None:
        free = np.ones(len(dram) - self._begin, np.bool_)
        for offset, size in self._inputs:
            free[offset : offset + size] = False
        dram[self._begin :][free] = self._poison
        self._dram, self._shadow = dram, dram.copy()

    def stored(self, stores: Sequence[Store]) -> None:
        for store in stores:
            changed = np.flatnonzero(self._dram != self._shadow)
            mine = changed[(changed >= store.begin) & (changed < store.end)]
            self._shadow[mine] = self._dram[mine]
            assert store.place.index is not None
            self.written.setdefault(store.place.index, set()).update(mine.tolist())


def seen(program: Program, inputs: list[NDArray[Any]]) -> Written:
    """By two runs: what the one does not change, the other does."""
    found: Written = {}
    for poison in (0x5A, 0xA5):
        session = Session(program, timing=False)
        changes = Changes(program, session.machine.dram.base_address, poison)
        session.run_fixed(inputs, watch=changes)
        for row, written in changes.written.items():
            found.setdefault(row, set()).update(written)
    return {row: written for row, written in found.items() if written}


def told(program: Program, inputs: list[NDArray[Any]]) -> tuple[Written, Events]:
    """By the boxes of one run's events."""
    log, found = EventLog(), dict[int, set[int]]()
    Session(program).run_fixed(inputs, events=log)
    for row in log.runs[0].table:
        box = row[EventColumn.BEGIN : EventColumn.OWN].tolist()
        begin, size, runs, step, groups, group_step = box
        if size:
            mine = found.setdefault(int(row[EventColumn.ROW]), set())
            for group in range(groups):
                for run in range(runs):
                    at = begin + group * group_step + run * step
                    mine.update(range(at, at + size))
    return found, log.runs[0]
