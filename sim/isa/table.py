"""The machinery of ISA tables: a field owns its bits, an instruction owns its encoding.

A table lists :class:`Instruction` entries. Encoder, decoder (scalar and vectorised), assembler,
disassembler, simulator dispatch and the ISA document are all derived from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.lazy import cached_property

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORD_MASK = 0xFFFF_FFFF
OPERAND_NAME = re.compile(r"[a-z_][a-z_0-9]*")
"""An operand's name inside an instruction's ``syntax``."""


class Named(IntEnum):
    """An enumeration whose members carry their meaning: ``NAME = value, "meaning"``."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Named:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


@dataclass(frozen=True)
class Field:
    """A named operand. ``pieces`` are (high, low, shift): word bits high..low hold the value's
    bits from ``shift`` upwards. ``column`` is the decoded column that the simulator reads.
    ``relative`` marks a distance in bytes from this instruction, ``names`` the words that
    assembly may use for the field's values. The bits hold the value less ``bias``."""

    name: str
    pieces: tuple[tuple[int, int, int], ...]
    column: str
    signed: bool = False
    register: bool = False
    relative: bool = False
    names: type[Named] | None = None
    bias: int = 0

    @cached_property
    def mask(self) -> int:
        return sum(((1 << (high - low + 1)) - 1) << low for high, low, _ in self.pieces)

    @cached_property
    def width(self) -> int:
        return max(shift + high - low + 1 for high, low, shift in self.pieces)

    @cached_property
    def step(self) -> int:
        return 1 << min(shift for _, _, shift in self.pieces)

    @cached_property
    def low(self) -> int:
        return self.bias - ((1 << (self.width - 1)) if self.signed else 0)

    @cached_property
    def high(self) -> int:
        top = (1 << (self.width - 1)) if self.signed else (1 << self.width)
        return self.bias + top - self.step

    def encode(self, value: int) -> int:
        """The word bits of ``value``; IsaError when it does not fit."""
        bits = value - self.bias
        if not self.low <= value <= self.high or bits % self.step:
            multiple = f", a multiple of {self.step}" if self.step > 1 else ""
            raise IsaError(
                f"field {self.name}: {value} is outside {self.low}..{self.high}{multiple}"
            )
        word = 0
        for high, low, shift in self.pieces:
            word |= ((bits >> shift) & ((1 << (high - low + 1)) - 1)) << low
        return word

    def decode(self, word: int) -> int:
        value = 0
        for high, low, shift in self.pieces:
            value |= ((word >> low) & ((1 << (high - low + 1)) - 1)) << shift
        if self.signed and value >> (self.width - 1):
            value -= 1 << self.width
        return value + self.bias

    def decode_array(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        value = 0 * words
        for high, low, shift in self.pieces:
            value |= ((words >> low) & ((1 << (high - low + 1)) - 1)) << shift
        if self.signed:
            value -= (value >> (self.width - 1)) << self.width
        return value + self.bias


@dataclass(frozen=True)
class Instruction:
    """One row of a table.

    ``match`` gives the constant bits, ``syntax`` the operands as written, with field names.
    ``execute`` names the semantic function, ``kind`` its form: "value" f(a, b, imm, pc) gives rd,
    "branch" f(a, b, imm, pc) says whether pc += imm, "jump" f(a, b, imm, pc) gives the next pc and
    links rd, "state" f(state, costs, core, row) does anything. ``shared`` says that executing it
    can be seen by, or depends on, another core: the simulator runs such instructions in global
    time order. An instruction of ``size_bytes`` bytes is one little-endian number.
    """

    mnemonic: str
    match: int
    fields: tuple[Field, ...]
    syntax: str
    meaning: str
    execute: str
    kind: Literal["value", "branch", "jump", "state"] = "state"
    shared: bool = False
    size_bytes: int = 4

    @cached_property
    def mask(self) -> int:
        """The constant bits."""
        operands = 0
        for item in self.fields:
            if operands & item.mask:
                raise IsaError(f"{self.mnemonic}: field {item.name} overlaps another field")
            operands |= item.mask
        return self.all_bits & ~operands

    @property
    def all_bits(self) -> int:
        return (1 << (8 * self.size_bytes)) - 1

    def field(self, name: str) -> Field:
        for item in self.fields:
            if item.name == name:
                return item
        raise IsaError(f"{self.mnemonic} has no operand {name!r}")

    def encode(self, **operands: int) -> int:
        names = {item.name for item in self.fields}
        if names != operands.keys():
            wrong = sorted(names ^ operands.keys())
            raise IsaError(f"{self.mnemonic}: missing or unknown operands {', '.join(wrong)}")
        word = self.match
        for item in self.fields:
            try:
                word |= item.encode(operands[item.name])
            except IsaError as error:
                raise IsaError(f"{self.mnemonic}: {error}") from None
        return word

    @cached_property
    def syntax_names(self) -> tuple[str, ...]:
        return tuple(OPERAND_NAME.findall(self.syntax))


COLUMNS = ("rd", "rs1", "rs2", "imm", "sem", "sub")
"""Decoded columns, in order: what an instruction's semantic function can read."""


@dataclass(frozen=True)
class Isa:
    """A named, checked set of instructions: every bit accounted for, decoding unique.

    ``decode_array`` is for sets whose instructions are all one word of four bytes.
    ``register_names`` are what listings call the control unit's registers, by number.
    """

    name: str
    title: str
    instructions: tuple[Instruction, ...]
    columns: tuple[str, ...] = COLUMNS
    register_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for i, one in enumerate(self.instructions):
            if one.match & ~one.mask:
                raise IsaError(f"{one.mnemonic}: constant bits overlap an operand")
            if set(one.syntax_names) != {item.name for item in one.fields}:
                raise IsaError(f"{one.mnemonic}: syntax {one.syntax!r} does not name its fields")
            if any(item.column not in self.columns for item in one.fields):
                raise IsaError(f"{one.mnemonic}: unknown decoded column")
            for other in self.instructions[:i]:
                if one.mnemonic == other.mnemonic:
                    raise IsaError(f"{one.mnemonic} is listed twice")
                common = one.mask & other.mask
                if one.match & common == other.match & common:
                    raise IsaError(f"{one.mnemonic} and {other.mnemonic} share an encoding")

    def register_name(self, number: int) -> str:
        """What listings call register ``number``."""
        return self.register_names[number] if self.register_names else f"r{number}"

    @cached_property
    def by_mnemonic(self) -> dict[str, Instruction]:
        return {item.mnemonic: item for item in self.instructions}

    @cached_property
    def index(self) -> dict[str, int]:
        return {item.mnemonic: i for i, item in enumerate(self.instructions)}

    def encode(self, mnemonic: str, **operands: int) -> int:
        instruction = self.by_mnemonic.get(mnemonic)
        if instruction is None:
            raise IsaError(f"{self.name} has no instruction {mnemonic!r}")
        return instruction.encode(**operands)

    def decode(self, word: int) -> tuple[Instruction, dict[str, int]] | None:
        """(instruction, operands), or None for an illegal word."""
        for item in self.instructions:
            if word & item.mask == item.match:
                return item, {f.name: f.decode(word) for f in item.fields}
        return None

    def decode_array(self, words: NDArray[np.uint32]) -> NDArray[np.int32]:
        """int32 [len(words), 1 + columns]: instruction index (-1: illegal), then columns."""
        import numpy as np  # tables alone, as machine files ask for them, do without

        wide = words.astype(np.int64)
        table = np.zeros((len(words), 1 + len(self.columns)), np.int32)
        table[:, 0] = -1
        for number, item in enumerate(self.instructions):
            rows = np.flatnonzero((wide & item.mask) == item.match)
            if not len(rows):
                continue
            table[rows, 0] = number
            for operand in item.fields:
                column = 1 + self.columns.index(operand.column)
                table[rows, column] = operand.decode_array(wide[rows])
        return table
