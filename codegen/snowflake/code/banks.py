"""Blocks to a code image: banks of instructions, each of which loads the next one.

No loop crosses a bank. A bank begins with the load of the next one into the place of the one
before, and ends with a jump to it; instructions outside of loops fill it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.code.block import Words
from tvm_npu.codegen.snowflake.code.nodes import ONE
from tvm_npu.codegen.snowflake.code.registers import BANK_OFFSET, BANK_PLACE, SPARE
from tvm_npu.codegen.snowflake.pace.items import Item
from tvm_npu.sim.snowflake.isa import (
    BANK_INSTRUCTIONS,
    BANKS,
    DELAY_SLOTS,
    SNOWFLAKE_ISA,
    Buffer,
    Shared,
    SnowflakeStream,
    VmacSelect,
)

INSTRUCTION_BYTES = 4
_NOP = ("movi", {"dest": SPARE, "value": 0})
"""Fills what is not used."""
_HEADER = 4
_JUMP = 1 + DELAY_SLOTS
ROOM = BANK_INSTRUCTIONS - _HEADER - _JUMP - 1
"""Instructions of blocks that a bank holds; one more starts the program."""


@dataclass(frozen=True)
class CodeBlock:
    """A finished block of a layer, with its transfers and waits in their order."""

    layer: int
    words: Words
    items: tuple[Item, ...] = ()


class Bank(NamedTuple):
    """A bank begins with ``block`` from its word ``word`` on; it comes with ``instructions``."""

    block: int
    word: int
    instructions: int


@dataclass(frozen=True)
class Packed:
    """A code image with the layer and stream of each word, and relocations (word, segment)."""

    words: NDArray[np.uint32]
    layers: NDArray[np.int16]
    streams: NDArray[np.int16]
    relocations: tuple[tuple[int, Segment], ...]
    banks: tuple[Bank, ...] = ()


def too_long(words: Words) -> bool:
    """A loop of the block does not fit a bank."""
    return any(end - begin > ROOM for begin, end in words.atoms)


def pack(blocks: Sequence[CodeBlock]) -> Packed:
    """Raises EmitError for a loop that does not fit a bank."""
    banks = _banks(blocks)
    numbers = {id(block): number for number, block in enumerate(blocks)}
    words: list[NDArray[np.uint32]] = []
    layers: list[NDArray[np.int16]] = []
    streams: list[NDArray[np.int16]] = []
    relocations = []
    found_banks: list[Bank] = []
    position = 0

    def add(code: NDArray[np.uint32], layer: int, stream: NDArray[np.int16] | None = None) -> None:
        nonlocal position
        words.append(code)
        layers.append(np.full(len(code), layer, np.int16))
        streams.append(np.zeros(len(code), np.int16) if stream is None else stream)
        position += len(code)

    for number, bank in enumerate(banks):
        layer = bank[0][0].layer if bank else -1
        if number == 0:
            add(_encoded([("movi", {"dest": ONE, "value": 1})]), layer)
        if number + 1 < len(banks):
            used = sum(end - begin for _, begin, end in banks[number + 1])
            is_last = number + 2 == len(banks)
            size = used if is_last else BANK_INSTRUCTIONS
            add(_load(number + 1, size), layer)
            following = banks[number + 1][0]
            found_banks.append(Bank(numbers[id(following[0])], following[1], size))
        for block, begin, end in bank:
            found = block.words
            relocations += [
                (position + at - begin, segment)
                for at, segment in found.relocations
                if begin <= at < end
            ]
            add(found.words[begin:end], block.layer, found.streams[begin:end])
        if number + 1 < len(banks):
            at = position % BANK_INSTRUCTIONS
            layer = bank[-1][0].layer if bank else -1
            add(_jump(BANK_INSTRUCTIONS - at), layer)
            add(np.full(-position % BANK_INSTRUCTIONS, _encoded([_NOP])[0]), -1)
    return Packed(
        np.concatenate(words), np.concatenate(layers), np.concatenate(streams),
        tuple(relocations), tuple(found_banks),
    )  # fmt: skip


Piece = tuple[CodeBlock, int, int]
"""Words ``begin`` to ``end`` of a block."""


def _banks(blocks: Sequence[CodeBlock]) -> list[list[Piece]]:
    """What goes to each bank: loops whole, other instructions as many as there is room for."""
    banks: list[list[Piece]] = [[]]
    room = ROOM
    for block in blocks:
        for begin, end, is_atom in _pieces(block.words):
            if is_atom and end - begin > ROOM:
                raise EmitError(f"a loop of {end - begin} instructions; a bank holds {ROOM}")
            while begin < end:
                count = end - begin
                if not is_atom:
                    count = min(count, room)
                if count > room or count == 0:
                    banks.append([])
                    room = ROOM
                    continue
                banks[-1].append((block, begin, begin + count))
                begin += count
                room -= count
    return banks


def _pieces(words: Words) -> list[tuple[int, int, bool]]:
    """Parts in order: (begin, end, cannot be cut)."""
    pieces = []
    at = 0
    for begin, end in words.atoms:
        pieces += [(at, begin, False), (begin, end, True)]
        at = end
    return [*pieces, (at, len(words.words), False)]


def _encoded(instructions: Sequence[tuple[str, dict[str, int]]]) -> NDArray[np.uint32]:
    return np.array(
        [SNOWFLAKE_ISA.encode(mnemonic, **operands) for mnemonic, operands in instructions],
        np.uint32,
    )


def _load(bank: int, instructions: int) -> NDArray[np.uint32]:
    """Loads a bank; its offset in the image is the last one's and a bank's size."""
    halves = INSTRUCTION_BYTES // 2
    ld = {
        "buffer": Buffer.ICACHE, "shared": Shared.OWN, "vmac": VmacSelect.ALL,
        "memory": BANK_OFFSET, "place": BANK_PLACE, "words": SPARE, "cus": 0,
        "stream": SnowflakeStream.OTHER,
    }  # fmt: skip
    size = INSTRUCTION_BYTES * BANK_INSTRUCTIONS
    place = bank % BANKS * BANK_INSTRUCTIONS
    return _encoded([
        ("addi", {"dest": BANK_OFFSET, "rs1": BANK_OFFSET, "value": size}),
        ("movi", {"dest": BANK_PLACE, "value": place}),
        ("movi", {"dest": SPARE, "value": halves * instructions}),
        ("ld", ld),
    ])  # fmt: skip


def _jump(instructions: int) -> NDArray[np.uint32]:
    jump = ("beq", {"rs1": ONE, "rs2": ONE, "imm": INSTRUCTION_BYTES * instructions})
    return _encoded([jump, *[_NOP] * DELAY_SLOTS])
