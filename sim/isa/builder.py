"""Builds machine code from mnemonics: labels, forward references, a few pseudo-instructions.

Generic over an :class:`~tvm_npu.sim.isa.table.Isa`; the code generator and the text assembler
both stand on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.errors import IsaError, OutOfReachError
from tvm_npu.sim.isa.table import WORD_MASK, Instruction, Isa
from tvm_npu.sim.texts import shown

WORD_BYTES = 4

ABI_NAMES = (
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
)  # fmt: skip
"""ABI name of each register, by number."""

REGISTERS: dict[str, int] = {
    **{f"x{number}": number for number in range(32)},
    **{name: number for number, name in enumerate(ABI_NAMES)},
    "fp": 8,
}
"""Register numbers by architectural (x0..x31) and ABI name."""


@dataclass(frozen=True)
class _Reference:
    """An instruction with the distance to a label, which may come later, in ``operand``: of itself,
    or, for one half of it, of the instruction ``back`` bytes before."""

    instruction: Instruction
    operands: tuple[tuple[str, int], ...]
    operand: str
    label: str
    half: int | None = None
    back: int = 0


@dataclass(frozen=True)
class _Address:
    """A data word that holds a label's absolute address."""

    label: str


def split_constant(value: int) -> tuple[int, int]:
    """(upper, lower) with value = (upper << 12) + lower modulo 2**32, lower in -2048..2047."""
    lower = ((value & 0xFFF) ^ 0x800) - 0x800
    return ((value - lower) >> 12) & 0xFFFFF, lower


def check_base(base_address: object) -> None:
    """IsaError for what is no address of code."""
    if not isinstance(base_address, int | np.integer):
        raise IsaError(f"code at a {type(base_address).__name__}: an address is a whole number")
    if not 0 <= base_address <= WORD_MASK:
        raise IsaError(f"code at {shown(int(base_address))}: addresses are 0 to {WORD_MASK:#x}")
    if base_address % WORD_BYTES:
        raise IsaError(f"code at {base_address:#x}: the address must be a multiple of 4")


class CodeBuilder:
    """Collects words; every position is a byte offset from the start of the code.

    Raises IsaError for operands that do not fit, labels defined twice or never, and branches
    whose target is out of reach.
    """

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self._items: list[int | _Reference | _Address] = []
        self._labels: dict[str, int] = {}

    @property
    def position(self) -> int:
        """Byte offset of the next word."""
        return WORD_BYTES * len(self._items)

    @property
    def labels(self) -> dict[str, int]:
        """Byte offsets of the labels defined so far."""
        return dict(self._labels)

    def label(self, name: str) -> None:
        """Defines ``name`` as the current position."""
        if name in self._labels:
            raise IsaError(f"label {name!r} is defined twice")
        self._labels[name] = self.position

    def emit(self, mnemonic: str, **operands: int | str) -> None:
        """Appends one instruction. Registers are numbers or names; the distance of a branch or
        jump may be a label's name."""
        instruction = self.isa.by_mnemonic.get(mnemonic)
        if instruction is None:
            raise IsaError(f"{self.isa.name} has no instruction {mnemonic!r}")
        numbers: dict[str, int] = {}
        label: tuple[str, str] | None = None
        for name, value in operands.items():
            if isinstance(value, str):
                operand = instruction.field(name)
                if operand.register:
                    value = _register(mnemonic, name, value)
                elif operand.relative:
                    label, value = (name, value), 0
                else:
                    raise IsaError(f"{mnemonic}: operand {name} is {value!r}, expected a number")
            numbers[name] = value
        word = instruction.encode(**numbers)
        if label is None:
            self._items.append(word)
        else:
            self._items.append(_Reference(instruction, tuple(numbers.items()), *label))

    def word(self, value: int | str) -> None:
        """Appends a data word: a number, or a label's absolute address."""
        if isinstance(value, str):
            self._items.append(_Address(value))
            return
        if not -(1 << 31) <= value <= WORD_MASK:
            raise IsaError(f"data word: {value} does not fit in 32 bits")
        self._items.append(value & WORD_MASK)

    def li(self, rd: int | str, value: int) -> None:
        """rd = value, in one or two instructions; value in -2**31 .. 2**32 - 1."""
        if not -(1 << 31) <= value <= WORD_MASK:
            raise IsaError(f"li: {value} does not fit in 32 bits")
        upper, lower = split_constant(value)
        if upper == 0:
            self.emit("addi", rd=rd, rs1=0, imm=lower)
            return
        self.emit("lui", rd=rd, imm=upper)
        if lower:
            self.emit("addi", rd=rd, rs1=rd, imm=lower)

    def la(self, rd: int | str, label: str) -> None:
        """rd = the address of ``label``, wherever the code lies, in two instructions."""
        number = _register("la", "rd", rd) if isinstance(rd, str) else rd
        upper, lower = self.isa.by_mnemonic.get("auipc"), self.isa.by_mnemonic.get("addi")
        if upper is None or lower is None:
            raise IsaError(f"{self.isa.name} has no instructions for the address of a label")
        self._items += [
            _Reference(upper, (("rd", number), ("imm", 0)), "imm", label, half=0),
            _Reference(lower, (("rd", number), ("rs1", number), ("imm", 0)), "imm", label,
                       half=1, back=WORD_BYTES),
        ]  # fmt: skip

    def mv(self, rd: int | str, rs: int | str) -> None:
        self.emit("addi", rd=rd, rs1=rs, imm=0)

    def j(self, target: str) -> None:
        self.emit("jal", rd=0, imm=target)

    def nop(self) -> None:
        self.emit("addi", rd=0, rs1=0, imm=0)

    def finish(self, base_address: int = 0) -> NDArray[np.uint32]:
        """The words, with all labels resolved; ``base_address`` is where the first one goes.
        OutOfReachError names all labels that are too far from an instruction."""
        check_base(base_address)
        words = np.empty(len(self._items), np.uint32)
        too_far: list[OutOfReachError] = []
        for index, item in enumerate(self._items):
            if isinstance(item, _Reference):
                try:
                    words[index] = self._resolve(item, WORD_BYTES * index)
                except OutOfReachError as error:
                    too_far.append(error)
            elif isinstance(item, _Address):
                words[index] = (base_address + self._offset(item.label)) & WORD_MASK
            else:
                words[index] = item
        if too_far:
            labels = frozenset().union(*(error.labels for error in too_far))
            raise OutOfReachError(str(too_far[0]), labels)
        return words

    def _offset(self, label: str) -> int:
        if label not in self._labels:
            raise IsaError(f"label {label!r} is used but not defined")
        return self._labels[label]

    def _resolve(self, item: _Reference, position: int) -> int:
        distance = self._offset(item.label) - position + item.back
        if item.half is not None:
            distance = split_constant(distance)[item.half]
        try:
            return item.instruction.encode(**{**dict(item.operands), item.operand: distance})
        except IsaError as error:
            text = f"label {item.label!r} is out of reach: {error}"
            raise OutOfReachError(text, frozenset((item.label,))) from None


def _register(mnemonic: str, operand: str, name: str) -> int:
    if name not in REGISTERS:
        raise IsaError(f"{mnemonic}: operand {operand} is {name!r}, which is no register")
    return REGISTERS[name]
