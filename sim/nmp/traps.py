"""Why a core of an NMP stops against its will: codes, and the texts that belong to them."""

from __future__ import annotations

from enum import IntEnum


class TrapCode(IntEnum):
    NONE = 0
    ILLEGAL_INSTRUCTION = 1
    PC_OUTSIDE_CODE = 2
    SCALAR_ACCESS = 3
    MISALIGNED_ACCESS = 4
    TILE_TOO_LARGE = 5
    DRAM_ACCESS = 6
    ACCUMULATOR_OVERFLOW = 7
    BAD_CONFIGURATION = 8
    DEADLOCK = 9
    RUNAWAY = 10
    BREAKPOINT = 11
    UNKNOWN_ECALL = 12
    HAZARD = 13
    SEMAPHORE = 14
    WRONG_MEMORY = 15
    NO_RING = 16
    RACE = 17
    BUDGET = 18
    READ_ONLY = 19
    STACK = 20
    OVERWRITTEN = 21
    UNREADABLE = 22


DETAIL_FORMATS: dict[TrapCode, str] = {
    TrapCode.ILLEGAL_INSTRUCTION: "illegal instruction {a:#010x}",
    TrapCode.PC_OUTSIDE_CODE: "no instruction of the code ({b:#x}..{c:#x})",
    TrapCode.SCALAR_ACCESS: "access of {b} bytes at {a:#x}, outside every memory",
    TrapCode.MISALIGNED_ACCESS: "misaligned access of {b} bytes at {a:#x}",
    TrapCode.TILE_TOO_LARGE: "tile at bytes {a}..{b} of {memory}, which has {c}",
    TrapCode.DRAM_ACCESS: "DMA transfer from {a:#x} to {b:#x} leaves the program's DRAM",
    TrapCode.ACCUMULATOR_OVERFLOW: "accumulator {a} needs more than {b} bits (filter {c})",
    TrapCode.BAD_CONFIGURATION: "{register} has the unusable value {a}",
    TrapCode.RUNAWAY: "still running after {a} instructions",
    TrapCode.BUDGET: "more than {a} products, elements and bytes in a run",
    TrapCode.BREAKPOINT: "ebreak",
    TrapCode.UNKNOWN_ECALL: (
        "ecall with a7 = {a}; known are 93 (exit) and, where there is a console, 64 (write)"
    ),
    TrapCode.READ_ONLY: "store to {a:#x}: code and read-only data lie at {b:#x}..{c:#x}",
    TrapCode.UNREADABLE: "load from {a:#x}: the segment at {b:#x}..{c:#x} is not readable",
    TrapCode.STACK: "access of {b} bytes at {a:#x}, in the guard between heap and stack; sp is "
    "{c:#x}",
    TrapCode.OVERWRITTEN: "the program has overwritten this instruction: code is read once, before "
    "the program begins",
    TrapCode.HAZARD: "transfer uses {memory} of core {a} while its MAC unit does",
    TrapCode.SEMAPHORE: (
        "semaphore {c} of level {a} with count {b}: the machine has {semaphores} semaphores on "
        "each of levels 0 to 2, releases go to levels 1 and 2, counts are not negative"
    ),
    TrapCode.RACE: (
        "transfer writes bytes of {memory} of core {a} that a transfer from another TLE writes, "
        "which is not complete"
    ),
    TrapCode.NO_RING: (
        "the transfer goes over a ring bus, and machine {machine} has none (no table [ring] in "
        "its machine file)"
    ),
    TrapCode.WRONG_MEMORY: "loads cannot write MB2, stores read nothing but MB2: {memory}",
}

MEMORY_NAMES = ("MB0", "MB1", "MB2", "the bias buffer")
