"""tgo and twait: the core starts programs of the DMA controller and waits for their events.

Time and bytes are the controller's own (`sim.pl330`); here a template gets its addresses, and what
is in flight is noted, so that a command that touches it traps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled.slices import ALLOWED, DONE, EXECUTABLE
from tvm_npu.sim.parts.pl330 import Dmac, DmacError, DmacTrapCode, Transfer
from tvm_npu.sim.parts.pl330.execution import INSTRUCTION_WORK
from tvm_npu.sim.tiles.isa import COLUMNS_OF, Direction, TileMemory, TileRegister, TransferStream
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.state import ISSUE, MOVER, State
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Trap

CHIP_BASE = 0
"""Where the controller finds the memories on chip, one behind the other as in `State`."""

HEADER_WORDS = 4
"""Of a template: bytes of the program, place of the chip address, event, other addresses."""
MOST_ADDRESSES = 1 << 16

ISSUE_CYCLES = 1.0
"""Of tgo and twait, as of every word."""
CONTROL_WORK = 1 << 14
"""Of tgo and twait, which Python does: each takes about as long as so many bytes."""

Box = tuple[int, int, int, int, int, int]
NO_BOX: Box = (0, 0, 0, 0, 0, 0)


def box_of(runs: NDArray[np.int64] | None) -> Box:
    """[runs, 2] begins and ends as (begin, bytes of a run, runs, bytes from run to run, groups of
    runs, bytes from group to group); `NO_BOX` where they are no such box, or not known."""
    if runs is None or not len(runs):
        return NO_BOX
    begins, sizes = runs[:, 0], runs[:, 1] - runs[:, 0]
    first, size, count = int(begins[0]), int(sizes[0]), len(runs)
    steps = np.diff(begins)
    inner = 1 + int(np.argmax([*(steps != steps[:1]), True])) if count > 1 else 1
    step = int(steps[0]) if inner > 1 else 0
    groups, group_step = count // inner, int(begins[inner] - first) if inner < count else 0
    box = first, size, inner, step, groups, group_step
    at = first + np.arange(groups)[:, None] * group_step + np.arange(inner) * step
    regular = (sizes == size).all() and inner * groups == count
    return box if regular and np.array_equal(at.reshape(-1), begins) else NO_BOX


class ControlTrap(Exception):
    """tgo or twait cannot be done: the code and numbers of a trap, its text where it has one."""

    def __init__(
        self,
        code: TileTrapCode,
        numbers: tuple[int, int, int] = (0, 0, 0),
        memory: int = 0,
        register: int = 0,
        text: str = "",
    ) -> None:
        super().__init__(code.name)
        self.code, self.numbers, self.memory, self.register = code, numbers, memory, register
        self.text = text


@dataclass(frozen=True)
class DmaEvent:
    """The transfer of one program, or a wait of the core for it (no bytes, no addresses): the word
    that started it, its channel (-1: the core), stream and link; indices into `State.memory` of
    what it moves on chip; of a store the box that it writes (`box_of`)."""

    row: int
    begin_cycles: float
    end_cycles: float
    channel: int = -1
    stream: int = 0
    link: int = 0
    moved_bytes: int = 0
    chip_address: int = 0
    box: Box = NO_BOX


@dataclass(frozen=True)
class _Flight:
    """A program in flight: its event, when it began, which word and layer it is of, what it moves;
    bytes that the channel has stored when it has moved all that tgo said."""

    event: int
    begin_cycles: float
    row: int
    layer: int
    stream: int
    link: int
    chip_address: int
    moved_bytes: int
    stored_bytes: int


class DmaControl:
    """The core's side of the DMA controller during one run. ``timed`` False: the core's clock
    stands still, the controller's does not. ``records``: `events` has what it did."""

    def __init__(
        self, machine: TileMachine, state: State, dram_bytes: int, timed: bool, records: bool
    ) -> None:
        assert machine.dmac is not None
        self._machine, self._state = machine, state
        self._timed, self._records = timed, records
        self._chip_begin = int(state.places[: TileMemory.CONSTANTS, 0].min())
        chip_end = self._chip_begin + len(state.written)
        self._dmac = Dmac(
            machine.dmac,
            state.memory[:dram_bytes],
            state.memory[self._chip_begin : chip_end],
            ddr_base=machine.dram.base_address,
            on_chip_base=CHIP_BASE,
            work=state.work,
        )
        self._flights: dict[int, _Flight] = {}
        self._now = 0.0
        self.events: list[DmaEvent] = []

    def go(self, row: int) -> None:
        """tgo at word ``row``. Raises ControlTrap."""
        s, decoded = self._state, self._state.decoded[row]
        memory, base, stream, channel, direction = (
            int(decoded[COLUMNS_OF["tgo"][name]])
            for name in ("mem", "base", "stream", "channel", "direction")
        )
        self._check(memory, base, stream, direction)
        address = self._register(TileRegister.ADDRESS)
        chip = self._register(TileRegister.CHIP_OFFSET)
        extent = self._register(TileRegister.EXTENT_BYTES)
        moved = self._register(TileRegister.MOVED_BYTES)
        self._inside(memory, chip, moved, TileRegister.CHIP_OFFSET)
        self._inside(base, address, extent, TileRegister.ADDRESS)
        chip_at = int(s.places[memory, 0]) + chip
        outside = int(s.places[base, 0]) + address
        loads = direction == Direction.LOAD
        self._no_conflict(loads, memory, chip_at, moved, outside, extent)
        if not loads:
            self._written(memory, chip, chip_at, moved)
        ddr_address = self._machine.dram.base_address + outside
        chip_address = chip_at - self._chip_begin + CHIP_BASE
        program, event, patches = self._program(ddr_address, chip_address)
        self._awaited(channel, event)
        layer = int(s.layer_of[row])
        now = self._pass(ISSUE_CYCLES + self._patching_cycles(patches))
        transfer = Transfer(loads, chip_address, ddr_address, extent, event)
        try:  # the event of the channel's last program is there, its last instruction may not be
            now = self._dmac.wait_stopped(channel, now)
            self._arrive(now)
            self._dmac.start(channel, program, now, transfer)
        except (DmacError, Trap) as error:
            raise self._fault(error) from error
        if loads:
            s.written[chip_at - self._chip_begin : chip_at - self._chip_begin + moved] = 1
        s.tile_key[:] = -1
        s.columns_key[:] = -1
        s.flights[channel] = 1, int(loads), chip_at, chip_at + moved, outside, outside + extent
        stored = self._dmac.statistics(channel).stored_bytes + moved
        link = 0 if loads else 1
        self._flights[channel] = _Flight(
            event, now, row, layer, stream, link, chip_at, moved, stored
        )
        s.layer_bytes[layer, link, stream] += moved
        s.layer_memory_bytes[layer, memory, 1 if loads else 0] += moved
        s.layer_runs[layer] += 1

    def stores_in_flight(self) -> Iterator[tuple[int, int, int]]:
        """Of programs that nobody has waited for: the word that started one, and from where to
        where in DRAM it writes."""
        for channel, flight in self._flights.items():
            _, loads, _, _, begin, end = self._state.flights[channel].tolist()
            if not loads:
                yield flight.row, begin, end

    def wait(self, row: int) -> None:
        """twait at word ``row``. Raises ControlTrap."""
        s = self._state
        event = int(s.decoded[row, COLUMNS_OF["twait"]["event"]])
        self._spend(CONTROL_WORK)
        before = self._pass(ISSUE_CYCLES)
        try:
            now = self._dmac.wait(event, before)
        except (DmacError, Trap) as error:
            raise self._fault(error) from error
        self._arrive(now)
        layer = int(s.layer_of[row])
        if self._timed:
            s.layer_wait[layer] += self._now - before
            if self._records and self._now > before:
                self.events.append(DmaEvent(row, before, self._now))
            s.layer_end[layer] = max(s.layer_end[layer], now)
        for channel, flight in list(self._flights.items()):
            if flight.event == event:
                self._land(channel, now)

    def finish(self) -> None:
        """tend: until all programs have ended. Raises ControlTrap."""
        try:
            self._arrive(max(self._now, self._dmac.run()))
        except Trap as error:
            raise self._fault(error) from error
        for channel in list(self._flights):
            self._land(channel, self._now)

    def _spend(self, units: int) -> None:
        """Counts work that the controller does not see."""
        work = self._state.work
        work[DONE] += units
        if work[DONE] > work[ALLOWED]:
            raise ControlTrap(TileTrapCode.BUDGET, (int(work[ALLOWED]), 0, 0))

    def _fault(self, error: DmacError | Trap) -> ControlTrap:
        """The controller's fault as one of the word at hand."""
        work = self._state.work
        if isinstance(error, Trap) and error.code == DmacTrapCode.BUDGET:
            return ControlTrap(TileTrapCode.BUDGET, (int(work[ALLOWED]), 0, 0))
        if isinstance(error, Trap) and error.code == DmacTrapCode.RUNAWAY:
            return ControlTrap(TileTrapCode.RUNAWAY, (int(work[EXECUTABLE]), 0, 0))
        return ControlTrap(TileTrapCode.DMA, text=str(error))

    def _land(self, channel: int, now: float) -> None:
        s, flight = self._state, self._flights.pop(channel)
        s.flights[channel] = 0
        excess = self._dmac.statistics(channel).stored_bytes - flight.stored_bytes
        if excess:
            text = (
                f"the program of channel {channel} moved {flight.moved_bytes + excess} bytes; its "
                f"tgo said {flight.moved_bytes} (MOVED_BYTES)"
            )
            raise ControlTrap(TileTrapCode.DMA, text=text)
        begin, done = 0.0, 0.0
        if self._timed:
            begin = flight.begin_cycles
            done = min(now, self._dmac.signal_cycles(flight.event))
        if self._records:
            box = box_of(self._dmac.stored_runs(channel)) if flight.link == 1 else NO_BOX
            self.events.append(
                DmaEvent(
                    flight.row, begin, done, channel, flight.stream, flight.link,
                    flight.moved_bytes, flight.chip_address, box,
                )
            )  # fmt: skip
        if self._timed:
            s.layer_busy[flight.layer, 1 + channel] += done - begin
            s.layer_end[flight.layer] = max(s.layer_end[flight.layer], done)

    def _pass(self, cycles: float) -> float:
        """The time now, after ``cycles`` of the core's."""
        if self._timed:
            self._state.clock[ISSUE] += cycles
            self._now = max(self._now, float(self._state.clock[ISSUE]))
        return self._now

    def _arrive(self, now: float) -> None:
        self._now = now
        if self._timed:
            self._state.clock[ISSUE] = max(self._state.clock[ISSUE], now)
            self._state.clock[MOVER] = max(self._state.clock[MOVER], now)

    def _patching_cycles(self, patches: int) -> float:
        """The core writes every address into the template, which lies outside of the chip."""
        core = self._machine.core
        assert core is not None
        access = core.dram_access_cycles if core.cache_bytes == 0 else core.hit_cycles
        return patches * (core.operation_cycles + access)

    def _register(self, register: TileRegister) -> int:
        return int(self._state.registers[register])

    def _check(self, memory: int, base: int, stream: int, direction: int) -> None:
        if stream >= len(TransferStream) or direction >= len(Direction):
            raise ControlTrap(
                TileTrapCode.ILLEGAL_INSTRUCTION,
                (int(self._state.words[self._state.pc[0]]), 0, 0),
            )
        if memory > TileMemory.BIAS:
            raise ControlTrap(TileTrapCode.WRONG_MEMORY, memory=memory)
        readable = base == TileMemory.CONSTANTS and direction == Direction.LOAD
        if base != TileMemory.ACTIVATIONS and not readable:
            raise ControlTrap(TileTrapCode.WRONG_MEMORY, memory=base)

    def _inside(self, memory: int, begin: int, size: int, register: TileRegister) -> None:
        limit = int(self._state.places[memory, 1])
        if begin < 0 or size < 1 or begin + size > limit:
            outside = memory >= TileMemory.CONSTANTS
            code = TileTrapCode.TRANSFER_OUTSIDE if outside else TileTrapCode.TILE_OUTSIDE
            raise ControlTrap(code, (begin, begin + size, limit), memory, int(register))

    def _awaited(self, channel: int, event: int) -> None:
        """The channel's last program and its event are over, whatever the machine's timing."""
        for other, flight in self._flights.items():
            if other == channel:
                text = f"channel {channel} is started again before a wait for its event"
                raise ControlTrap(TileTrapCode.DMA, text=f"{text} {flight.event}")
            if flight.event == event:
                text = f"channels {other} and {channel} would both send event {event}"
                raise ControlTrap(TileTrapCode.DMA, text=text)

    def _written(self, memory: int, offset: int, address: int, size: int) -> None:
        begin = address - self._chip_begin
        missing = np.flatnonzero(self._state.written[begin : begin + size] == 0)
        if len(missing):
            first = offset + int(missing[0])
            raise ControlTrap(TileTrapCode.NOT_WRITTEN, (first, 0, 0), memory)

    def _no_conflict(
        self, loads: bool, memory: int, chip: int, moved: int, outside: int, extent: int
    ) -> None:
        """Bytes that another program writes, or that this one writes and another moves."""
        s = self._state
        for channel in self._flights:
            _, writes_chip, chip_begin, chip_end, begin, end = s.flights[channel].tolist()
            if chip < chip_end and chip_begin < chip + moved and (loads or writes_chip):
                where, first, size = memory, chip, moved
            elif outside < end and begin < outside + extent and not (loads and writes_chip):
                where, first, size = TileMemory.ACTIVATIONS, outside, extent
            else:
                continue
            place = int(s.places[where, 0])
            numbers = (first - place, first - place + size, channel)
            raise ControlTrap(TileTrapCode.RACE, numbers, where)

    def _program(self, address: int, chip_address: int) -> tuple[bytes, int, int]:
        """(the template at PROGRAM with its addresses put in, its event, addresses put in)."""
        s = self._state
        at = self._register(TileRegister.PROGRAM)
        begin, room = (int(value) for value in s.places[TileMemory.CONSTANTS])
        segment = s.memory[begin : begin + room]

        def check(offset: int, count: int) -> None:
            if offset < 0 or offset + 4 * count > room:
                text = f"{count} words at {offset} leave the segment of {room} bytes"
                raise ControlTrap(TileTrapCode.BAD_TEMPLATE, (at, 0, 0), text=text)

        def words(offset: int, count: int) -> list[int]:
            check(offset, count)
            raw: list[int] = segment[offset : offset + 4 * count].copy().view("<u4").tolist()
            return raw

        size, chip_place, event, count = words(at, HEADER_WORDS)
        assert self._machine.dmac is not None
        events, most = self._machine.dmac.events, self._machine.dmac.program_bytes
        if event >= events:
            text = f"event {event}; the controller has events 0 to {events - 1}"
            raise ControlTrap(TileTrapCode.BAD_TEMPLATE, (at, 0, 0), text=text)
        if not 0 <= count <= MOST_ADDRESSES:
            text = f"{count} addresses; at most {MOST_ADDRESSES}"
            raise ControlTrap(TileTrapCode.BAD_TEMPLATE, (at, 0, 0), text=text)
        self._spend(CONTROL_WORK + INSTRUCTION_WORK * count + size)
        places = words(at + 4 * HEADER_WORDS, 2 * count)
        code_at = at + 4 * (HEADER_WORDS + 2 * count)
        check(code_at, -(-size // 4))
        if size > most:
            text = f"program of {size} bytes; allowed: 1 to {most}"
            raise ControlTrap(TileTrapCode.DMA, text=text)
        code = segment[code_at : code_at + size].copy()
        patches = [(chip_place, chip_address)]
        patches += [(places[k], address + places[k + 1]) for k in range(0, 2 * count, 2)]
        for place, value in patches:
            if place + 4 > size:
                text = f"an address goes to byte {place}, the program has {size} bytes"
                raise ControlTrap(TileTrapCode.BAD_TEMPLATE, (at, 0, 0), text=text)
            code[place : place + 4] = np.frombuffer(
                (value & 0xFFFF_FFFF).to_bytes(4, "little"), np.uint8
            )
        return code.tobytes(), event, len(patches)
