"""Why a simulated core stops against its will: codes inside compiled code, errors outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from tvm_npu.sim.errors import SimError


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
    TrapCode.BREAKPOINT: "ebreak",
    TrapCode.UNKNOWN_ECALL: "ecall with a7 = {a}; only 93 (exit) is known",
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


@dataclass(frozen=True)
class Waiter:
    """A blocked core in a deadlock."""

    core: int
    pc: int
    waits_for: str
    layer: str = ""

    def __str__(self) -> str:
        layer = f" in layer {self.layer!r}" if self.layer else ""
        return f"core {self.core} at {self.pc:#x}{layer} waits for {self.waits_for}"


@dataclass
class Trap(SimError):
    """A stop with its place: code, core, pc, instruction, layer, tile."""

    code: TrapCode
    core: int
    pc: int
    detail: str
    instruction: str = ""
    layer: str = ""
    tile: dict[str, int] = field(default_factory=dict)
    waiters: tuple[Waiter, ...] = ()

    def __str__(self) -> str:
        if self.code == TrapCode.DEADLOCK:
            return "deadlock: " + "; ".join(str(waiter) for waiter in self.waiters)
        place = f"core {self.core} at {self.pc:#x}"
        if self.instruction:
            place += f" ({self.instruction})"
        if self.layer:
            place += f" in layer {self.layer!r}"
        if self.tile:
            place += " tile " + ", ".join(f"{k}={v}" for k, v in self.tile.items())
        return f"{place}: {self.detail}"

    def __hash__(self) -> int:
        return id(self)
