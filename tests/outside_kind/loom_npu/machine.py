"""The description of a Loom: what its machine file says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Cycles, MemoryBytes, Part, Precision, Rate
from tvm_npu.sim.units import Unit


class Scratchpads(Part):
    input_bytes: MemoryBytes
    weight_bytes: MemoryBytes
    output_bytes: MemoryBytes
    bias_bytes: MemoryBytes


class Engine(Part):
    """``lanes`` filters, or elements of a pool or a sum, are computed side by side."""

    lanes: Annotated[int, Field(ge=1, le=1024)]
    setup_cycles: Cycles


class Mover(Part):
    """A transfer takes setup_cycles + runs * run_cycles + bytes / bytes_per_cycle."""

    setup_cycles: Cycles
    run_cycles: Cycles
    bytes_per_cycle: Rate


class LoomMachine(MachineDescription):
    isa: Literal["loom"]
    default_precision: Precision = "int16"
    scratchpads: Scratchpads
    engine: Engine
    mover: Mover

    @property
    def core_count(self) -> int:
        return 1

    def units(self) -> tuple[Unit, ...]:
        sizes = {**self.scratchpads.model_dump(), "dram_bytes": self.dram.capacity_bytes}
        return (
            Unit("control", "control"), Unit("lanes", "mac"), Unit("mover", "dma"),
            *(Unit(name[:-6], "memory", capacity_bytes=size) for name, size in sizes.items()),
        )  # fmt: skip

    def macs_per_cycle(self, element_bytes: int) -> float:
        return self.engine.lanes

    def stored_element_bytes(self, precision: Precision) -> Literal[1, 2]:
        return ELEMENT_BYTES[precision]
