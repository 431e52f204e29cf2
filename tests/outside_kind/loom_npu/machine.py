"""The description of a Loom: what its machine file says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Cycles, MemoryBytes, Part, Precision, Rate
from tvm_npu.sim.units import Unit


class Scratchpads(Part):
    input_bytes: MemoryBytes
    weight_bytes: MemoryBytes
    output_bytes: MemoryBytes
    bias_bytes: MemoryBytes


class Engine(Part):
    lanes: Annotated[int, Field(ge=1, le=1024)]
    setup_cycles: Cycles


class Mover(Part):
    setup_cycles: Cycles
    run_cycles: Cycles
    bytes_per_cycle: Rate


class LoomMachine(MachineDescription):
    isa: Literal["loom"]
    default_precision: Precision = "int16"
    scratchpads: Scratchpads
    engine: Engine
    mover: Mover

    def units(self) -> tuple[Unit, ...]:
        sizes = {**self.scratchpads.model_dump(), "dram_bytes": self.dram.capacity_bytes}
        memories = (Unit(name[:-6], "memory", capacity_bytes=n) for name, n in sizes.items())
        units = Unit("control", "control"), Unit("lanes", "mac"), Unit("mover", "dma")
        return (*units, *memories)

    def macs_per_cycle(self, element_bytes: int) -> float:
        return self.engine.lanes
