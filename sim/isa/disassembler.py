"""From words to assembly text; `sim.isa.assembler` reads the result back to the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.builder import ABI_NAMES, WORD_BYTES, check_base
from tvm_npu.sim.isa.table import OPERAND_NAME, WORD_MASK, Field, Instruction, Isa

_HEX_FROM = 4096
_COMMENT_COLUMN = 36


def disassemble(word: int, isa: Isa) -> str:
    """One instruction as text; ``.word 0x...`` for a word that is no instruction."""
    decoded = isa.decode(int(word) & WORD_MASK)
    if decoded is None:
        return f".word {int(word) & WORD_MASK:#010x}"
    return _format(*decoded, {})


def disassemble_code(
    words: Sequence[int] | NDArray[np.uint32],
    base_address: int = 0,
    comments: Mapping[int, str] | None = None,
    *,
    isa: Isa,
) -> str:
    """A listing of code that starts at ``base_address`` (bytes).

    Branch and jump targets inside the code become labels ``L_<address>``; every line carries its
    address and word as a comment, so the text assembles back to ``words``. ``comments`` maps an
    index into ``words`` to text that goes on lines of its own before that word. Raises IsaError for
    arguments of other types.
    """
    if not isinstance(isa, Isa):
        raise IsaError(f"an instruction set is a {type(isa).__name__}; expected an Isa")
    check_base(base_address)
    numbers = _words(words)
    decoded = [isa.decode(word) for word in numbers]
    end_address = base_address + WORD_BYTES * len(decoded)
    targets: dict[int, int] = {}
    for index, item in enumerate(decoded):
        address = base_address + WORD_BYTES * index
        target = None if item is None else _target(*item, address)
        if target is not None and base_address <= target <= end_address and not target % WORD_BYTES:
            targets[address] = target
    labels = {target: f"L_{target:08x}" for target in targets.values()}

    lines = []
    for index, (word, item) in enumerate(zip(numbers, decoded, strict=True)):
        address = base_address + WORD_BYTES * index
        if address in labels:
            lines.append(f"{labels[address]}:")
        if comments is not None and index in comments:
            lines += [f"    # {line}".rstrip() for line in comments[index].splitlines()]
        if item is None:
            text = disassemble(word, isa)
        else:
            text = _format(*item, {"imm": labels[targets[address]]} if address in targets else {})
        lines.append(f"    {text}".ljust(_COMMENT_COLUMN) + f"  # {address:08x}: {word:08x}")
    if end_address in labels:
        lines.append(f"{labels[end_address]}:")
    return "\n".join(lines) + "\n"


def _words(words: Sequence[int] | NDArray[np.uint32]) -> list[int]:
    """IsaError for what are no words [N]."""
    array = np.asarray(words)
    if array.ndim != 1 or array.size and array.dtype.kind not in "iu":
        raise IsaError(f"code is {array.dtype} {array.shape}; expected words [N]")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) <= WORD_MASK:
        raise IsaError(f"words are {array.min()} to {array.max()}; they are 0 to {WORD_MASK:#x}")
    numbers: list[int] = array.tolist()
    return numbers


def operand_text(field: Field, value: int) -> str:
    """One operand as assembly writes it: register, named value, or number."""
    if field.register:
        return ABI_NAMES[value]
    if field.names is not None and value in {int(member) for member in field.names}:
        return field.names(value).name.lower()  # type: ignore[call-arg]
    return hex(value) if value >= _HEX_FROM else str(value)


def _format(instruction: Instruction, operands: dict[str, int], replaced: dict[str, str]) -> str:
    texts = {
        name: replaced.get(name, operand_text(instruction.field(name), value))
        for name, value in operands.items()
    }
    syntax = OPERAND_NAME.sub(lambda match: texts[match.group()], instruction.syntax)
    return f"{instruction.mnemonic} {syntax}".rstrip()


def _target(instruction: Instruction, operands: dict[str, int], address: int) -> int | None:
    for item in instruction.fields:
        if item.relative:
            return address + operands[item.name]
    return None
