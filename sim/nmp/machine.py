"""The description of an NMP: TLEs, TLTs, MAC units, scratchpads, DMA engines, DRAM, ring buses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tvm_npu.sim.description import Q_POINTS_ONLY, MachineDescription, Requantization
from tvm_npu.sim.machine_file import (
    load_machine,
    machine_from_dict,
    machine_from_toml,
    of_description,
)
from tvm_npu.sim.machine_parts import (
    SCRATCHPADS_END,
    AddressSpace,
    Cycles,
    MemoryBytes,
    Part,
    Precision,
    Rate,
)
from tvm_npu.sim.nmp.filter_words import FILTER_BIAS_BITS, MOST_FILTER_SHIFT
from tvm_npu.sim.nmp.scale_words import MULTIPLIER_BITS
from tvm_npu.sim.units import LOADED, STORED, Link, Unit

RING = Link("ring", "ring", "over the Global Ringbus")
FORWARDED = Link("forwarded", "forward", "kept on chip")
"""From MB2 to MB0, over a ring bus."""

FILTER_SHIFTS = Requantization(
    is_per_channel=True, bias_bits=FILTER_BIAS_BITS, most_channel_shift=MOST_FILTER_SHIFT
)
"""What filter words say."""
SCALES = replace(FILTER_SHIFTS, multiplier_bits=MULTIPLIER_BITS, has_zero_point=True)
"""What scale words and the registers of zero points say."""

LARGEST_SCRATCHPADS = 1 << 30
"""Bytes of all scratchpads of a machine together."""


class Cores(Part):
    """TLEs, the TLTs in each, and what their scalar side costs."""

    tles: Annotated[int, Field(ge=1, le=16)]
    tlts_per_tle: Annotated[int, Field(ge=1, le=32)]
    instruction_cycles: Annotated[int, Field(ge=1, le=100)]
    scalar_memory_cycles: Cycles
    semaphore_cycles: Cycles
    instruction_cache_bytes: Annotated[int, Field(ge=256, le=1 << 24)]
    instruction_line_bytes: Annotated[int, Field(ge=16, le=4096, multiple_of=4)]
    instruction_miss_cycles: Cycles

    @model_validator(mode="after")
    def _cache_holds_a_line(self) -> Cores:
        if self.instruction_cache_bytes < self.instruction_line_bytes:
            raise ValueError(
                f"instruction_cache_bytes = {self.instruction_cache_bytes} does not hold one line; "
                f"at least instruction_line_bytes = {self.instruction_line_bytes}"
            )
        return self


class Mac(Part):
    """The MAC unit of a TLT; ``efficiency`` is the reachable share of the peak rate."""

    datapath_bits: Annotated[int, Field(ge=16, le=8192, multiple_of=16)]
    efficiency: Annotated[float, Field(ge=0.001, le=1)]
    setup_cycles: Cycles
    accumulator_bits: Annotated[int, Field(ge=32, le=63)]
    requantization: Literal["tensor", "filter", "scale"] = "tensor"
    """What the requantize step shifts by: one number for a layer, or for int8 one a filter. With
    "scale" it also multiplies, for int8, and numbers have zero points."""


class Memories(Part):
    """Scratchpads of one TLT: MB0 (IN), MB1 (W), MB2 (OUT) and the bias buffer (int32)."""

    mb0_bytes: MemoryBytes
    mb1_bytes: MemoryBytes
    mb2_bytes: MemoryBytes
    bias_bytes: MemoryBytes
    ports: Annotated[int, Field(ge=1, le=2)] = 1
    """1: a transfer and the MAC unit cannot use one memory of a TLT at the same time; 2: they can,
    but not the same bytes of it."""


class Dme(Part):
    """The DMA engine of a TLE."""

    setup_cycles: Cycles
    burst_cycles: Cycles
    linear_burst_cycles: Cycles | None = None
    bytes_per_cycle: Rate
    queue_depth: Annotated[int, Field(ge=1, le=256)]
    semaphores: Annotated[int, Field(ge=11, le=16)]

    @property
    def linear_cycles(self) -> float:
        """``linear_burst_cycles``: what a burst of a 1-D transfer costs; without that key, what
        every burst costs."""
        linear = self.linear_burst_cycles
        return self.burst_cycles if linear is None else linear


class Dram(AddressSpace):
    """The memory that all TLEs share."""

    burst_bytes: Annotated[int, Field(ge=8, le=4096)]
    cas_cycles: Cycles
    bytes_per_cycle: Rate


class Ring(Part):
    """The ring buses: one in each TLE, and the Global Ringbus between the TLEs."""

    bytes_per_cycle: Rate
    hop_cycles: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class NmpMachine(MachineDescription):
    """An NMP. `load_nmp_machine` makes it; nothing asks a machine for its name to decide."""

    lowest_address: ClassVar[int] = SCRATCHPADS_END

    isa: Literal["nmp"]
    default_precision: Precision = "int16"
    cores: Cores
    mac: Mac
    memories: Memories
    dme: Dme
    dram: Dram
    ring: Ring | None = None

    @model_validator(mode="after")
    def _scratchpads_fit_a_chip(self) -> NmpMachine:
        memories = self.memories
        each = memories.mb0_bytes + memories.mb1_bytes + memories.mb2_bytes + memories.bias_bytes
        total = each * self.core_count
        if total > LARGEST_SCRATCHPADS:
            raise ValueError(
                f"memories.mb0_bytes + mb1_bytes + mb2_bytes + bias_bytes = {each} in each of "
                f"cores.tles * cores.tlts_per_tle = {self.core_count} TLTs are {total} bytes of "
                f"scratchpads; at most {LARGEST_SCRATCHPADS}"
            )
        return self

    @property
    def core_count(self) -> int:
        return self.cores.tles * self.cores.tlts_per_tle

    def requantization(self, precision: Precision) -> Requantization:
        """A shift for each filter, or a multiplier and a shift, where the MAC unit has them, for
        int8 only: weights of 16 bits lose nothing that shows."""
        steps = {"tensor": Q_POINTS_ONLY, "filter": FILTER_SHIFTS, "scale": SCALES}
        return steps[self.mac.requantization] if precision == "int8" else Q_POINTS_ONLY

    def macs_per_cycle(self, element_bytes: int) -> int:
        """Peak multiply-accumulates a cycle of one MAC unit."""
        return self.mac.datapath_bits // (8 * element_bytes)

    @property
    def dram_bytes_per_cycle(self) -> float:
        """What the DRAM or, if that is less, the DMA engines of all TLEs move."""
        return min(self.dram.bytes_per_cycle, self.cores.tles * self.dme.bytes_per_cycle)

    def units(self) -> tuple[Unit, ...]:
        """Cores, MAC units, DMA engines of the TLEs, scratchpads of the TLTs, DRAM."""
        memories = self.memories
        scratchpads = (
            ("mb0", memories.mb0_bytes),
            ("mb1", memories.mb1_bytes),
            ("mb2", memories.mb2_bytes),
            ("bias", memories.bias_bytes),
        )
        tles = [f"tle {core // self.cores.tlts_per_tle}" for core in range(self.core_count)]
        return (
            *(Unit("core", "control", core, tle) for core, tle in enumerate(tles)),
            *(Unit("mac", "mac", core, tle) for core, tle in enumerate(tles)),
            *(Unit("dma", "dma", tle, f"tle {tle}") for tle in range(self.cores.tles)),
            *(
                Unit(part, "memory", core, tle, size)
                for part, size in scratchpads
                for core, tle in enumerate(tles)
            ),
            Unit("dram", "memory", capacity_bytes=self.dram.capacity_bytes),
        )

    def links(self) -> tuple[Link, ...]:
        return (LOADED, STORED) if self.ring is None else (LOADED, STORED, RING, FORWARDED)

    def with_cores(self, tles: int, tlts_per_tle: int | None = None) -> NmpMachine:
        """This machine with other numbers of TLEs and TLTs (for tests and studies)."""
        per_tle = self.cores.tlts_per_tle if tlts_per_tle is None else tlts_per_tle
        return nmp_machine_from_dict(
            {
                **self.model_dump(),
                "name": f"{self.name}-{tles}x{per_tle}",
                "cores": {**self.cores.model_dump(), "tles": tles, "tlts_per_tle": per_tle},
            },
            origin=self.name,
        )


def load_nmp_machine(name_or_path: str | Path) -> NmpMachine:
    """`machine_file.load_machine` for what takes NMPs only; MachineError for another kind."""
    return of_description(NmpMachine, load_machine(name_or_path))


def nmp_machine_from_toml(text: str, origin: str) -> NmpMachine:
    """`machine_file.machine_from_toml` for an NMP."""
    return of_description(NmpMachine, machine_from_toml(text, origin))


def nmp_machine_from_dict(values: dict[str, object], origin: str = "machine") -> NmpMachine:
    """`machine_file.machine_from_dict` for an NMP."""
    return of_description(NmpMachine, machine_from_dict(values, origin))
