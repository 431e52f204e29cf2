"""Parts of ISA documents, made from tables; the kinds put them together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from pathlib import Path

from tvm_npu.sim.isa.table import Field, Instruction, Isa, Named

_CONSTANT_EDGES = frozenset({25, 20, 15, 12, 7})
"""Lowest bits of RISC-V's funct7, rs2, rs1, funct3 and rd: constants are shown in these parts."""


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
    # Python 3.13 takes the indentation out of docstrings, earlier ones do not.
    meaning = cleandoc(names.__doc__ or "")
    return f"### {title}\n\n{meaning}\n\n" + markdown_table(("value", "name", "meaning"), rows)


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
