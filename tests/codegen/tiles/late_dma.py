"""DMA programs as late as they may be: what a program moves happens at the wait for its event.

An own account of templates and of the PL-330 instructions in them, strict like the interpreter:
bytes that a load will write are unknown from its start on, and a command that needs them, or that
changes what a store will read, fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tvm_npu.sim.parts.pl330.code import decode_at
from tvm_npu.sim.tiles.isa import Direction, TileMemory

DDR, CHIP, BIAS = 0x8000_0000, 0, 0x0100_0000
"""Where programs find the segment, the shared memory and the bias memory."""


@dataclass(frozen=True)
class Started:
    """A program with its addresses; the bytes on chip that it said it moves."""

    program: bytes
    memory: TileMemory
    segment: TileMemory
    begin: int
    moved: int
    extent: tuple[int, int]
    loads: bool
    content: np.ndarray


class LateDma:
    """``memories`` are the interpreter's."""

    def __init__(self, memories: Mapping[TileMemory, object]) -> None:
        self.memories = memories
        self.started: dict[int, Started] = {}
        self.channels: dict[int, int] = {}

    def go(
        self, at: int, address: int, offset: int, moved: int, extent: int, operands: dict[str, int]
    ) -> None:
        constants = self.memories[TileMemory.CONSTANTS]
        size, chip_place, event, count = self._words(constants, at, 4)
        pairs = self._words(constants, at + 16, 2 * count)
        program = bytearray(constants.read(at + 16 + 8 * count, size).tobytes())  # type: ignore[attr-defined]
        memory, segment = TileMemory(operands["mem"]), TileMemory(operands["base"])
        base = BIAS if memory == TileMemory.BIAS else CHIP
        places = [(chip_place, base + offset)]
        places += [(pairs[k], DDR + address + pairs[k + 1]) for k in range(0, 2 * count, 2)]
        for place, value in places:
            program[place : place + 4] = value.to_bytes(4, "little")
        assert operands["channel"] not in self.channels and event not in self.started
        loads = operands["direction"] == Direction.LOAD
        on_chip = self.memories[memory]
        content = np.empty(0, np.uint8)
        if loads:
            on_chip.known[offset : offset + moved] = False  # type: ignore[attr-defined]
        else:
            content = on_chip.read(offset, moved)  # type: ignore[attr-defined]
        self.started[event] = Started(
            bytes(program), memory, segment, offset, moved, (address, address + extent), loads,
            content,
        )  # fmt: skip
        self.channels[operands["channel"]] = event

    @staticmethod
    def _words(memory: object, at: int, count: int) -> list[int]:
        return memory.read(at, 4 * count).view("<u4").tolist()  # type: ignore[attr-defined,no-any-return]

    def wait(self, event: int) -> None:
        one = self.started.pop(event)
        self.channels = {c: e for c, e in self.channels.items() if e != event}
        if not one.loads:  # nobody may have changed what it reads
            on_chip = self.memories[one.memory].read(one.begin, one.moved)  # type: ignore[attr-defined]
            np.testing.assert_array_equal(on_chip, one.content)
        assert self._execute(one) == (event, one.moved)

    def _place(self, one: Started, address: int, size: int) -> tuple[object, int]:
        if address >= DDR:
            begin = address - DDR
            assert one.extent[0] <= begin and begin + size <= one.extent[1]
            return self.memories[one.segment], begin
        begin = address - (BIAS if one.memory == TileMemory.BIAS else CHIP)
        assert one.begin <= begin and begin + size <= one.begin + one.moved
        return self.memories[one.memory], begin

    def _execute(self, one: Started) -> tuple[int, int]:
        """(event sent last, bytes moved)."""
        pc, moved, event = 0, 0, -1
        registers, counters = [0, 0, 0], [0, 0]
        fifo = b""
        while True:
            found = decode_at(one.program, pc)
            assert found is not None
            name, operands = found.instruction.mnemonic, found.operands
            pc += found.instruction.size_bytes
            if name in ("dmald", "dmast"):
                side = 0 if name == "dmald" else 14
                control = registers[1] >> side
                size = (1 << (control >> 1 & 7)) * ((control >> 4 & 15) + 1)
                which = 0 if name == "dmald" else 2
                assert registers[which] % (1 << (control >> 1 & 7)) == 0 and control & 1
                memory, begin = self._place(one, registers[which], size)
                registers[which] += size
                if name == "dmald":
                    fifo += memory.read(begin, size).tobytes()  # type: ignore[attr-defined]
                else:
                    memory.write(begin, np.frombuffer(fifo[:size], np.uint8))  # type: ignore[attr-defined]
                    fifo, moved = fifo[size:], moved + size
            elif name == "dmamov":
                registers[operands["rd"]] = operands["imm"]
            elif name == "dmaaddh":
                registers[2 if operands["ra"] else 0] += operands["imm"]
            elif name == "dmalp":
                counters[operands["lc"]] = operands["count"] - 1
            elif name == "dmalpend":
                if counters[operands["lc"]]:
                    counters[operands["lc"]] -= 1
                    pc -= operands["back"] + 2
            elif name == "dmasev":
                event = operands["event"]
            elif name == "dmaend":
                assert not fifo
                return event, moved
            else:
                assert name == "dmawmb", name
