"""The ISA document, made from the table: `python -m tvm_npu.sim.isa.document > docs/isa-nmp.md`.

With a file name it writes there: `python -m tvm_npu.sim.isa.document docs/isa-nmp.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tvm_npu.sim.isa.assembler import pseudo_instructions
from tvm_npu.sim.isa.builder import ABI_NAMES
from tvm_npu.sim.isa.table import Field, Instruction, Isa, Named
from tvm_npu.sim.nmp.rv32im import RV32IM
from tvm_npu.sim.nmp.xnmp import (
    CONFIG_REGISTERS,
    NMP_ISA,
    XNMP,
    DmaRegister,
    Initialise,
    Level,
    MacRegister,
    Memory,
    PoolKind,
    VectorOp,
)

_CONSTANT_EDGES = frozenset({25, 20, 15, 12, 7})
"""Lowest bits of RISC-V's funct7, rs2, rs1, funct3 and rd: constants are shown in these parts."""

_INTRODUCTION = """\
# The NMP's instruction set: {title}

Made by `python -m tvm_npu.sim.isa.document` from the tables in `sim/isa`, which also give the
encoder, the decoder, the assembler, the disassembler and the simulator's dispatch.

A TLT's core executes {base} RV32IM instructions and {custom} instructions of its own, all 32 bits
wide. Every bit of an instruction is either constant or part of an operand, and no word is two
instructions; a word that is none of them traps.

## Programs

`ecall` with a7 = 93 ends a core with exit code a0. MAC and DMA instructions take their operands
from {registers} configuration registers each, latched when the instruction issues; they run beside
the core and signal the TLT semaphore `sem` when they are done, unless `sem` is 0.

## Transfers

A transfer waits in the queue of its TLE's DMA engine; when the queue is full, the core that
issues it waits. What it brings arrives when it is complete, at all receivers at once, and each of
them gets the signal; the TLT that issued it gets one only when it receives. To other TLEs data
goes over the Global Ringbus, and a forward from MB2 to MB0 takes a ring bus instead of DRAM. On a
machine without ring buses both trap.

A program must wait for a transfer before the MAC unit uses what it brings or overwrites what it
takes, and for the MAC unit before it issues a transfer to or from what that uses: the same bytes,
or the same memory on machines whose memories have one port. Two engines must not bring something
to the same bytes at the same time. A program that breaks these rules traps, also where its result
would have been right.
"""


def isa_document(isa: Isa = NMP_ISA) -> str:
    """The whole document, Markdown."""
    parts = [
        _INTRODUCTION.format(
            title=isa.title, base=len(RV32IM), custom=len(XNMP), registers=CONFIG_REGISTERS
        ),
        "## RV32IM\n",
        instruction_table(RV32IM),
        "## Xnmp\n",
        instruction_table(XNMP),
        "## Operands\n",
        field_table(isa),
        names_section("MAC configuration registers", MacRegister),
        names_section("DMA configuration registers", DmaRegister),
        names_section("`mem`: on-chip memories", Memory),
        names_section("`level`: semaphores", Level),
        names_section("`sub` of nmp_conv2d and nmp_percept", Initialise),
        names_section("`sub` of nmp_pool", PoolKind),
        names_section("`sub` of nmp_veop", VectorOp),
        "## Registers\n",
        markdown_table(
            ("register", "ABI name"),
            ((f"x{number}", name) for number, name in enumerate(ABI_NAMES)),
        ),
        "## Pseudo-instructions\n",
        markdown_table(
            ("written", "stands for"),
            ((f"`{written}`", f"`{meaning}`") for written, meaning in pseudo_instructions()),
        ),
    ]
    return "\n".join(parts)


def encoding_parts(
    instruction: Instruction, edges: frozenset[int] = _CONSTANT_EDGES
) -> tuple[tuple[int, int, str], ...]:
    """(high, low, text) from the highest bit to bit 0: an operand's piece (``imm[11:5]``), or
    constant bits, cut at ``edges`` (lowest bits of parts)."""
    pieces = {
        high: (low, _piece_name(item, high - low + 1, shift))
        for item in instruction.fields
        for high, low, shift in item.pieces
    }
    parts = []
    high = 8 * instruction.size_bytes - 1
    while high >= 0:
        if high in pieces:
            low, text = pieces[high]
        else:
            low = high
            while low > 0 and low not in edges and instruction.mask >> (low - 1) & 1:
                low -= 1
            width = high - low + 1
            text = f"{(instruction.match >> low) & ((1 << width) - 1):0{width}b}"
        parts.append((high, low, text))
        high = low - 1
    return tuple(parts)


def _piece_name(item: Field, width: int, shift: int) -> str:
    if len(item.pieces) == 1 and shift == 0:
        return item.name
    top = shift + width - 1
    return f"{item.name}[{top}:{shift}]" if width > 1 else f"{item.name}[{shift}]"


def instruction_table(instructions: Iterable[Instruction]) -> str:
    """Assembly, bits and meaning of each."""
    rows = []
    for item in instructions:
        bits = " ".join(text for _, _, text in encoding_parts(item))
        assembly = f"{item.mnemonic} {item.syntax}".rstrip()
        rows.append((f"`{assembly}`", f"`{bits}`", item.meaning))
    return markdown_table(("assembly", "bits 31 to 0", "meaning"), rows)


def field_table(isa: Isa) -> str:
    """Each operand's bits, values and users."""
    users: dict[tuple[str, str, str], list[str]] = {}
    for instruction in isa.instructions:
        for item in instruction.fields:
            bits = ", ".join(
                f"{high}..{low}" if high > low else str(high) for high, low, _ in item.pieces
            )
            values = f"{item.low} to {item.high}"
            if item.register:
                values = "x0 to x31"
            elif item.step > 1:
                values += f", multiples of {item.step}"
            users.setdefault((item.name, bits, values), []).append(instruction.mnemonic)
    rows = [(f"`{name}`", bits, values, ", ".join(used))
            for (name, bits, values), used in users.items()]  # fmt: skip
    return markdown_table(("operand", "bits", "values", "instructions"), rows)


def names_section(title: str, names: type[Named]) -> str:
    """A section that lists an enumeration."""
    rows = ((str(int(item)), f"`{item.name}`", item.meaning) for item in names)
    return f"### {title}\n\n{names.__doc__}\n\n" + markdown_table(
        ("value", "name", "meaning"), rows
    )


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def main(text: str) -> None:
    """Writes ``text`` to the file that the command line names, or to standard output."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(isa_document())
