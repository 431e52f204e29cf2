"""Transfers by a DMA controller: templates of its programs, where they start and where to wait.

A template serves all transfers of one shape; the core puts the addresses in when it starts one
(double-buffer paper, section 5.2). Four channels take four streams: input and residual tiles, OUT
tiles that come back, OUT tiles that go, weights and biases; each channel signals the event of its
number. The core waits for a channel before it starts it again, before it works on bytes that it
moves, and before another channel moves them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from tvm_npu.codegen.parts.pl330.boxes import Direction, RunShape
from tvm_npu.codegen.parts.pl330.transfer import (
    TransferLimits,
    TransferTemplate,
    transfer_template,
)
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.tiles.emit.commands import OPERANDS, ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.emitter import Code, fixed_registers
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles import isa
from tvm_npu.sim.tiles.isa import TileMemory, TileRegister, TransferStream
from tvm_npu.sim.tiles.machine import TileMachine

IN_CHANNEL, OUT_LOAD_CHANNEL, OUT_STORE_CHANNEL, WEIGHT_CHANNEL = range(4)
TEMPLATE_ALIGNMENT = 4


@dataclass(frozen=True)
class Flight:
    """A transfer that nobody has waited for: bytes on chip and, from the first to the last,
    outside."""

    loads: bool
    on_chip: ChipRange
    segment: TileMemory
    begin: int
    end: int


class DmacEmitter:
    """For machines with a core and a DMA controller."""

    def __init__(self, machine: TileMachine, constants: Constants) -> None:
        assert machine.dmac is not None
        self.code = Code()
        self.code.set(fixed_registers(machine))
        self._constants = constants
        self._limits = TransferLimits(machine.dmac.bus_bytes, machine.dmac.program_bytes)
        self._flights: dict[int, Flight] = {}

    def emit(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Work):
                self._work(command)
            else:
                self._move(command)

    def finish(self) -> None:
        self.code.layer = -1
        for channel in sorted(self._flights):
            self._wait(channel)
        self.code.emit("tend", {}, Stream.OTHER)

    def _work(self, work: Work) -> None:
        outside = work.registers.get(TileRegister.OPERANDS, OPERANDS) != OPERANDS
        for channel, flight in sorted(self._flights.items()):
            written = _meet(work.writes, flight.on_chip)
            read = flight.loads and any(_meet(one, flight.on_chip) for one in work.reads)
            if outside or written or read:
                self._wait(channel)
        self.code.work(work)

    def _move(self, transfer: Transfer) -> None:
        channel = channel_of(transfer)
        runs = transfer.runs
        mine = flight_of(transfer)
        for other, flight in sorted(self._flights.items()):
            if other == channel or in_conflict(mine, flight):
                self._wait(other)
        self.code.set(
            {
                TileRegister.ADDRESS: runs.address,
                TileRegister.CHIP_OFFSET: transfer.chip_offset,
                TileRegister.EXTENT_BYTES: mine.end - mine.begin,
                TileRegister.MOVED_BYTES: runs.size_bytes,
                TileRegister.PROGRAM: self._template(transfer, channel),
            }
        )
        operands = {
            "mem": transfer.memory,
            "base": runs.segment,
            "stream": TransferStream(int(transfer.stream)),
            "channel": channel,
            "direction": isa.Direction.LOAD if transfer.to_chip else isa.Direction.STORE,
        }
        self.code.emit("tgo", operands, transfer.stream)
        self._flights[channel] = mine

    def _wait(self, channel: int) -> None:
        self.code.emit("twait", {"event": channel}, Stream.OTHER)
        del self._flights[channel]

    def _template(self, transfer: Transfer, channel: int) -> int:
        """Byte offset of the template in CONSTANTS; made when it is needed for the first time. The
        offset on chip stands for the address there: memories begin at multiples of the bus."""
        runs = transfer.runs
        direction: Direction = "load" if transfer.to_chip else "store"
        template = transfer_template(
            RunShape(runs.run_bytes, runs.inner, runs.stride_inner, runs.outer, runs.stride_outer),
            runs.address, transfer.chip_offset,
            direction=direction, event=channel, limits=self._limits,
        )  # fmt: skip
        return self._constants.once(template, partial(_encoded, template), TEMPLATE_ALIGNMENT)


def _encoded(template: TransferTemplate) -> bytes:
    """As `TILE_ISA` says of tgo."""
    words = [
        len(template.program), template.on_chip_address, template.event,
        len(template.ddr_addresses),
    ]  # fmt: skip
    words += [number for pair in template.ddr_addresses for number in pair]
    return struct.pack(f"<{len(words)}I", *words) + template.program


def channel_of(transfer: Transfer) -> int:
    if not transfer.to_chip:
        return OUT_STORE_CHANNEL
    if transfer.stream in (Stream.WEIGHT, Stream.BIAS):
        return WEIGHT_CHANNEL
    return OUT_LOAD_CHANNEL if transfer.memory == TileMemory.OUTPUT else IN_CHANNEL


def flight_of(transfer: Transfer) -> Flight:
    """What ``transfer`` touches while it is under way."""
    runs = transfer.runs
    end = runs.address + _extent(runs)
    return Flight(transfer.to_chip, transfer.on_chip, runs.segment, runs.address, end)


def _extent(runs: Runs) -> int:
    return (
        (runs.outer - 1) * runs.stride_outer + (runs.inner - 1) * runs.stride_inner
    ) + runs.run_bytes


def _meet(one: ChipRange, other: ChipRange) -> bool:
    """Whether ranges overlap; all but the bias memory are one."""
    same = (one.memory == TileMemory.BIAS) == (other.memory == TileMemory.BIAS)
    return same and one.begin < other.end and other.begin < one.end


def in_conflict(mine: Flight, other: Flight) -> bool:
    """Whether one of two transfers writes what the other moves."""
    if _meet(mine.on_chip, other.on_chip) and (mine.loads or other.loads):
        return True
    outside = mine.segment == other.segment and mine.begin < other.end and other.begin < mine.end
    return outside and not (mine.loads and other.loads)
