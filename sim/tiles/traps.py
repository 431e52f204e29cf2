"""Why a tile machine stops against its program's will: codes, and the texts that belong to them."""

from __future__ import annotations

from enum import IntEnum


class TileTrapCode(IntEnum):
    NONE = 0
    ILLEGAL_INSTRUCTION = 1
    NO_END = 2
    TILE_OUTSIDE = 3
    TRANSFER_OUTSIDE = 4
    BAD_REGISTER = 5
    WRONG_MEMORY = 6
    NOT_WRITTEN = 7
    BAD_ELEMENT = 8
    ACCUMULATOR_OVERFLOW = 9
    NO_UNIT = 10
    EMPTY_WINDOW = 11
    RACE = 12
    DMA = 13
    BAD_TEMPLATE = 14
    BUDGET = 15
    RUNAWAY = 16


DETAIL_FORMATS: dict[TileTrapCode, str] = {
    TileTrapCode.ILLEGAL_INSTRUCTION: "illegal instruction {a:#010x}",
    TileTrapCode.NO_END: "the code of {a} words ends without tend",
    TileTrapCode.TILE_OUTSIDE: (
        "{register} puts the operand at bytes {a}..{b} of {memory}, which has {c}"
    ),
    TileTrapCode.TRANSFER_OUTSIDE: (
        "the transfer touches bytes {a}..{b} of segment {memory}, which has {c}"
    ),
    TileTrapCode.BAD_REGISTER: "{register} is {a}; allowed here are {b} to {c}",
    TileTrapCode.WRONG_MEMORY: "{memory} cannot be used here",
    TileTrapCode.NOT_WRITTEN: "byte {a} of {memory} is read, and nothing was written there",
    TileTrapCode.BAD_ELEMENT: "{a} in {memory} is read as an element; elements are {b} to {c}",
    TileTrapCode.ACCUMULATOR_OVERFLOW: "a sum of channel {a} does not fit {b} bits",
    TileTrapCode.NO_UNIT: "machine {machine} has no {unit}",
    TileTrapCode.RACE: (
        "bytes {a}..{b} of {memory} are used while channel {c} of the DMA controller may be moving "
        "them; wait for its event first"
    ),
    TileTrapCode.DMA: "{text}",
    TileTrapCode.BAD_TEMPLATE: "no DMA program at byte {a} of CONSTANTS: {text}",
    TileTrapCode.BUDGET: "more than {a} products, elements and bytes in a run",
    TileTrapCode.RUNAWAY: "more than {a} instructions in a run",
    TileTrapCode.EMPTY_WINDOW: "the window of row {a}, column {b} counts no element",
}


class TrapSlot:
    """Entries of the trap record. MEMORY is a `TileMemory`, REGISTER a `TileRegister`."""

    CODE, ROW, A, B, C, MEMORY, REGISTER = range(7)
    COLUMNS = 7
