"""The tile simulator's Python face: load a program once, run it many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.blas import serial_blas
from tvm_npu.sim.compiled.listening import LONG_MOVES, LONG_WORK, Listening
from tvm_npu.sim.compiled.slices import (
    ANY_INSTRUCTIONS,
    EXECUTED,
    begin_run,
    interrupts,
    next_slice,
)
from tvm_npu.sim.dram import check_room, write_bytes
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.event_table import check_events, event_room
from tvm_npu.sim.events import EventSink
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.limits import MOST_WORK
from tvm_npu.sim.locks import ForkedLock
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.tiles import engine
from tvm_npu.sim.tiles.dma_control import ControlTrap, DmaControl
from tvm_npu.sim.tiles.events import collect_events
from tvm_npu.sim.tiles.isa import TILE_ISA, TileMemory, TileRegister
from tvm_npu.sim.tiles.longest import longest_work
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine
from tvm_npu.sim.tiles.reads import READS
from tvm_npu.sim.tiles.state import Costs, grown, make_costs, make_state, reset_for_run
from tvm_npu.sim.tiles.statistics import collect
from tvm_npu.sim.tiles.traps import DETAIL_FORMATS, TileTrapCode, TrapSlot
from tvm_npu.sim.tiles.watching import Steps
from tvm_npu.sim.traps import Place, Trap
from tvm_npu.sim.watch import Watch

SEGMENTS = (TileMemory.CONSTANTS, TileMemory.ACTIVATIONS)


class TileSimulator:
    """One tile machine with one program.

    ``code`` are instruction words; they run from the first one until ``tend``. ``segments`` gives
    (address, bytes) of CONSTANTS and ACTIVATIONS, which lie in the ``dram_bytes`` from
    ``machine.dram.base_address`` on. ``precision`` is the numeric type of the elements.
    ``layer_of`` gives each word's layer (-1: none) for statistics and traps. More than
    ``most_work`` products, elements and bytes in a run trap, and so do more than ``budget``
    instructions: words, and instructions of DMA programs.
    """

    def __init__(
        self,
        machine: TileMachine,
        code: NDArray[np.uint32],
        segments: Mapping[TileMemory, tuple[int, int]],
        dram_bytes: int,
        *,
        precision: Precision = "int8",
        layer_names: Sequence[str] = (),
        layer_of: NDArray[np.int32] | None = None,
        budget: int = ANY_INSTRUCTIONS,
        most_work: int = MOST_WORK,
    ) -> None:
        check_room(machine, dram_bytes)
        base = machine.dram.base_address
        places = {}
        for memory in SEGMENTS:
            address, size = segments.get(memory, (base, 0))
            if address < base or size < 0 or address + size > base + dram_bytes:
                raise SimError(
                    f"segment {memory.name} at {address:#x}..{address + size:#x} does not lie in "
                    f"the image at {base:#x}..{base + dram_bytes:#x}"
                )
            places[memory] = (address - base, size)
        self.machine = machine
        self.layer_names = tuple(layer_names)
        self.precision: Precision = precision
        self._limits = most_work, budget
        self._lock = ForkedLock()
        self._dram_bytes = dram_bytes
        words = np.ascontiguousarray(code, np.uint32)
        layers = np.full(len(words), -1) if layer_of is None else np.asarray(layer_of, np.int32)
        top = len(self.layer_names)
        if layers.shape != (len(words),) or not ((layers >= -1) & (layers < top)).all():
            raise SimError(f"layer_of needs {len(words)} numbers from -1 to {top - 1}")
        decoded = TILE_ISA.decode_array(words)
        self._runs = Listening(longest_work(decoded) > LONG_WORK or dram_bytes > LONG_MOVES)
        self._state = make_state(
            machine, precision, decoded, words, dram_bytes, places, layers, top
        )

    @property
    def dram(self) -> NDArray[np.uint8]:
        """The image's DRAM, from the machine's base address on; a view, writable."""
        self._runs.settle()
        return self._state.memory[: self._dram_bytes]

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copies bytes into DRAM."""
        write_bytes(self.dram, self.machine.dram.base_address, address, data)

    def run(
        self,
        *,
        timing: bool = True,
        events: EventSink | None = None,
        watch: Watch | None = None,
    ) -> RunStatistics:
        """Executes the program. Raises Trap; the simulator can be used again after one.
        Values do not depend on ``timing``, and what is on chip does not survive a run. Neither
        values nor statistics depend on ``events``, which gets the run's events, and ``watch``."""
        return self._runs.call(lambda: self._run(timing, events, watch))

    def _run(
        self, timing: bool, events: EventSink | None, watch: Watch | None
    ) -> RunStatistics:
        with self._lock(), serial_blas, interrupts:
            records = events is not None
            if records:  # a command brings two at most
                commands = np.count_nonzero(self._state.decoded[:, 0] > engine.TSETU)
                check_events(2 * int(commands), self._state.events.shape[1])
            if records and not len(self._state.events):
                room = event_room(self._state.events.shape[1])
                self._state = self._state._replace(**room)
            reset_for_run(self._state)
            begin_run(self._state.work, *self._limits)
            costs = make_costs(self.machine, self.precision, self._state, timing, records)
            control = None
            if self.machine.dmac is not None:
                control = DmaControl(self.machine, self._state, self._dram_bytes, timing, records)
            steps = None
            if watch is not None:
                steps = Steps(watch, self.machine, self._dram_bytes, self._place)
            while self._goes_on(costs, control, steps):
                pass
            if events is not None:
                dma = [] if control is None else control.events
                events.record(collect_events(self._state, self.machine, self.layer_names, dma))
            element_bytes = ELEMENT_BYTES[self.precision]
            return collect(self._state, costs, self.machine, self.layer_names, element_bytes)

    def _goes_on(self, costs: Costs, control: DmaControl | None, steps: Steps | None) -> bool:
        """Until the loop over words comes back; whether there is more. Raises Trap."""
        if steps is not None:
            steps.begin(self._state)
        outcome, self._state = engine.run(self._state, costs)
        if steps is not None:
            steps.end(self._state, outcome == engine.TRAPPED)
        if outcome == engine.TRAPPED:
            raise self._trap()
        if outcome == engine.PAUSED:
            next_slice(self._state.work)
        elif outcome == engine.GROW:
            self._state = grown(self._state)
        else:
            self._control(control)
            if steps is not None:
                steps.controlled(self._state, control)
        return outcome != engine.ENDED

    def _control(self, control: DmaControl | None) -> None:
        """tgo, twait or tend, at `State.pc`."""
        state = self._state
        row = int(state.pc[0])
        operation = int(state.decoded[row, 0])
        try:
            if operation == engine.TEND:
                if control is not None:
                    control.finish()
                return
            if control is None:
                raise ControlTrap(TileTrapCode.NO_UNIT)
            if operation == engine.TGO:
                control.go(row)
            else:
                control.wait(row)
        except ControlTrap as stop:
            state.trap[TrapSlot.CODE], state.trap[TrapSlot.ROW] = stop.code, row
            state.trap[[TrapSlot.A, TrapSlot.B, TrapSlot.C]] = stop.numbers
            state.trap[TrapSlot.MEMORY] = stop.memory
            state.trap[TrapSlot.REGISTER] = stop.register
            raise self._trap(stop.text) from stop
        state.layer_instructions[state.layer_of[row]] += 1
        state.work[EXECUTED] += 1
        state.pc[0] = row + 1

    def _trap(self, text: str = "") -> Trap:
        state, record = self._state, self._state.trap.tolist()
        code, row = TileTrapCode(record[TrapSlot.CODE]), record[TrapSlot.ROW]
        place = self._place(row)
        mnemonic = place.instruction.split()[0] if place.instruction else ""
        registers = {r.name: int(state.registers[r]) for r in READS.get(mnemonic, ())}
        place = replace(place, registers=registers)
        detail = DETAIL_FORMATS[code].format(
            a=record[TrapSlot.A],
            b=record[TrapSlot.B],
            c=record[TrapSlot.C],
            memory=self._memory_name(record[TrapSlot.MEMORY]),
            register=TileRegister(record[TrapSlot.REGISTER]).name,
            machine=self.machine.name,
            text=text,
            unit="mover" if mnemonic in ("tload", "tstore") else "DMA controller",
        )
        return Trap(code, place, detail)

    def _place(self, row: int) -> Place:
        place = Place(position=f"instruction {row}", index=row)
        if row >= len(self._state.words):
            return place
        number = int(self._state.layer_of[row])
        return replace(
            place,
            instruction=disassemble(int(self._state.words[row]), TILE_ISA),
            layer=self.layer_names[number] if number < len(self.layer_names) else "",
        )

    def _memory_name(self, number: int) -> str:
        if number >= len(TileMemory):
            return f"memory {number}"
        memory = TileMemory(number)
        if memory in SEGMENTS:
            return memory.name
        if memory < TileMemory.BIAS and isinstance(self.machine.memories, SharedMemory):
            return f"the shared memory (as {memory.name})"
        return f"the {memory.name.lower()} memory"
