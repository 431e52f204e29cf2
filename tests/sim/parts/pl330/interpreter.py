"""What a program of a channel does, in plain Python: written from docs/isa-pl330.md alone.

One instruction is over before the next begins. So a load has arrived and a store is complete at
once, which no program can tell that touches no byte behind another's back.
"""

from __future__ import annotations

from typing import Protocol

from tests.sim.isa_document import IsaDocument

DOCUMENT = IsaDocument("pl330")
SAR, CCR, DAR = (number for number, _ in sorted(DOCUMENT.names("`rd` of dmamov").items()))
ADDRESSES = {number: {"SAR": SAR, "DAR": DAR}[name]
             for number, name in DOCUMENT.names("`ra` of dmaaddh and dmaadnh").items()}  # fmt: skip


class ProgramFault(Exception):
    """The channel cannot go on, or waits for ever."""


class Around(Protocol):
    """What a channel reaches; raises ProgramFault for what it must not do."""

    def read(self, address: int, size: int) -> bytes: ...
    def write(self, address: int, data: bytes) -> None: ...
    def send(self, event: int, complete: bool) -> None: ...


class Channel:
    """``events``: how many there are; none of them is for channels."""

    def __init__(
        self, program: bytes, around: Around, bus_bytes: int, fifo_bytes: int, events: int
    ) -> None:
        self.program, self.around = program, around
        self.bus_bytes, self.fifo_bytes, self.events = bus_bytes, fifo_bytes, events
        self.pc = self.next = 0
        self.r = [0, 0, 0]
        self.fifo = b""
        self.loops: list[tuple[int, int]] = []  # counter, first byte of the body; innermost last
        self.rounds = {0: 0, 1: 0}
        self.complete = False

    def run(self) -> None:
        """To the program's end."""
        while True:
            found = DOCUMENT.decode_at(self.program, self.pc)
            if found is None:
                raise ProgramFault
            mnemonic, operands, size = found
            if mnemonic == "dmaend":
                return
            self.next = self.pc + size
            getattr(self, mnemonic)(**operands)
            self.pc = self.next

    def _burst(self, register: int, control: int) -> tuple[int, int, int, bool]:
        """Address, bytes of a beat, beats, and whether the address moves on."""
        beat, beats = 1 << (control >> 1 & 7), (control >> 4 & 15) + 1
        if self.r[register] % beat:
            raise ProgramFault
        return self.r[register], beat, beats, bool(control & 1)

    def _move_on(self, register: int, distance: int) -> None:
        self.r[register] = (self.r[register] + distance) % (1 << 32)

    def dmald(self) -> None:
        address, beat, beats, moves = self._burst(SAR, self.r[CCR])
        if len(self.fifo) + beat * beats > self.fifo_bytes:
            raise ProgramFault
        if moves:
            self.fifo += self.around.read(address, beat * beats)
            self._move_on(SAR, beat * beats)
        else:
            self.fifo += self.around.read(address, beat) * beats

    def dmast(self) -> None:
        address, beat, beats, moves = self._burst(DAR, self.r[CCR] >> 14)
        data, self.fifo = self.fifo[: beat * beats], self.fifo[beat * beats :]
        if len(data) < beat * beats:
            raise ProgramFault
        self.complete = False
        if moves:
            self.around.write(address, data)
            self._move_on(DAR, beat * beats)
        else:
            for k in range(0, beat * beats, beat):
                self.around.write(address, data[k : k + beat])

    dmaldb, dmastb = dmald, dmast

    def dmalds(self) -> None: ...
    def dmasts(self) -> None: ...
    def dmarmb(self) -> None: ...
    def dmanop(self) -> None: ...

    def dmawmb(self) -> None:
        self.complete = True

    def dmalp(self, lc: int, count: int) -> None:
        if lc in dict(self.loops):
            raise ProgramFault
        self.loops.append((lc, self.next))
        self.rounds[lc] = count

    def dmalpend(self, lc: int, back: int) -> None:
        if not self.loops or self.loops[-1] != (lc, self.pc - back):
            raise ProgramFault
        self.rounds[lc] -= 1
        if self.rounds[lc]:
            self.next = self.pc - back
        else:
            self.loops.pop()

    def dmasev(self, event: int) -> None:
        if event >= self.events:
            raise ProgramFault
        self.around.send(event, self.complete)

    def dmawfe(self, event: int, invalid: int) -> None:
        raise ProgramFault

    def dmago(self, channel: int, address: int, ns: int) -> None:
        raise ProgramFault

    def dmaaddh(self, ra: int, imm: int) -> None:
        self._move_on(ADDRESSES[ra], imm)

    def dmaadnh(self, ra: int, imm: int) -> None:
        self._move_on(ADDRESSES[ra], imm - 65536)

    def dmamov(self, rd: int, imm: int) -> None:
        if rd not in (SAR, CCR, DAR):
            raise ProgramFault
        widest = max(1 << (imm >> 1 & 7), 1 << (imm >> 15 & 7))
        if rd == CCR and (widest > self.bus_bytes or imm >> 28):
            raise ProgramFault
        self.r[rd] = imm
