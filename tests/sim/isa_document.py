"""Reads an instruction set out of its document: bits of instructions, and names of numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class _Operand:
    bits: tuple[int, ...]  # from the highest on
    signed: bool
    step: int
    bias: int

    def value(self, word: int) -> int:
        value = 0
        for bit in self.bits:
            value = value << 1 | word >> bit & 1
        if self.signed and value >> (len(self.bits) - 1):
            value -= 1 << len(self.bits)
        return value * self.step + self.bias


class IsaDocument:
    """docs/isa-NAME.md: instructions are words of 32 bits, or have a column that tells their
    bytes."""

    def __init__(self, name: str) -> None:
        self._rows: dict[str, list[list[str]]] = {}
        section = ""
        for line in (DOCS / f"isa-{name}.md").read_text("utf-8").splitlines():
            if line.startswith("#"):
                section = line.lstrip("# ")
            elif line.startswith("|"):
                cells = [cell.strip() for cell in _CELLS.split(line)[1:-1]]
                self._rows.setdefault(section, []).append(cells)
        operands: dict[tuple[str, str], _Operand] = {}
        for cells in self._rows["Operands"][2:]:
            found = _operand(cells[1], cells[2])
            for mnemonic in cells[3].split(", "):
                operands[mnemonic, cells[0].strip("`")] = found
        self._instructions = []
        self._sizes: dict[str, int] = {}
        for rows in self._rows.values():
            if rows[0][0] == "assembly":
                self._instructions += [_instruction(cells, operands) for cells in rows[2:]]
                self._sizes |= {_mnemonic(cells): _size_bytes(cells) for cells in rows[2:]}

    def names(self, section: str) -> dict[int, str]:
        """The numbers of a table and what they are called."""
        return {int(cells[0]): cells[1].strip("`") for cells in self._rows[section][2:]}

    def decode(self, word: int) -> tuple[str, dict[str, int]] | None:
        """Mnemonic and operands; None: no instruction."""
        for mnemonic, mask, match, operands in self._instructions:
            if word & mask == match:
                return mnemonic, {name: one.value(word) for name, one in operands.items()}
        return None


    def decode_at(self, code: bytes, offset: int) -> tuple[str, dict[str, int], int] | None:
        """Mnemonic, operands and bytes of the instruction that begins there; None: none does."""
        word = int.from_bytes(code[offset : offset + 8], "little")
        found = self.decode(word)
        size = self._sizes[found[0]] if found else 0
        return (*found, size) if found and offset + size <= len(code) else None


def _operand(bits: str, values: str) -> _Operand:
    places: list[int] = []
    for part in bits.split(", "):
        high, _, low = part.partition("..")
        places += range(int(high), int(low or high) - 1, -1)
    step = re.search(r"multiples of (\d+)", values)
    first = re.match(r"\d+", values)
    bias = int(first[0]) if first else 0
    return _Operand(tuple(places), values.startswith("-"), int(step[1]) if step else 1, bias)


def _mnemonic(cells: list[str]) -> str:
    return cells[0].strip("`").split()[0]


def _size_bytes(cells: list[str]) -> int:
    return int(cells[1]) if cells[1].isdecimal() else 4


def _instruction(
    cells: list[str], operands: dict[tuple[str, str], _Operand]
) -> tuple[str, int, int, dict[str, _Operand]]:
    """(mnemonic, mask and value of what is constant, operands)"""
    mnemonic = _mnemonic(cells)
    mine = {name: found for (owner, name), found in operands.items() if owner == mnemonic}
    free = {bit for found in mine.values() for bit in found.bits}
    fixed = [bit for bit in range(8 * _size_bytes(cells) - 1, -1, -1) if bit not in free]
    tokens = cells[-2].strip("`").split()
    text = "".join(token for token in tokens if set(token) <= {"0", "1"})
    assert len(text) == len(fixed), (mnemonic, cells[1])
    match = sum(1 << bit for bit, digit in zip(fixed, text, strict=True) if digit == "1")
    return mnemonic, sum(1 << bit for bit in fixed), match, mine
