"""The ARM PrimeCell DMA controller PL-330: the instructions of its channel programs.

Encodings are those of ARM's technical reference manual (DDI 0424, chapter 4). Instructions have
one to six bytes, little-endian. Left out are the instructions that serve peripherals (DMALDP,
DMASTP, DMAWFP, DMAFLUSHP and the loops that wait for them), DMASTZ and DMAKILL; their bytes are no
instruction here. DMAGO is for the manager thread: the processor writes it to the debug registers
to start a channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.table import Field, Instruction, Isa, Named

COLUMNS = ("a", "b", "c")
LARGEST_BURST_BEATS = 16
LARGEST_LOOP = 256
LARGEST_STEP = 0xFFFF
LARGEST_JUMP = 0xFF


class Register(Named):
    """The registers that DMAMOV writes."""

    SAR = 0, "source address"
    CCR = 1, "channel control: sizes, lengths and increments of the bursts"
    DAR = 2, "destination address"


class AddressRegister(Named):
    """The registers that DMAADDH and DMAADNH change."""

    SAR = 0, "source address"
    DAR = 1, "destination address"


class LoopCounter(Named):
    """The two loop counters of a channel: loops nest two deep."""

    LC0 = 0, "loop counter 0"
    LC1 = 1, "loop counter 1"


_IMMEDIATE_16 = Field("imm", ((23, 8, 0),), "b")
_EVENT = Field("event", ((15, 11, 0),), "a")
_ADDRESS_REGISTER = Field("ra", ((1, 1, 0),), "a", names=AddressRegister)


def _instruction(
    mnemonic: str,
    match: int,
    size_bytes: int,
    meaning: str,
    execute: str,
    syntax: str = "",
    *fields: Field,
) -> Instruction:
    return Instruction(mnemonic, match, fields, syntax, meaning, execute, size_bytes=size_bytes)


PL330_ISA = Isa(
    "pl330",
    "PL-330 channel instructions",
    (
        _instruction("dmaend", 0x00, 1, "the channel stops when its stores are complete", "end"),
        _instruction(
            "dmald", 0x04, 1, "one burst from SAR into the FIFO; SAR moves on as CCR says", "load"
        ),
        _instruction(
            "dmalds", 0x05, 1, "DMALD of one beat if the last request was a single one", "nop"
        ),
        _instruction("dmaldb", 0x07, 1, "DMALD if the last request was a burst", "load"),
        _instruction(
            "dmast", 0x08, 1, "one burst from the FIFO to DAR; DAR moves on as CCR says", "store"
        ),
        _instruction(
            "dmasts", 0x09, 1, "DMAST of one beat if the last request was a single one", "nop"
        ),
        _instruction("dmastb", 0x0B, 1, "DMAST if the last request was a burst", "store"),
        _instruction("dmarmb", 0x12, 1, "waits until all loads are complete", "read_barrier"),
        _instruction("dmawmb", 0x13, 1, "waits until all stores are complete", "write_barrier"),
        _instruction("dmanop", 0x18, 1, "nothing", "nop"),
        _instruction(
            "dmalp", 0x20, 2, "begins a loop that runs `count` times", "loop", "lc, count",
            Field("lc", ((1, 1, 0),), "a", names=LoopCounter),
            Field("count", ((15, 8, 0),), "b", bias=1),
        ),
        _instruction(
            "dmalpend", 0x38, 2, "ends a loop: unless it is over, `back` bytes back", "loop_end",
            "lc, back",
            Field("lc", ((2, 2, 0),), "a", names=LoopCounter),
            Field("back", ((15, 8, 0),), "b"),
        ),
        _instruction("dmasev", 0x34, 2, "signals an event", "send_event", "event", _EVENT),
        _instruction(
            "dmawfe", 0x36, 2, "waits for an event and clears it; `invalid` = 1 also forgets the "
            "program that was read ahead", "wait_event", "event, invalid",
            _EVENT, Field("invalid", ((9, 9, 0),), "b"),
        ),
        _instruction(
            "dmaaddh", 0x54, 3, "ra += imm", "add", "ra, imm", _ADDRESS_REGISTER, _IMMEDIATE_16
        ),
        _instruction(
            "dmaadnh", 0x5C, 3, "ra += imm - 65536", "add_negative", "ra, imm",
            _ADDRESS_REGISTER, _IMMEDIATE_16,
        ),
        _instruction(
            "dmamov", 0xBC, 6, "rd = imm", "move", "rd, imm",
            Field("rd", ((10, 8, 0),), "a", names=Register), Field("imm", ((47, 16, 0),), "b"),
        ),
        _instruction(
            "dmago", 0xA0, 6, "manager thread only: starts a channel at an address; `ns` = 1 in "
            "the non-secure state", "illegal", "channel, address, ns",
            Field("channel", ((10, 8, 0),), "a"), Field("address", ((47, 16, 0),), "b"),
            Field("ns", ((1, 1, 0),), "c"),
        ),
    ),
    columns=COLUMNS,
)  # fmt: skip


@dataclass(frozen=True)
class ChannelControl:
    """The value of CCR: `beat_bytes` 1, 2, 4, 8 or 16 and `beats` 1 to 16 of both sides; whether
    the addresses move on. Protection, cache and endian swap bits stay 0."""

    beat_bytes: int
    beats: int
    source_increments: bool = True
    destination_increments: bool = True

    def encode(self) -> int:
        """The register's 32 bits; IsaError when a size or length does not exist."""
        if self.beat_bytes not in (1, 2, 4, 8, 16):
            raise IsaError(f"beat of {self.beat_bytes} bytes; allowed: 1, 2, 4, 8, 16")
        if not 1 <= self.beats <= LARGEST_BURST_BEATS:
            raise IsaError(f"burst of {self.beats} beats; allowed: 1 to {LARGEST_BURST_BEATS}")
        side = (self.beat_bytes.bit_length() - 1) << 1 | (self.beats - 1) << 4
        return (
            int(self.source_increments) | side | int(self.destination_increments) << 14 | side << 14
        )

    @property
    def burst_bytes(self) -> int:
        return self.beat_bytes * self.beats
