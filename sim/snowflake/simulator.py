"""The Snowflake simulator's Python face: load a program once, run it many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled.listening import LONG_BYTES, Listening
from tvm_npu.sim.compiled.slices import interrupts
from tvm_npu.sim.dram import check_room, write_bytes
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.event_table import event_room
from tvm_npu.sim.events import EventSink
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.locks import ForkedLock
from tvm_npu.sim.snowflake import engine, watching
from tvm_npu.sim.snowflake.columns import MOST_HAZARDS, H
from tvm_npu.sim.snowflake.events import collect_events
from tvm_npu.sim.snowflake.isa import SNOWFLAKE_ISA, Destination
from tvm_npu.sim.snowflake.machine import VMACS, SnowflakeMachine
from tvm_npu.sim.snowflake.registers import (
    READ_BY_FINISH,
    READ_BY_LD,
    READ_BY_STREAM,
    READ_BY_TMOV,
    READ_BY_VMOV,
)
from tvm_npu.sim.snowflake.state import State, make_costs, make_state, reset_for_run, resumed
from tvm_npu.sim.snowflake.statistics import TraceProfile, collect, profile
from tvm_npu.sim.snowflake.traps import (
    DETAIL_FORMATS,
    MEMORY_NAMES,
    OPERAND_NAMES,
    SnowflakeTrapCode,
    TrapMemory,
    TrapOperand,
    TrapSlot,
)
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.traps import Place, Trap
from tvm_npu.sim.watch import Watch

MOST_INSTRUCTIONS = 1 << 32
MOST_WORK = 1 << 38
"""Products and moved words of a run, at most."""

_SPECIALS_SHOWN = {
    "mac": READ_BY_FINISH | READ_BY_STREAM, "max": READ_BY_STREAM, "vmov": READ_BY_VMOV,
    "ld": READ_BY_LD, "tmov": READ_BY_TMOV,
}  # fmt: skip


@dataclass(frozen=True)
class Segment:
    """Bytes of a device's memory that belong together, at an absolute address."""

    address: int
    size_bytes: int
    writable: bool


@dataclass(frozen=True)
class Hazard:
    """Two instructions that touch the same place of a memory, one of them writing, while nothing
    says that the earlier one is complete. Both touch some of ``begin`` to ``end`` (not included):
    words of a buffer, bytes of memory; ``cus`` are the CUs whose buffers it is."""

    earlier: Place
    later: Place
    memory: str
    begin: int
    end: int
    cus: tuple[int, ...]

    def __str__(self) -> str:
        unit = "bytes" if self.memory == MEMORY_NAMES[TrapMemory.MEMORY] else "words"
        of = f" of CU {', '.join(map(str, self.cus))}" if self.cus else ""
        return (
            f"{unit} {self.begin}..{self.end - 1} of {self.memory}{of}: {self.later} touches them, "
            f"and {self.earlier} may not be complete"
        )


