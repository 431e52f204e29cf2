"""Events of a tile machine's run, read out of its state and of its DMA controller's side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.events import Access, EventColumn, Events, Names, Spans
from tvm_npu.sim.tiles.dma_control import DmaEvent
from tvm_npu.sim.tiles.isa import TILE_ISA, TileMemory
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine
from tvm_npu.sim.tiles.state import State, TileEvent
from tvm_npu.sim.tiles.timing import COMPUTES, MOVES


def collect_events(
    state: State,
    machine: TileMachine,
    layer_names: tuple[str, ...],
    dma: Sequence[DmaEvent],
) -> Events:
    """The events of the run that just ended in ``state``; ``dma`` are those of the controller."""
    mnemonics = [instruction.mnemonic for instruction in TILE_ISA.instructions]
    places = _places(state, machine)

    def accesses_of(row: NDArray[np.int64]) -> tuple[Access, ...]:
        ranges = row[EventColumn.OWN :].reshape(TileEvent.ACCESSES, 3).tolist()
        found = []
        for begin, end, writes in ranges:
            if end > begin:
                memory, first = next(place for place in places if begin >= place[1])
                found.append(Access(memory, begin - first, end - first, bool(writes)))
        return tuple(found)

    def spans_of(table: NDArray[np.int64]) -> Spans:
        firsts = np.array([first for _, first in places])
        columns = []
        for at in range(EventColumn.OWN, EventColumn.OWN + TileEvent.COLUMNS, 3):
            begin, end, writes = table[:, at : at + 3].T
            part = np.argmax(begin[:, None] >= firsts, axis=1)
            origin = firsts[part]
            columns.append((np.arange(len(table)), part, begin - origin, end - origin, writes))
        return Spans.joined(tuple(name for name, _ in places), columns)

    names = Names(
        units=tuple(unit.name for unit in machine.units() if unit.role != "memory"),
        links=tuple(link.name for link in machine.links()),
        layers=layer_names,
        what=[mnemonics[number] if number >= 0 else "" for number in state.decoded[:, 0]],
        tile_of=lambda row: {},
        accesses_of=accesses_of,
        spans_of=spans_of,
        makers=tuple(unit.name for unit in machine.units() if unit.role == "mac"),
    )
    count = int(state.event_count[0])
    table, times = _of_dma(state, dma)
    return Events(
        names,
        np.concatenate((state.events[:count], table)),
        np.concatenate((state.event_times[:count], times)),
    )


def _places(state: State, machine: TileMachine) -> list[tuple[str, int]]:
    """(memory, where it begins in `State.memory`), from the last to the first."""
    if isinstance(machine.memories, SharedMemory):
        memories = {"shared": TileMemory.INPUT, "bias": TileMemory.BIAS}
    else:
        memories = {memory.name.lower(): memory for memory in TileMemory
                    if memory <= TileMemory.BIAS}  # fmt: skip
    begins = {name: int(state.places[memory, 0]) for name, memory in memories.items()}
    return sorted([*begins.items(), ("dram", 0)], key=lambda place: -place[1])


def _of_dma(
    state: State, dma: Sequence[DmaEvent]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The same columns as `State.events`, and begin and end."""
    table = np.zeros((len(dma), state.events.shape[1]), np.int64)
    for event, one in zip(table, dma, strict=True):
        event[EventColumn.ROW], event[EventColumn.LAYER] = one.row, state.layer_of[one.row]
        if one.channel < 0:
            event[EventColumn.UNIT], event[EventColumn.WAITS] = COMPUTES, 1
            continue
        event[EventColumn.UNIT] = MOVES + one.channel
        event[EventColumn.STREAM], event[EventColumn.LINKS] = one.stream, 1 << one.link
        event[EventColumn.BYTES] = one.moved_bytes
        event[EventColumn.BEGIN : EventColumn.OWN] = one.box
        loads = 1 if one.link == 0 else 0
        chip_end = one.chip_address + one.moved_bytes
        event[EventColumn.OWN : EventColumn.OWN + 3] = one.chip_address, chip_end, loads
    times = [(one.begin_cycles, one.end_cycles) for one in dma]
    return table, np.array(times, np.float64).reshape(-1, 2)
