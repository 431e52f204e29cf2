"""Assembly text to words.

One statement a line: ``label:``, an instruction as the table's syntax has it, one of
:func:`pseudo_instructions`, or ``.word value, ...`` (numbers and labels). ``#`` starts a comment.
Numbers are decimal, 0x, 0o or 0b. Branches and jumps take a label or a distance in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.builder import REGISTERS, CodeBuilder, check_base
from tvm_npu.sim.isa.table import OPERAND_NAME, Field, Instruction, Isa

_LABEL = re.compile(r"[A-Za-z_.$][\w.$]*")
_OPERAND = r"([^\s,()]+)"
LONGEST_NUMBER = 70
"""Characters: 64 bits in base two, and their sign and base."""
_NO_DISTANCE = re.compile(r"(^|,)\s*\(")


def assemble(text: str, base_address: int = 0, *, isa: Isa) -> NDArray[np.uint32]:
    """The words of ``text``, to be placed at ``base_address`` (bytes, a multiple of 4).

    Raises IsaError for arguments of other types and, with the line's number, for anything that
    ``isa`` and the pseudo-instructions do not have, for operands that do not fit, for labels that
    are defined twice or never, and for branches out of reach.
    """
    if not isinstance(text, str):
        raise IsaError(f"assembly is a {type(text).__name__}; expected a text")
    if not isinstance(isa, Isa):
        raise IsaError(f"an instruction set is a {type(isa).__name__}; expected an Isa")
    check_base(base_address)
    assembly = _Assembly(CodeBuilder(isa), [])
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            assembly.line(number, line.partition("#")[0].strip())
        except IsaError as error:
            raise IsaError(f"line {number}: {error}") from None
    assembly.check_references()
    return assembly.builder.finish(base_address)


def pseudo_instructions() -> tuple[tuple[str, str], ...]:
    """(as written, what it stands for) of every pseudo-instruction."""
    rows = [
        ("li rd, value", "lui and addi, or one of them"),
        ("la rd, label", "auipc and addi: the label's address, wherever the code lies"),
    ]
    for mnemonic, (syntax, expand) in _PSEUDO.items():
        expansion = " ".join(expand(*OPERAND_NAME.findall(syntax)))
        rows.append((f"{mnemonic} {syntax}".rstrip(), expansion))
    return tuple(rows)


@dataclass(frozen=True)
class _Reference:
    """A place that needs a label: an instruction's relative field; None: a data word or an
    address, which reach everything."""

    line: int
    position: int
    label: str
    field: Field | None


@dataclass(frozen=True)
class _Assembly:
    builder: CodeBuilder
    references: list[_Reference]

    def line(self, number: int, text: str) -> None:
        *names, text = (part.strip() for part in text.split(":"))
        for name in names:
            if not _LABEL.fullmatch(name) or name in REGISTERS:
                raise IsaError(f"{name!r} cannot be a label")
            self.builder.label(name)
        if text:
            mnemonic, *operands = text.split(maxsplit=1)
            self.statement(number, mnemonic, operands[0] if operands else "")

    def statement(self, number: int, mnemonic: str, operands: str) -> None:
        if mnemonic == ".word":
            for value in operands.split(","):
                self._data(number, value.strip())
        elif mnemonic == "li":
            rd, value = split_operands(mnemonic, "rd, value", operands)
            self.builder.li(rd, parse_number(mnemonic, "value", value))
        elif mnemonic == "la":
            rd, label = split_operands(mnemonic, "rd, label", operands)
            self.references.append(_Reference(number, self.builder.position, label, None))
            self.builder.la(rd, label)
        elif mnemonic == "fence" and (sets := _FENCE_SETS.fullmatch(operands)):
            before, behind = (sum(_FENCE_BITS[letter] for letter in one) for one in sets.groups())
            self.statement(number, mnemonic, f"zero, zero, {before << 4 | behind}")
        elif mnemonic in _PSEUDO and not (operands and mnemonic in self.builder.isa.by_mnemonic):
            syntax, expand = _PSEUDO[mnemonic]
            self.statement(number, *expand(*split_operands(mnemonic, syntax, operands)))
        else:
            self._instruction(number, mnemonic, operands)

    def _data(self, number: int, value: str) -> None:
        if _LABEL.fullmatch(value):
            self.references.append(_Reference(number, self.builder.position, value, None))
            self.builder.word(value)
        else:
            self.builder.word(parse_number(".word", "value", value))

    def _instruction(self, number: int, mnemonic: str, operands: str) -> None:
        instruction = self.builder.isa.by_mnemonic.get(mnemonic)
        if instruction is None:
            raise IsaError(f"{self.builder.isa.title} has no instruction {mnemonic!r}")
        if "imm(" in instruction.syntax:  # no distance is one of 0
            operands = _NO_DISTANCE.sub(r"\g<1>0(", operands)
        texts = split_operands(mnemonic, instruction.syntax, operands)
        values: dict[str, int | str] = {}
        for name, text in zip(instruction.syntax_names, texts, strict=True):
            field = instruction.field(name)
            values[name] = _value(instruction, field, text)
            if field.relative and isinstance(values[name], str):
                self.references.append(_Reference(number, self.builder.position, text, field))
        self.builder.emit(mnemonic, **values)

    def check_references(self) -> None:
        """What the builder would find at the end, found here where the line is known."""
        labels = self.builder.labels
        for reference in self.references:
            if reference.label not in labels:
                raise IsaError(
                    f"line {reference.line}: label {reference.label!r} is used but not defined"
                )
            if reference.field is not None:
                try:
                    reference.field.encode(labels[reference.label] - reference.position)
                except IsaError as error:
                    raise IsaError(
                        f"line {reference.line}: label {reference.label!r} is out of reach: {error}"
                    ) from None


_FENCE_SETS = re.compile(r"(?=[iorw])(i?o?r?w?)\s*,\s*(?=[iorw])(i?o?r?w?)")
_FENCE_BITS = {"i": 8, "o": 4, "r": 2, "w": 1}

_PSEUDO: dict[str, tuple[str, Callable[..., tuple[str, str]]]] = {
    "nop": ("", lambda: ("addi", "zero, zero, 0")),
    "mv": ("rd, rs", lambda rd, rs: ("addi", f"{rd}, {rs}, 0")),
    "j": ("target", lambda target: ("jal", f"zero, {target}")),
    "call": ("target", lambda target: ("jal", f"ra, {target}")),
    "jr": ("rs", lambda rs: ("jalr", f"zero, 0({rs})")),
    "not": ("rd, rs", lambda rd, rs: ("xori", f"{rd}, {rs}, -1")),
    "fence": ("", lambda: ("fence", "zero, zero, 255")),
    "ret": ("", lambda: ("jalr", "zero, 0(ra)")),
    "beqz": ("rs, target", lambda rs, target: ("beq", f"{rs}, zero, {target}")),
    "bnez": ("rs, target", lambda rs, target: ("bne", f"{rs}, zero, {target}")),
}


@lru_cache(maxsize=256)
def _pattern(syntax: str) -> re.Pattern[str]:
    pieces = []
    for token in re.findall(r"[a-z_][a-z_0-9]*|[,()]", syntax):
        pieces.append(_OPERAND if OPERAND_NAME.fullmatch(token) else re.escape(token))
    return re.compile(r"\s*".join(pieces))


def split_operands(mnemonic: str, syntax: str, operands: str) -> tuple[str, ...]:
    """The operands' texts, in the order in which ``syntax`` names them."""
    match = _pattern(syntax).fullmatch(operands)
    if match is None:
        wanted = repr(f"{mnemonic} {syntax}".rstrip())
        raise IsaError(f"{mnemonic}: operands {operands!r}, expected {wanted}")
    return match.groups()


def _value(instruction: Instruction, field: Field, text: str) -> int | str:
    """A number; a register's or label's name where the field takes one."""
    if field.register:
        return text
    if field.names is not None and text.upper() in field.names.__members__:
        return int(field.names[text.upper()])
    if field.relative and _LABEL.fullmatch(text):
        return text
    return parse_number(instruction.mnemonic, field.name, text)


def parse_number(mnemonic: str, operand: str, text: str) -> int:
    """Decimal, 0x, 0o or 0b; IsaError names the instruction and its operand."""
    shown = repr(text) if len(text) <= LONGEST_NUMBER else f"{text[:20]!r}..."
    try:
        if len(text) <= LONGEST_NUMBER:
            return int(text, 0)
    except ValueError:
        pass
    raise IsaError(f"{mnemonic}: operand {operand} is {shown}, expected a number")
