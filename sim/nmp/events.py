"""Events of an NMP's run, read out of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.events import Access, EventColumn, Events, Names, Spans, tile_text
from tvm_npu.sim.nmp.columns import NmpEvent
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.state import State
from tvm_npu.sim.nmp.xnmp import NMP_ISA

PARTS = ("mb0", "mb1", "mb2", "bias")


def register_table(tile_registers: Sequence[Mapping[str, int]], count: int) -> NDArray[np.int8]:
    """[count, most indices of a tile]: the registers that hold them, -1 for none."""
    most = max((len(registers) for registers in tile_registers), default=0)
    table = np.full((count, most), -1, np.int8)
    rows: dict[int, NDArray[np.int8]] = {}  # instructions of a tile share one mapping
    for row, registers in enumerate(tile_registers):
        if id(registers) not in rows:
            values = [*registers.values(), *[-1] * (most - len(registers))]
            rows[id(registers)] = np.array(values, np.int8)
        table[row] = rows[id(registers)]
    return table


def collect_events(
    state: State,
    machine: NmpMachine,
    layer_names: tuple[str, ...],
    tile_registers: Sequence[Mapping[str, int]],
) -> Events:
    """The events of the run that just ended in ``state``."""
    own = EventColumn.OWN
    tle_size = machine.cores.tlts_per_tle
    mnemonics = [instruction.mnemonic for instruction in NMP_ISA.instructions]

    def tile_of(row: NDArray[np.int64]) -> dict[str, int]:
        instruction = int(row[EventColumn.ROW])
        if instruction >= len(tile_registers):
            return {}
        names = tile_registers[instruction]
        values = row[own + NmpEvent.TILE :].tolist()
        return dict(zip(names, values, strict=False))

    numbers: dict[int, int] = {}  # instructions of a tile share one mapping
    kinds = [numbers.setdefault(id(one), len(numbers)) for one in tile_registers]
    mappings = list({id(one): one for one in tile_registers}.values())
    kind_of = np.array([*kinds, len(mappings)], np.int64)

    def tiles_of(table: NDArray[np.int64]) -> list[str]:
        rows = np.minimum(table[:, EventColumn.ROW], len(tile_registers))
        keys = np.concatenate([kind_of[rows, None], table[:, own + NmpEvent.TILE :]], axis=1)
        known: dict[tuple[int, ...], str] = {}
        found = []
        for key in map(tuple, keys.tolist()):
            text = known.get(key)
            if text is None:
                names = mappings[key[0]] if key[0] < len(mappings) else ()
                text = known[key] = tile_text(dict(zip(names, key[1:], strict=False)))
            found.append(text)
        return found

    def accesses_of(row: NDArray[np.int64]) -> tuple[Access, ...]:
        core, tlts, tles = row[own : own + NmpEvent.FIRST_ACCESS].tolist()
        found = []
        for k in range(NmpEvent.ACCESSES):
            at = own + NmpEvent.FIRST_ACCESS + 4 * k
            memory, begin, end, writes = row[at : at + 4].tolist()
            if end <= begin:
                continue
            users = [core]
            if writes and row[EventColumn.LINKS]:
                users = [
                    other
                    for other in range(machine.core_count)
                    if tles >> (other // tle_size) & tlts >> (other % tle_size) & 1
                ]
            found += [Access(f"{PARTS[memory]} {n}", begin, end, bool(writes)) for n in users]
        return tuple(found)

    def spans_of(table: NDArray[np.int64]) -> Spans:
        events = np.arange(len(table))
        firsts = range(own + NmpEvent.FIRST_ACCESS, own + NmpEvent.TILE, 4)
        return Spans.joined(PARTS, [(events, *table[:, at : at + 4].T) for at in firsts])

    count = int(state.event_count[0])
    names = Names(
        units=tuple(unit.name for unit in machine.units() if unit.role != "memory"),
        links=tuple(link.name for link in machine.links()),
        layers=layer_names,
        what=[mnemonics[number] if number >= 0 else "" for number in state.decoded[:, 0]],
        tile_of=tile_of,
        accesses_of=accesses_of,
        spans_of=spans_of,
        tiles_of=tiles_of,
        makers=tuple(unit.name for unit in machine.units() if unit.role == "control"),
    )
    return Events(names, state.events[:count], state.event_times[:count])
