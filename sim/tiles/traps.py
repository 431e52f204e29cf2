"""Why a tile machine stops against its program's will: codes in compiled code, errors outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from tvm_npu.sim.errors import SimError


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
    TileTrapCode.EMPTY_WINDOW: "the window of row {a}, column {b} counts no element",
}


class TrapSlot:
    """Entries of the trap record. MEMORY is a `TileMemory`, REGISTER a `TileRegister`."""

    CODE, ROW, A, B, C, MEMORY, REGISTER = range(7)
    COLUMNS = 7


@dataclass
class TileTrap(SimError):
    """A stop with its place: code, index of the instruction word, its text, its layer, and the
    registers that it reads."""

    code: TileTrapCode
    row: int
    detail: str
    instruction: str = ""
    layer: str = ""
    registers: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        place = f"instruction {self.row}"
        if self.instruction:
            place += f" ({self.instruction})"
        if self.layer:
            place += f" in layer {self.layer!r}"
        text = f"{place}: {self.detail}"
        if self.registers:
            values = ", ".join(f"{name} {value}" for name, value in self.registers.items())
            text += f" [{values}]"
        return text

    def __hash__(self) -> int:
        return id(self)
