"""Counts of a run for simulators that are not compiled: an instruction is added at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.events import EventColumn, Events, Names
from tvm_npu.sim.statistics import Counts, RunStatistics, collect, layer_words
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.units import STORED


class Tally:
    """What one run counts. Units, links and memories go by the names that the machine's
    description gives them. ``row`` is the number of the instruction being executed, ``layer`` its
    layer; -1: none."""

    def __init__(
        self, machine: MachineDescription, layer_names: Sequence[str], layer_of: NDArray[np.int32]
    ) -> None:
        rows = len(layer_names) + 1
        units = [unit for unit in machine.units() if unit.role != "memory"]
        parts = dict.fromkeys(unit.part for unit in machine.units() if unit.role == "memory")
        self._machine, self._names = machine, layer_names
        self._units = {unit.name: row for row, unit in enumerate(units)}
        self._makers = tuple(unit.name for unit in units if unit.role == "mac")
        self._links = {link.name: row for row, link in enumerate(machine.links())}
        self._memories = {part: row for row, part in enumerate(p for p in parts if p != "dram")}
        self.layer, self.row = -1, 0
        self._events: list[list[int]] = []
        self._times: list[tuple[float, float]] = []
        self._stored = False
        self.now_cycles = 0.0
        """When the next instruction may begin; `work` moves it on."""
        self._counts = Counts(
            busy_cycles=np.zeros((rows, len(self._units))),
            wait_cycles=np.zeros((rows, len(self._units))),
            link_bytes=np.zeros((rows, len(self._links), len(Stream)), np.int64),
            memory_bytes=np.zeros((rows, len(self._memories), 2), np.int64),
            macs=np.zeros(rows, np.int64),
            bursts=np.zeros(rows, np.int64),
            instructions=np.zeros(rows, np.int64),
            words=layer_words(np.where(layer_of < 0, rows - 1, layer_of), rows - 1),
            end_cycles=np.zeros(rows),
            cycles=0.0,
        )

    def work(self, unit: str, cycles: float, macs: int = 0) -> None:
        """The instruction keeps ``unit`` busy, and the machine with it."""
        counts, layer = self._counts, self.layer
        begin = self.now_cycles
        self.now_cycles += cycles
        shown = layer if layer >= 0 else len(self._names)
        head = [self._units[unit], 0, self.row, shown]
        self._events.append(head + [0] * (EventColumn.OWN - len(head)))
        self._times.append((begin, self.now_cycles))
        counts.busy_cycles[layer, self._units[unit]] += cycles
        counts.macs[layer] += macs
        counts.instructions[layer] += 1
        counts.end_cycles[layer] = self.now_cycles

    def move(
        self,
        link: str,
        stream: Stream,
        memory: str,
        size_bytes: int,
        runs: int,
        box: tuple[int, int, int, int, int, int] | None = None,
        maker: str | None = None,
    ) -> None:
        """The work just done brought bytes in ``runs`` pieces over a link: into ``memory`` or, over
        ``stored``, out of it. ``box`` says where a store writes, as `EventColumn`'s columns from
        BEGIN on do; ``maker`` is the unit whose results these are (None: the first that
        computes)."""
        counts, layer = self._counts, self.layer
        event = self._events[-1]
        event[EventColumn.STREAM], event[EventColumn.BYTES] = int(stream), size_bytes
        event[EventColumn.LINKS] = 1 << self._links[link]
        if box is not None:
            event[EventColumn.MAKER] = 0 if maker is None else self._makers.index(maker)
            event[EventColumn.BEGIN : EventColumn.OWN] = box
        counts.link_bytes[layer, self._links[link], stream] += size_bytes
        counts.memory_bytes[layer, self._memories[memory], int(link != STORED.name)] += size_bytes
        counts.bursts[layer] += runs
        self._stored = self._stored or link == STORED.name

    def take_stored(self) -> bool:
        """Whether bytes have gone out over the link ``stored`` since somebody asked."""
        stored, self._stored = self._stored, False
        return stored

    def events(self, what: Sequence[str]) -> Events:
        """What each unit did; ``what`` are the instructions' names."""
        names = Names(
            units=tuple(self._units),
            links=tuple(self._links),
            layers=tuple(self._names),
            what=what,
            tile_of=lambda row: {},
            accesses_of=lambda row: (),
            makers=self._makers,
        )
        table = np.array(self._events, np.int64).reshape(-1, EventColumn.OWN)
        return Events(names, table, np.array(self._times).reshape(-1, 2))

    def statistics(self, element_bytes: int, timing: bool) -> RunStatistics:
        """Of the run; without ``timing`` no time has passed."""
        counts = self._counts
        if not timing:
            for times in (counts.busy_cycles, counts.end_cycles):
                times[:] = 0.0
        total = Counts(**{**vars(counts), "cycles": self.now_cycles if timing else 0.0})
        return collect(total, self._machine, self._names, element_bytes)
