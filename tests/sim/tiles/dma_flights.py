"""DMA programs that tgo starts, in plain Python: written from docs/isa-tiles.md alone.

A program is over as soon as it is started: until the wait for it nobody may touch what it moves,
so nobody can tell. It is held to what its tgo says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.sim.parts.pl330.interpreter import Channel, ProgramFault
from tvm_npu.sim.parts.pl330 import DmacTiming

MOST_ADDRESSES = 65536


class Memory(Protocol):
    data: bytearray


def memory_addresses(memories: Sequence[Memory], dram_address: int) -> list[int]:
    """Where the controller finds each: those on chip one behind the other from 0 on, each once,
    then both segments in DRAM."""
    found: dict[int, int] = {}
    end = 0
    for memory in memories[:4]:
        if id(memory) not in found:
            found[id(memory)] = end
            end += len(memory.data)
    constants, activations = memories[4:]
    found[id(constants)] = dram_address
    found[id(activations)] = dram_address + len(constants.data)
    return [found[id(memory)] for memory in memories]


class TemplateFault(Exception):
    """There is no template."""


class Template:
    """What lies at ``at``: a program, where addresses go into it, its event."""

    def __init__(self, constants: bytes | bytearray, at: int, events: int) -> None:
        self._constants = constants
        size, chip_place, self.event, count = self._words(at, 4)
        if self.event >= events or count > MOST_ADDRESSES:
            raise TemplateFault
        more = self._words(at + 16, 2 * count)
        self._chip_place, self._others = chip_place, list(zip(more[::2], more[1::2], strict=True))
        begin = at + 16 + 8 * count
        self._words(begin, -(-size // 4))
        self.program = bytes(constants[begin : begin + size])
        if any(place + 4 > size for place in (chip_place, *more[::2])):
            raise TemplateFault

    def _words(self, at: int, count: int) -> list[int]:
        if at < 0 or at + 4 * count > len(self._constants):
            raise TemplateFault
        return [int.from_bytes(self._constants[k : k + 4], "little")
                for k in range(at, at + 4 * count, 4)]  # fmt: skip

    def with_addresses(self, chip_address: int, address: int) -> bytes:
        found = bytearray(self.program)
        values = [(self._chip_place, chip_address)]
        values += [(place, address + distance) for place, distance in self._others]
        for place, value in values:
            found[place : place + 4] = (value % (1 << 32)).to_bytes(4, "little")
        return bytes(found)


@dataclass
class Flight:
    """A program from its tgo to the twait for it: ``moved`` bytes of ``chip`` from ``begin`` on,
    and what lies within ``extent`` bytes of ``segment`` from ``at`` on; the controller's addresses
    of both."""

    chip: Memory
    begin: int
    chip_address: int
    moved: int
    segment: Memory
    at: int
    address: int
    extent: int
    loads: bool
    event: int
    passed: int = 0  # bytes of its bursts on chip
    stored: int = 0
    sent: bool = False

    @property
    def whole(self) -> bool:
        return self.stored == self.moved

    def run(self, program: bytes, controller: DmacTiming) -> bool:
        """To its end; False where it goes wrong."""
        sizes = controller.bus_bytes, controller.fifo_bytes, controller.events
        try:
            Channel(program, self, *sizes).run()
        except ProgramFault:
            return False
        return True

    def meets(self, memory: Memory, begin: int, end: int, writes: bool) -> bool:
        """Whether these bytes are touched by both, and written by one."""
        for mine, first, size, written in (
            (self.chip, self.begin, self.moved, self.loads),
            (self.segment, self.at, self.extent, not self.loads),
        ):
            if mine is memory and begin < first + size and first < end and (writes or written):
                return True
        return False

    def read(self, address: int, size: int) -> bytes:
        memory, offset = self._place(address, size, on_chip=not self.loads)
        return bytes(memory.data[offset : offset + size])

    def write(self, address: int, data: bytes) -> None:
        memory, offset = self._place(address, len(data), on_chip=self.loads)
        memory.data[offset : offset + len(data)] = data
        self.stored += len(data)

    def _place(self, address: int, size: int, *, on_chip: bool) -> tuple[Memory, int]:
        if self.sent:
            raise ProgramFault
        if on_chip:
            offset = self.begin + self.passed
            wanted = self.chip_address + self.passed
            self.passed += size
            if address != wanted or offset + size > len(self.chip.data):
                raise ProgramFault
            return self.chip, offset
        offset = address - self.address
        if offset < 0 or offset + size > self.extent:
            raise ProgramFault
        return self.segment, self.at + offset

    def send(self, event: int, complete: bool) -> None:
        if event != self.event or self.sent or not complete:
            raise ProgramFault
        self.sent = True
