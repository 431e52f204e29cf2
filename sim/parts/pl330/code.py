"""PL-330 programs as bytes: a builder, assembly text in, assembly text out; all by the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.assembler import parse_number, split_operands
from tvm_npu.sim.isa.disassembler import operand_text
from tvm_npu.sim.isa.table import OPERAND_NAME, Field, Instruction
from tvm_npu.sim.parts.pl330.isa import LARGEST_JUMP, PL330_ISA

_COMMENT_COLUMN = 28
_DEEPEST = 3
"""Indentation of a listing: inside of loops of both counters."""
_BY_FIRST_BYTE = [
    tuple(item for item in PL330_ISA.instructions if byte & item.mask & 0xFF == item.match & 0xFF)
    for byte in range(256)
]


@dataclass(frozen=True)
class Decoded:
    """One instruction of a program at byte `offset`."""

    offset: int
    instruction: Instruction
    operands: dict[str, int]

    def __str__(self) -> str:
        texts = {
            name: operand_text(self.instruction.field(name), value)
            for name, value in self.operands.items()
        }
        syntax = OPERAND_NAME.sub(lambda match: texts[match.group()], self.instruction.syntax)
        return f"{self.instruction.mnemonic} {syntax}".rstrip()


class ProgramBuilder:
    """Collects the instructions of one channel program; loops are context managers."""

    def __init__(self) -> None:
        self._code = bytearray()
        self._open: list[int] = []

    @property
    def size_bytes(self) -> int:
        return len(self._code)

    def emit(self, mnemonic: str, **operands: int) -> None:
        """Appends an instruction; IsaError when an operand does not fit."""
        word = PL330_ISA.encode(mnemonic, **operands)
        self._code += word.to_bytes(PL330_ISA.by_mnemonic[mnemonic].size_bytes, "little")

    @contextmanager
    def loop(self, counter: int, count: int) -> Iterator[None]:
        """The instructions emitted inside run ``count`` (1 to 256) times.

        Raises IsaError when an open loop uses the counter or the body has more than 255 bytes.
        """
        if counter in self._open:
            raise IsaError(f"loop counter {counter} counts a loop that is still open")
        self.emit("dmalp", lc=counter, count=count)
        begin = self.size_bytes
        self._open.append(counter)
        yield
        self._open.pop()
        body = self.size_bytes - begin
        if body > LARGEST_JUMP:
            raise IsaError(f"loop body of {body} bytes; at most {LARGEST_JUMP}")
        self.emit("dmalpend", lc=counter, back=body)

    def append(self, code: bytes) -> None:
        """The instructions of a finished piece."""
        self._code += code

    def byte(self, value: int) -> None:
        """Appends a byte that need not be an instruction (for tests of traps)."""
        if not 0 <= value <= 0xFF:
            raise IsaError(f"byte {value} is outside 0..255")
        self._code.append(value)

    def finish(self) -> bytes:
        """The program so far."""
        return bytes(self._code)


def decode(program: bytes) -> list[Decoded]:
    """All instructions in order; IsaError with the offset of what is none or is cut off."""
    found = []
    offset = 0
    while offset < len(program):
        item = decode_at(program, offset)
        if item is None:
            raise IsaError(f"byte {program[offset]:#04x} at {offset} begins no instruction")
        found.append(item)
        offset += item.instruction.size_bytes
    return found


def decode_at(program: bytes, offset: int) -> Decoded | None:
    """The instruction that begins at byte ``offset``, or None."""
    for item in _BY_FIRST_BYTE[program[offset]] if offset < len(program) else ():
        piece = program[offset : offset + item.size_bytes]
        word = int.from_bytes(piece, "little")
        if len(piece) == item.size_bytes and word & item.mask == item.match:
            return Decoded(offset, item, {f.name: f.decode(word) for f in item.fields})
    return None


def disassemble(program: bytes) -> str:
    """A listing with offset and bytes as comments; `assemble` reads it back to the same bytes.

    Bytes that are no instruction become ``.byte``.
    """
    lines = []
    offset, depth = 0, 1
    while offset < len(program):
        item = decode_at(program, offset)
        size = 1 if item is None else item.instruction.size_bytes
        text = f".byte {program[offset]:#04x}" if item is None else str(item)
        if text.startswith("dmalpend"):
            depth = max(1, depth - 1)
        shown = program[offset : offset + size].hex(" ")
        lines.append(f"{'  ' * depth}{text}".ljust(_COMMENT_COLUMN) + f"# {offset:04x}: {shown}\n")
        if text.startswith("dmalp "):
            depth = min(depth + 1, _DEEPEST)
        offset += size
    return "".join(lines)


def assemble(text: str) -> bytes:
    """The bytes of assembly text: an instruction as the table writes it, or ``.byte value``, on
    each line; ``#`` starts a comment. ``dmalpend lc0`` without a distance ends the loop that the
    last ``dmalp lc0`` began. Raises IsaError with the line's number.
    """
    builder = ProgramBuilder()
    begins: dict[int, int] = {}
    for line_number, line in enumerate(text.splitlines(), start=1):
        try:
            _assemble_line(builder, begins, line.partition("#")[0].strip())
        except IsaError as error:
            raise IsaError(f"line {line_number}: {error}") from None
    return builder.finish()


def _assemble_line(builder: ProgramBuilder, begins: dict[int, int], text: str) -> None:
    """``begins``: where the body of each counter's last loop begins."""
    if not text:
        return
    mnemonic, *rest = text.split(maxsplit=1)
    operands = rest[0] if rest else ""
    if mnemonic == ".byte":
        builder.byte(parse_number(mnemonic, "value", operands))
        return
    instruction = PL330_ISA.by_mnemonic.get(mnemonic)
    if instruction is None:
        raise IsaError(f"{PL330_ISA.title}: there is no {mnemonic!r}")
    if mnemonic == "dmalpend" and "," not in operands:
        counter = _operand(instruction, instruction.field("lc"), operands.strip())
        if counter not in begins:
            raise IsaError(f"dmalpend: no dmalp of loop counter {operands.strip()!r} before it")
        operands = f"{counter}, {builder.size_bytes - begins[counter]}"
    values = {
        name: _operand(instruction, instruction.field(name), text)
        for name, text in zip(
            instruction.syntax_names,
            split_operands(mnemonic, instruction.syntax, operands),
            strict=True,
        )
    }
    builder.emit(mnemonic, **values)
    if mnemonic == "dmalp":
        begins[values["lc"]] = builder.size_bytes


def _operand(instruction: Instruction, field: Field, text: str) -> int:
    if field.names is not None and text.upper() in field.names.__members__:
        return int(field.names[text.upper()])
    return parse_number(instruction.mnemonic, field.name, text)
