"""Snowflake machines: what a machine file with ``isa = "snowflake"`` says."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import SCRATCHPADS_END, AddressSpace, Part, Precision, Rate
from tvm_npu.sim.snowflake.isa import ICACHE_BYTES, LANES, MOST_CUS, VMACS, WORD_BYTES
from tvm_npu.sim.units import Unit

BufferBytes = Annotated[int, Field(ge=1024, le=1 << 20, multiple_of=LANES * WORD_BYTES)]
QueueDepth = Annotated[int, Field(ge=1, le=64)]


class Clusters(Part):
    """How many clusters share a device's memory, CUs a cluster, and the buffers of a CU."""

    count: Literal[1, 2, 4]
    cus: Annotated[int, Field(ge=1, le=MOST_CUS)]
    mbuf_bytes: BufferBytes
    wbuf_bytes: BufferBytes
    """Of each vMAC."""


class Control(Part):
    """The control core: a register can be read without a wait ``raw_cycles`` + 1 instructions
    after the one that writes it."""

    raw_cycles: Annotated[int, Field(ge=0, le=16)]


class Vector(Part):
    """vMACs and vMAX: ``latency_cycles`` from a trace's end until results are in MBuf."""

    queue_depth: QueueDepth
    latency_cycles: Annotated[int, Field(ge=1, le=256)]
    table_words_per_cycle: Annotated[int, Field(ge=1, le=LANES)]


class TransferUnit(Part):
    """The load or the store unit of a cluster: ``latency_cycles`` from the end of a transfer's
    turn at the memory until its words are there."""

    queue_depth: QueueDepth
    latency_cycles: Annotated[int, Field(ge=0, le=4096)]


class SnowflakeMemory(AddressSpace):
    """The memory of a device."""

    bandwidth_gb_per_s: Rate


class SnowflakeMachine(MachineDescription):
    """One Snowflake machine: ``devices`` equal ones, each with its own memory."""

    lowest_address: ClassVar[int] = SCRATCHPADS_END

    isa: Literal["snowflake"]
    default_precision: Literal["int16"] = "int16"
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    clusters: Clusters
    control: Control
    vector: Vector
    load: TransferUnit
    store: TransferUnit
    dram: SnowflakeMemory

    @property
    def core_count(self) -> int:
        """Clusters of a device, each with its control core."""
        return self.clusters.count

    @property
    def device_count(self) -> int:
        return self.devices

    def units(self) -> tuple[Unit, ...]:
        """Of each cluster its control core, the traces of its vMACs and of its vMAXs (the CUs work
        alike), the port of vmov, load and store unit; the memory's turns; a MBuf a CU, a WBuf a
        vMAC, an instruction buffer a cluster; the memory's content."""
        clusters = range(self.clusters.count)
        cus = range(self.clusters.count * self.clusters.cus)
        vmacs = range(len(cus) * VMACS)
        sizes = self.clusters

        def group(number: int, each: int) -> str:
            return f"cluster {number // each}"

        return (
            *(Unit("core", "control", number, group(number, 1)) for number in clusters),
            *(Unit("mac", "mac", number, group(number, 1)) for number in clusters),
            *(Unit("max", "mac", number, group(number, 1)) for number in clusters),
            *(Unit("vmov", "dma", number, group(number, 1)) for number in clusters),
            *(Unit("load", "dma", number, group(number, 1)) for number in clusters),
            *(Unit("store", "dma", number, group(number, 1)) for number in clusters),
            Unit("memory", "dma"),
            *(
                Unit("mbuf", "memory", number, group(number, sizes.cus), sizes.mbuf_bytes)
                for number in cus
            ),
            *(
                Unit("wbuf", "memory", number, group(number, sizes.cus * VMACS), sizes.wbuf_bytes)
                for number in vmacs
            ),
            *(
                Unit("icache", "memory", number, group(number, 1), ICACHE_BYTES)
                for number in clusters
            ),
            Unit("dram", "memory", capacity_bytes=self.dram.capacity_bytes),
        )

    @property
    def mbuf_words(self) -> int:
        return self.clusters.mbuf_bytes // WORD_BYTES

    @property
    def wbuf_words(self) -> int:
        return self.clusters.wbuf_bytes // WORD_BYTES

    @property
    def dram_bytes_per_cycle(self) -> float:
        return self.memory_bytes_per_cycle

    @property
    def memory_bytes_per_cycle(self) -> float:
        return 1000.0 * self.dram.bandwidth_gb_per_s / self.frequency_mhz

    def macs_per_cycle(self, element_bytes: int) -> float:
        """Peak multiply-accumulates a cycle of one cluster."""
        return self.clusters.cus * VMACS * LANES

    def stored_element_bytes(self, precision: Precision) -> Literal[1, 2, 4]:
        """Words are 16 bits, whatever they hold."""
        return 2
