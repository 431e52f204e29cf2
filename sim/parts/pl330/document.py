"""The PL-330's document: `python -m tvm_npu.sim.parts.pl330.document docs/isa-pl330.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from tvm_npu.sim.isa.document import encoding_parts, field_table, markdown_table, names_section
from tvm_npu.sim.isa.table import Instruction
from tvm_npu.sim.parts.pl330.isa import PL330_ISA, AddressRegister, LoopCounter, Register

_INTRODUCTION = """\
# The PL-330's channel instructions

Made by `python -m tvm_npu.sim.parts.pl330.document` from the table in `sim/parts/pl330/isa.py`,
which also gives the encoder, the decoder, the assembler, the disassembler and what the simulator
executes.

The encodings are those of ARM's PrimeCell DMA controller (DDI 0424). An instruction has one to six
bytes, the first of which tells it apart; the rest is little-endian. Instructions that serve
peripherals are left out and trap, as does every byte that is no instruction.

## How programs run

A channel has a source and a destination address, a control register with the sizes of its bursts,
two loop counters and a FIFO. A load takes a burst from the source into the FIFO; a store waits
until its bytes have arrived and puts them at the destination. The thread does not wait for either:
it stops at a load that finds no room, at a store that finds no place in the queue, at a barrier,
and at an event. `dmaend` and `dmawmb` wait for all stores, so an event behind a `dmawmb` means that
all bytes are there.

Loops nest two deep, each with a counter of its own; `dmalpend` goes back as many bytes as the loop
has. All registers are 0 at the start, and addresses wrap at 32 bits. A burst of CCR is beats times
bytes of a beat; where the address does not move on, all beats are at that one place, and the next
burst, too.

What breaks a rule traps, and the message names the channel, the byte of the program and the
instruction: a byte that is no instruction, or an instruction of the manager; a way that leaves the
program without `dmaend`; a burst that is in no memory, or not aligned to its beats; a beat of more
bytes than the bus, or an endian swap; a loop whose counter counts an open one, or an end that is
not the innermost loop's or does not go back to its first instruction; an event that the controller
lacks; a load that does not fit into the FIFO beside what no store takes; a store of more bytes than
are loaded and not stored. A channel that waits for what never comes traps, too.

No peripheral asks for transfers here, so the last request is always a burst: `dmaldb` and `dmastb`
are `dmald` and `dmast`, and `dmalds` and `dmasts` do nothing.

## Instructions

"""

_BYTES = frozenset({8, 16})
"""Lowest bits of the bytes that hold constants: they are shown byte by byte."""

_CONTROL = (
    ("0", "the source address moves on"),
    ("3..1", "bytes of a beat at the source, as a power of two"),
    ("7..4", "beats of a burst at the source, less one"),
    ("10..8, 13..11", "protection and cache control of loads; no effect here"),
    ("14", "the destination address moves on"),
    ("17..15", "bytes of a beat at the destination, as a power of two"),
    ("21..18", "beats of a burst at the destination, less one"),
    ("24..22, 27..25", "protection and cache control of stores; no effect here"),
    ("31..28", "endian swap and a bit without meaning; must be 0 here"),
)


def pl330_document() -> str:
    """The whole document, Markdown."""
    rows = [_row(item) for item in PL330_ISA.instructions]
    return "".join(
        (
            _INTRODUCTION,
            markdown_table(("assembly", "bytes", "bits, last byte first", "meaning"), rows),
            "\n## Operands\n\n",
            field_table(PL330_ISA),
            "\n## The control register\n\n",
            markdown_table(("bits of CCR", "meaning"), _CONTROL),
            "\n## Names\n\n",
            "\n".join(
                (
                    names_section("`rd` of dmamov", Register),
                    names_section("`ra` of dmaaddh and dmaadnh", AddressRegister),
                    names_section("`lc`", LoopCounter),
                )
            ),
        )
    )


def _row(item: Instruction) -> tuple[str, str, str, str]:
    bits = " ".join(text for _, _, text in encoding_parts(item, _BYTES))
    assembly = f"{item.mnemonic} {item.syntax}".rstrip()
    return f"`{assembly}`", str(item.size_bytes), f"`{bits}`", item.meaning


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(pl330_document(), "utf-8")
    else:
        sys.stdout.write(pl330_document())