class SnowflakeSimulator:
    """One device of a Snowflake machine with one program.

    ``code`` has the instruction words of each cluster; clusters may share an array. ``segments``
    lie in the ``memory_bytes`` from ``machine.dram.base_address`` on; instructions see addresses
    without that base.
    ``layer_of`` gives each word's layer (-1: none), cluster by cluster. More than ``budget``
    instructions or ``most_work`` products and moved words in a run trap.
    """

    def __init__(
        self,
        machine: SnowflakeMachine,
        code: Sequence[NDArray[np.uint32]],
        segments: Sequence[Segment],
        memory_bytes: int,
        *,
        layer_names: Sequence[str] = (),
        layer_of: Sequence[NDArray[np.int32]] | None = None,
        budget: int = MOST_INSTRUCTIONS,
        most_work: int = MOST_WORK,
    ) -> None:
        if len(code) != machine.clusters.count:
            raise SimError(
                f"{len(code)} code images; {machine.name} has {machine.clusters.count} clusters"
            )
        self.machine = machine
        self.layer_names = tuple(layer_names)
        self._limits = budget, most_work
        self._lock = ForkedLock()
        operands = machine.clusters.mbuf_bytes + VMACS * machine.clusters.wbuf_bytes
        self._runs = Listening(operands > LONG_BYTES)
        self._memory_bytes = memory_bytes
        self._words = tuple(np.ascontiguousarray(words, np.uint32) for words in code)
        # Clusters that are given the same array run one code, which lies there once.
        own = [k for k, words in enumerate(code) if not any(words is one for one in code[:k])]
        lengths = [len(self._words[k]) for k in own]
        ends = dict(zip((id(code[k]) for k in own), np.cumsum(lengths).tolist(), strict=True))
        self._begins = [ends[id(words)] - len(words) for words in code]
        places = np.array([[self._begins[k], len(one)] for k, one in enumerate(code)], np.int64)
        self._state: State = make_state(
            machine,
            SNOWFLAKE_ISA.decode_array(np.concatenate([self._words[k] for k in own])),
            places,
            self._layers(layer_of, own, lengths),
            len(self.layer_names),
            memory_bytes,
            self._places(segments),
        )

    def _layers(
        self, layer_of: Sequence[NDArray[np.int32]] | None, own: list[int], lengths: list[int]
    ) -> NDArray[np.int32]:
        """Of the codes of clusters ``own``, one behind the other."""
        if layer_of is None:
            return np.full(sum(lengths), -1, np.int32)
        top = len(self.layer_names)
        good = [len(layers) for layers in layer_of] == [len(words) for words in self._words]
        layers = np.concatenate([np.asarray(layer_of[k], np.int32) for k in own]) if good else (
            np.zeros(0, np.int32)
        )
        if not good or not ((layers >= -1) & (layers < top)).all():
            raise SimError(f"layer_of needs a number from -1 to {top - 1} for each word")
        return layers

    def _places(self, segments: Sequence[Segment]) -> NDArray[np.int64]:
        check_room(self.machine, self._memory_bytes)
        dram = self.machine.dram
        places = np.zeros((len(segments), 3), np.int64)
        for place, segment in zip(places, segments, strict=True):
            begin = segment.address - dram.base_address
            end = begin + segment.size_bytes
            if begin < 0 or segment.size_bytes < 0 or end > self._memory_bytes:
                raise SimError(
                    f"a segment of {segment.size_bytes} bytes at {segment.address:#x} does not lie "
                    f"in the image's {self._memory_bytes} bytes from {dram.base_address:#x} on"
                )
            place[:] = begin, end, segment.writable
        return places

    @property
    def dram(self) -> NDArray[np.uint8]:
        """The device's memory, from the machine's base address on; a view, writable."""
        self._runs.settle()
        return self._state.memory[: self._memory_bytes]

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copies bytes into memory, to an absolute address."""
        write_bytes(self.dram, self.machine.dram.base_address, address, data)

    def run(
        self,
        *,
        timing: bool = True,
        events: EventSink | None = None,
        watch: Watch | None = None,
    ) -> RunStatistics:
        """Executes the program. Raises Trap; the simulator can be used again after one. Neither
        values nor statistics depend on ``events``, which gets the run's events, nor on ``watch``; a
        watched run has no events.

        Without ``timing`` a hazard is a trap; with it a program with hazards runs, and computes
        what its times make of them (`hazards`). What is on chip does not survive a run.
        """
        return self._runs.call(lambda: self._run(timing, events, watch))

    def _run(
        self, timing: bool, events: EventSink | None, watch: Watch | None
    ) -> RunStatistics:
        with self._lock(), interrupts:
            records = events is not None or watch is not None
            if records and not len(self._state.events):
                room = event_room(self._state.events.shape[1])
                self._state = self._state._replace(**room)
            reset_for_run(self._state, self.machine, *self._limits)
            costs = make_costs(self.machine, strict=not timing, records=records)
            if watch is not None:
                outcome, self._state = watching.run(self._state, costs, watch, self._place)
            else:
                while (outcome := engine.run_device(self._state, costs)) == engine.FULL:
                    self._state = resumed(self._state)
            if outcome == engine.TRAPPED:
                raise self._trap()
            if events is not None and watch is None:
                events.record(
                    collect_events(self._state, self.machine, self.layer_names, timing)
                )
            return collect(self._state, self.machine, self.layer_names, timing)

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """What the race checker found in the last run, at most the first 64."""
        count = min(int(self._state.hazard_count[0]), MOST_HAZARDS)
        found = []
        for record in self._state.hazards[:count].tolist():
            cus = tuple(u for u in range(self.machine.clusters.cus) if record[H.CUS] >> u & 1)
            found.append(
                Hazard(
                    self._place(record[H.EARLIER_CLUSTER], record[H.EARLIER]),
                    self._place(record[H.LATER_CLUSTER], record[H.LATER]),
                    MEMORY_NAMES[TrapMemory(record[H.MEMORY])],
                    record[H.BEGIN],
                    record[H.END],
                    cus,
                )
            )
        return tuple(found)

    @property
    def profile(self) -> tuple[TraceProfile, ...]:
        """Numbers and lengths of the last run's vector instructions and transfers, by layer."""
        return profile(self._state, self.layer_names)

    def _place(self, cluster: int, row: int) -> Place:
        """Where row ``row`` of all code stands; -1: nowhere in it."""
        unit = f"cluster {cluster}"
        if row < 0:
            return Place(unit)
        index = row - self._begins[cluster]
        number = int(self._state.layer_of[row])
        return Place(
            unit,
            f"instruction {index}",
            index,
            instruction=disassemble(int(self._words[cluster][index]), SNOWFLAKE_ISA),
            layer=self.layer_names[number] if number < len(self.layer_names) else "",
        )

    def _trap(self) -> Trap:
        record = self._state.trap.tolist()
        code, cluster = SnowflakeTrapCode(record[TrapSlot.CODE]), record[TrapSlot.CLUSTER]
        row = record[TrapSlot.ROW]
        place = self._place(cluster, row)
        text = "the bank holds none there" if row < 0 else place.instruction
        if code is SnowflakeTrapCode.HAZARD:
            text = str(self.hazards[-1])
        detail = DETAIL_FORMATS[code].format(
            a=record[TrapSlot.A],
            b=record[TrapSlot.B],
            c=record[TrapSlot.C],
            memory=MEMORY_NAMES[TrapMemory(record[TrapSlot.MEMORY])],
            operand=_operand_name(record[TrapSlot.OPERAND]),
            text=text,
        )
        registers = self._registers(cluster, row) if row >= 0 else {}
        return Trap(code, replace(place, registers=registers), detail)

    def _registers(self, cluster: int, row: int) -> dict[str, int]:
        """The registers that an instruction reads, as they are now."""
        decoded = SNOWFLAKE_ISA.decode(int(self._words[cluster][row - self._begins[cluster]]))
        if decoded is None:
            return {}
        instruction, operands = decoded
        shown = [
            operands[field.name]
            for field in instruction.fields
            if field.names is not None and field.column in ("rs1", "rs2", "rs3")
        ]
        mask = _SPECIALS_SHOWN.get(instruction.mnemonic, 0)
        shown += [int(item) for item in Destination if mask >> int(item) & 1]
        values = self._state.registers[cluster]
        return {_operand_name(number): int(values[number]) for number in shown}


def _operand_name(number: int) -> str:
    if number < TrapOperand.MODE:
        return Destination(number).name  # type: ignore[call-arg]
    return OPERAND_NAMES[TrapOperand(number)]
