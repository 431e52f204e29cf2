"""The controller as the processor sees it: start a channel, wait for an event."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled.slices import (
    ALLOWED,
    DONE,
    EXECUTABLE,
    begin_run,
    new_work,
    next_slice,
)
from tvm_npu.sim.parts.pl330 import execution, state
from tvm_npu.sim.parts.pl330.code import decode_at
from tvm_npu.sim.parts.pl330.new_state import new_state
from tvm_npu.sim.parts.pl330.state import Bytes, Costs
from tvm_npu.sim.parts.pl330.timing import DmacTiming
from tvm_npu.sim.parts.pl330.traps import DETAIL_FORMATS, DmacError, DmacTrapCode
from tvm_npu.sim.traps import Place, Trap, Waiter

DDR_BASE = 0x0010_0000
ON_CHIP_BASE = 0xFFFC_0000
"""Where a Zynq-7000 has its DDR (behind the first MB) and its on-chip memory (mapped high)."""

ANY_WORK = 1 << 62

_WAITING = {
    state.WAITS_FOR_EVENT: "event {event}, which nobody sends",
    state.WAITS_FOR_STORES: "its stores",
    state.WAITS_FOR_ROOM: "room in its FIFO or store queue",
}


@dataclass(frozen=True)
class ChannelStatistics:
    """What a channel did since the controller was made; `ddr_jumps` counts bursts in DDR that did
    not continue the one before, `line_misses` program lines that had to be fetched."""

    instructions: int
    loads: int
    stores: int
    loaded_bytes: int
    stored_bytes: int
    ddr_jumps: int
    line_misses: int


class Transfer(NamedTuple):
    """What a program is held to: it moves bytes that follow each other on chip, from
    ``on_chip_address`` on, from or to bytes within ``ddr_bytes`` at ``ddr_address``; then it sends
    ``event``, once, behind a DMAWMB, and moves nothing more."""

    loads: bool
    on_chip_address: int
    ddr_address: int
    ddr_bytes: int
    event: int


class Dmac:
    """A controller between ``ddr`` and ``on_chip`` (uint8 arrays, used in place).

    Events in ``channel_events`` are for channels (DMAWFE); all others interrupt the processor.
    ``work`` counts bytes, an instruction as `execution.INSTRUCTION_WORK` of them, and instructions,
    and says how many are allowed (`compiled.slices`); by default any number.
    """

    def __init__(
        self,
        timing: DmacTiming,
        ddr: Bytes,
        on_chip: Bytes,
        *,
        ddr_base: int = DDR_BASE,
        on_chip_base: int = ON_CHIP_BASE,
        channel_events: Collection[int] = (),
        work: NDArray[np.int64] | None = None,
    ) -> None:
        """Raises DmacError for memories that are no flat uint8 arrays or that overlap."""
        for name, memory in (("ddr", ddr), ("on_chip", on_chip)):
            if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.c_contiguous:
                raise DmacError(
                    f"{name} is {memory.dtype} {memory.shape}; a contiguous flat uint8 array"
                )
        if ddr_base < on_chip_base + len(on_chip) and on_chip_base < ddr_base + len(ddr):
            raise DmacError(
                f"DDR ({len(ddr)} bytes at {ddr_base:#x}) and on-chip memory ({len(on_chip)} bytes "
                f"at {on_chip_base:#x}) overlap"
            )
        self.timing = timing
        self.ddr_base, self.on_chip_base = ddr_base, on_chip_base
        if work is None:
            work = new_work()
            begin_run(work, ANY_WORK)
        self._state = new_state(timing, ddr, on_chip, work)
        for event in range(timing.events):
            self._state.to_core[event] = event not in channel_events
        self._costs = Costs(
            float(timing.instruction_cycles),
            float(timing.line_cycles),
            float(timing.burst_cycles),
            float(timing.jump_cycles),
            float(timing.ddr_latency_cycles),
            float(timing.ddr_bytes_per_cycle),
            float(timing.on_chip_bytes_per_cycle),
            timing.bus_bytes,
            timing.line_bytes,
            ddr_base,
            on_chip_base,
        )
        self._time = 0.0

    @property
    def time_cycles(self) -> float:
        """The time that the processor has reached: no earlier request is possible."""
        return self._time

    def start(
        self, channel: int, program: bytes, now_cycles: float, transfer: Transfer | None = None
    ) -> None:
        """Starts a stopped channel at ``now_cycles``; its first instruction is ready
        `start_cycles` later. The program is copied; it traps when it does anything but
        ``transfer``.

        Raises DmacError for a channel that does not exist or still runs, for a program that is
        empty or too long, and for a time before `time_cycles`; Trap for what went wrong
        before ``now_cycles``.
        """
        s, timing = self._state, self.timing
        self._check_channel(channel)
        if not 1 <= len(program) <= timing.program_bytes:
            raise DmacError(
                f"program of {len(program)} bytes; allowed: 1 to {timing.program_bytes}"
            )
        self.advance(now_cycles)
        if not self.is_stopped(channel):
            raise DmacError(f"channel {channel} still runs at {now_cycles:g} cycles")
        s.code[channel, : len(program)] = np.frombuffer(program, np.uint8)
        s.code_bytes[channel] = len(program)
        s.pc[channel] = 0
        s.line[channel] = -1
        s.registers[channel] = 0
        s.body[channel] = -1
        s.nesting[channel] = 0
        s.fifo_head[channel] = s.fifo_count[channel] = s.claimed[channel] = 0
        s.next_ddr[channel] = -1
        s.run_count[channel] = 0
        s.transfer[channel] = _columns(transfer)
        s.tags[s.tags % timing.channels == channel] = -1
        s.ready[channel] = now_cycles + timing.start_cycles
        s.status[channel] = state.RUNNING

    def is_stopped(self, channel: int) -> bool:
        """Whether the channel's program had ended by `time_cycles`."""
        self._check_channel(channel)
        s = self._state
        return s.status[channel] == state.STOPPED and bool(s.end[channel] <= self._time)

    def advance(self, now_cycles: float) -> None:
        """Does everything that begins before ``now_cycles``.

        Raises DmacError for a time before `time_cycles`, Trap when a channel traps.
        """
        if not now_cycles >= self._time:
            raise DmacError(
                f"request at {now_cycles:g} cycles; the controller is at {self._time:g} already"
            )
        self._run(float(now_cycles), -1)
        self._time = float(now_cycles)

    def wait(self, event: int, now_cycles: float) -> float:
        """The time at which a processor that waits for ``event`` from ``now_cycles`` on goes on;
        clears the event.

        Raises DmacError for an event that is not the processor's, Trap when a channel traps or
        when nothing that runs will send the event.
        """
        s = self._state
        if not 0 <= event < self.timing.events or not s.to_core[event]:
            raise DmacError(f"event {event} does not go to the processor")
        self.advance(now_cycles)
        if not s.pending[event] and self._run(np.inf, event) == state.IDLE:
            raise self._deadlock(f"event {event}, which nobody sends")
        self._time = max(self._time, float(s.signal[event]))
        s.pending[event] = 0
        return self._time

    def wait_stopped(self, channel: int, now_cycles: float) -> float:
        """The time at which a processor that polls ``channel`` from ``now_cycles`` on finds it
        stopped: its DMAEND comes behind the event for which the processor has waited.

        Raises DmacError for a channel that does not exist, Trap when a channel traps or when
        this one waits for ever.
        """
        self._check_channel(channel)
        self.advance(now_cycles)
        s = self._state
        runs = s.status[channel] != state.STOPPED
        if runs and self._run(np.inf, -2 - channel) == state.IDLE:
            raise self._deadlock()
        self._time = max(self._time, float(s.end[channel]))
        return self._time

    def signal(self, event: int, now_cycles: float) -> None:
        """The processor sends an event to channels (DMASEV through the debug registers)."""
        if not 0 <= event < self.timing.events or self._state.to_core[event]:
            raise DmacError(f"event {event} does not go to channels")
        self.advance(now_cycles)
        execution.send_event(self._state, event, float(now_cycles))

    def run(self) -> float:
        """Goes on until every channel has stopped; the time of the last end.

        Raises Trap when a channel traps or waits for ever.
        """
        self._run(np.inf, -1)
        if (self._state.status != state.STOPPED).any():
            raise self._deadlock()
        self._time = max(self._time, float(self._state.end.max()))
        return self._time

    def signal_cycles(self, event: int) -> float:
        """When the event was last sent. Raises DmacError for an event that does not exist."""
        self._check_event(event)
        return float(self._state.signal[event])

    def end_cycles(self, channel: int) -> float:
        """When the channel's last program ended; call it when `is_stopped`."""
        self._check_channel(channel)
        return float(self._state.end[channel])

    def statistics(self, channel: int) -> ChannelStatistics:
        self._check_channel(channel)
        return ChannelStatistics(*(int(value) for value in self._state.counters[channel]))

    def stored_runs(self, channel: int) -> NDArray[np.int64] | None:
        """[runs, 2] begin and end, counted from DDR's first byte, of what the channel's last
        program stored, in order, pieces that follow each other as one; None: too many to keep."""
        self._check_channel(channel)
        count = int(self._state.run_count[channel])
        return None if count > state.MOST_RUNS else self._state.runs[channel, :count].copy()

    def _check_channel(self, channel: int) -> None:
        if not 0 <= channel < self.timing.channels:
            last = self.timing.channels - 1
            raise DmacError(f"channel {channel}; the controller has 0 to {last}")

    def _check_event(self, event: int) -> None:
        if not 0 <= event < self.timing.events:
            last = self.timing.events - 1
            raise DmacError(f"event {event}; the controller has 0 to {last}")

    def _run(self, until: float, wanted: int) -> int:
        """Why it stopped; Python hears signals between slices."""
        s = self._state
        while True:
            reason = int(execution.run_until(s, self._costs, until, wanted))
            if reason == state.TRAPPED:
                raise self._trap()
            if reason == state.SPENT:
                text = DETAIL_FORMATS[DmacTrapCode.BUDGET].format(a=s.work[DONE], b=s.work[ALLOWED])
                raise Trap(DmacTrapCode.BUDGET, Place("the DMA controller"), text)
            if reason == state.RAN_AWAY:
                text = DETAIL_FORMATS[DmacTrapCode.RUNAWAY].format(a=s.work[EXECUTABLE])
                raise Trap(DmacTrapCode.RUNAWAY, Place("the DMA controller"), text)
            if reason != state.PAUSED:
                return reason
            next_slice(s.work)

    def _trap(self) -> Trap:
        number, channel, offset, a, b, c = (int(value) for value in self._state.trap)
        code = DmacTrapCode(number)
        program = self._state.code[channel, : self._state.code_bytes[channel]].tobytes()
        instruction = decode_at(program, offset)
        place = Place(
            unit=f"channel {channel}",
            position=f"at byte {offset}",
            address=offset,
            instruction="" if instruction is None else str(instruction),
        )
        return Trap(code, place, DETAIL_FORMATS[code].format(a=a, b=b, c=c))

    def _deadlock(self, processor_waits_for: str = "") -> Trap:
        s = self._state
        waiters = []
        if processor_waits_for:
            waiters.append(Waiter(Place("the processor"), processor_waits_for))
        for channel in range(self.timing.channels):
            text = _WAITING.get(int(s.status[channel]))
            if text is not None:
                waits = text.format(event=int(s.waits_for[channel]))
                waiters.append(Waiter(Place(f"channel {channel}"), waits))
        return Trap(DmacTrapCode.DEADLOCK, waiters[0].place, "deadlock", tuple(waiters))


def run_program(
    program: bytes,
    timing: DmacTiming,
    ddr: Bytes,
    on_chip: Bytes,
    *,
    ddr_base: int = DDR_BASE,
    on_chip_base: int = ON_CHIP_BASE,
) -> tuple[float, ChannelStatistics]:
    """Executes one program alone on the memories: (cycles from its start to its end, what it did).

    Raises what `Dmac` raises.
    """
    dmac = Dmac(timing, ddr, on_chip, ddr_base=ddr_base, on_chip_base=on_chip_base)
    dmac.start(0, program, 0.0)
    return dmac.run(), dmac.statistics(0)


def _columns(transfer: Transfer | None) -> tuple[int, ...]:
    """Of `State.transfer`."""
    if transfer is None:
        return (0,) * state.TRANSFER
    loads, on_chip, begin, size, event = transfer
    return 1, loads, on_chip, begin, begin + size, event, 0
