"""Events of a Snowflake device's run, read out of its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.events import Access, EventColumn, Events, Names, Spans
from tvm_npu.sim.snowflake.columns import CAUSE, LOAD_LANE, SnowflakeEvent
from tvm_npu.sim.snowflake.isa import COLUMN, SNOWFLAKE_ISA, VMACS, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.recording import ICACHE_BIT, WBUF_BIT, WRITTEN_BIT
from tvm_npu.sim.snowflake.state import State


def collect_events(
    state: State, machine: SnowflakeMachine, layer_names: tuple[str, ...], timing: bool
) -> Events:
    """The events of the run that just ended in ``state``; without ``timing`` all at time 0."""
    clusters, cus = machine.clusters.count, machine.clusters.cus
    units = tuple(unit.name for unit in machine.units() if unit.role != "memory")

    def accesses_of(row: NDArray[np.int64]) -> tuple[Access, ...]:
        masks, *packed = row[EventColumn.OWN : EventColumn.OWN + len(SnowflakeEvent)].tolist()
        a, b, w, out, memory = ((p & 0xFFFFFFFF, p >> 32 & 0xFFFFFFFF) for p in packed)
        cluster = int(row[EventColumn.UNIT]) % clusters
        loads = int(row[EventColumn.UNIT]) // clusters == LOAD_LANE
        if memory[1]:
            return (Access("dram", *memory, bool(masks)),)
        if masks >> ICACHE_BIT:
            return (Access(f"icache {cluster}", *w, True),)
        found = []
        for u in range(cus):
            cu = cluster * cus + u
            for v in range(VMACS):
                if w[1] and masks >> WBUF_BIT + VMACS * u + v & 1:
                    found.append(_words(f"wbuf {cu * VMACS + v}", w, loads))
            for words in (a, b):
                if words[1] and masks >> u & 1:
                    found.append(_words(f"mbuf {cu}", words, False))
            if out[1] and masks >> WRITTEN_BIT + u & 1:
                found.append(_words(f"mbuf {cu}", out, True))
        return tuple(found)

    def spans_of(table: NDArray[np.int64]) -> Spans:
        masks = table[:, EventColumn.OWN]
        a, b, w, out, memory = (
            (column & 0xFFFFFFFF, column >> 32 & 0xFFFFFFFF)
            for column in table[:, EventColumn.OWN + 1 : EventColumn.OWN + len(SnowflakeEvent)].T
        )
        events, chip = np.arange(len(table)), memory[1] == 0
        loads = table[:, EventColumn.UNIT] // clusters == LOAD_LANE
        fetches = chip & (masks >> ICACHE_BIT != 0)
        used = chip & ~fetches
        cus_read = used & (masks % (1 << WRITTEN_BIT) != 0)
        cus_written = used & (masks % (1 << WBUF_BIT) >> WRITTEN_BIT != 0)
        wbufs = used & (masks >> WBUF_BIT != 0)

        def words(where: NDArray[np.bool_], part: int, span: Any, writes: Any) -> tuple[Any, ...]:
            begin, end = (np.where(where, WORD_BYTES * side, 0) for side in span)
            return events, part, begin, end, writes

        return Spans.joined(
            ("mbuf", "wbuf", "icache", "dram"),
            [
                words(cus_read, 0, a, False),
                words(cus_read, 0, b, False),
                words(cus_written, 0, out, True),
                words(wbufs, 1, w, loads),
                (events, 2, *(np.where(fetches, side, 0) for side in w), True),
                (events, 3, *memory, masks != 0),
            ],
        )

    count = int(state.event_count[0])
    names = Names(
        units=units,
        links=tuple(link.name for link in machine.links()),
        layers=layer_names,
        what=_what(state.decoded),
        tile_of=lambda row: {},
        accesses_of=accesses_of,
        spans_of=spans_of,
        makers=tuple(f"cu {number}" for number in range(clusters * cus)),
        causes=("", *(name.lower().replace("_", " ") for name in CAUSE._fields)),
    )
    return Events(names, state.events[:count], (1.0 if timing else 0.0) * state.event_times[:count])


def _words(memory: str, words: tuple[int, int], writes: bool) -> Access:
    return Access(memory, WORD_BYTES * words[0], WORD_BYTES * words[1], writes)


def _what(decoded: NDArray[np.int32]) -> Sequence[str]:
    """Instructions by what tells them apart in a trace: ``mac coop``, ``vmov bias``."""
    modes = {}
    for number, instruction in enumerate(SNOWFLAKE_ISA.instructions):
        for field in instruction.fields:
            if field.column == "mode" and field.names is not None:
                for item in field.names:
                    modes[number, int(item)] = f"{instruction.mnemonic} {item.name.lower()}"
    mnemonics = ["", *(instruction.mnemonic for instruction in SNOWFLAKE_ISA.instructions)]
    rows = decoded[:, [0, COLUMN["mode"]]].tolist()
    return [modes.get((number, mode), mnemonics[number + 1]) for number, mode in rows]
