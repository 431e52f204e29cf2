"""What machine files of every kind are made of: limits of numbers, and the memory behind all."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Precision = Literal["int16", "int8"]
ELEMENT_BYTES: dict[str, Literal[1, 2]] = {"int16": 2, "int8": 1}
BIAS_BYTES = 4
"""A bias is an int32, at every precision."""

MemoryBytes = Annotated[int, Field(ge=64, le=1 << 24, multiple_of=8)]
Cycles = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0.01, le=1e6, allow_inf_nan=False)]
Frequency = Annotated[float, Field(ge=0.001, le=1e5, allow_inf_nan=False)]
MachineName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]


class Part(BaseModel):
    """A table of a machine file: immutable, no unknown keys, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AddressSpace(Part):
    """Where the memory outside of the chip lies."""

    base_address: Annotated[int, Field(ge=0, lt=1 << 32, multiple_of=4096)]
    capacity_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 32)]


Picojoules = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Energy(Part):
    """What work costs: a multiply-accumulate of each precision, an instruction, a byte that a
    transfer reads from or writes to a memory (by part: ``mb0``, ``dram``), a byte over a link."""

    int16_mac_pj: Picojoules = 0.0
    int8_mac_pj: Picojoules = 0.0
    instruction_pj: Picojoules = 0.0
    memory_byte_pj: dict[str, Picojoules] = {}
    link_byte_pj: dict[str, Picojoules] = {}

    def __hash__(self) -> int:
        """Machines are keys of what is planned for them; a dict has no hash of its own."""
        parts = (sorted(self.memory_byte_pj.items()), sorted(self.link_byte_pj.items()))
        macs = (self.int16_mac_pj, self.int8_mac_pj, self.instruction_pj)
        return hash((macs, *map(tuple, parts)))


SCRATCHPADS_END = 0x4000_0000
"""Below lie the scratchpads, on machines that map them."""


def check_address_space(space: AddressSpace, lowest: int) -> None:
    """ValueError when ``space`` leaves the 32-bit addresses from ``lowest`` on."""
    end = space.base_address + space.capacity_bytes
    if end > 1 << 32:
        raise ValueError(
            f"dram.base_address + dram.capacity_bytes = {end:#x} leaves the 32-bit address space"
        )
    if space.base_address < lowest:
        raise ValueError(
            f"dram.base_address = {space.base_address:#x} is below {lowest:#x}, where the "
            "scratchpads are mapped"
        )
