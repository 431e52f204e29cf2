"""Tile machines: one compute engine that works on whole tiles, beside a memory outside of the chip.

The generic accelerator of e-PlaNNer (an array of PEs with memories for input, weights and output)
and the core with an on-chip memory and a DMA controller of the double-buffer paper are both such
machines; which parts a machine has decides what it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import (
    SCRATCHPADS_END,
    Cycles,
    MemoryBytes,
    Part,
    Precision,
    Rate,
)
from tvm_npu.sim.parts.pl330.timing import DmacTiming
from tvm_npu.sim.units import Unit

ArrayAxis = Literal["IC", "OC", "OH", "OW"]
"""Loops of a convolution that can be spread over PEs: channels, filters, rows, columns."""

StoredBytes = Annotated[int, Field(ge=1, le=4)]
AccumulatorBytes = Annotated[int, Field(ge=4, le=8, multiple_of=4)]
PES = Annotated[int, Field(ge=1, le=1 << 16)]


class Words(Part):
    """How wide values are stored, outside of the chip and on it. An element may take more bytes
    than its precision needs (4: as much as a float32). A sum that does not fit its accumulator
    traps; partial sums leave the chip at that width."""

    int8_bytes: Literal[1, 2, 4] = 1
    int16_bytes: Literal[2, 4] = 2
    int8_accumulator_bytes: Literal[4, 8] = 4
    int16_accumulator_bytes: Literal[4, 8] = 8


class SplitMemories(Part):
    """A memory each for input, weight and output tiles."""

    input_bytes: MemoryBytes
    weight_bytes: MemoryBytes
    output_bytes: MemoryBytes
    bias_bytes: MemoryBytes


class SharedMemory(Part):
    """One memory for all tiles."""

    shared_bytes: MemoryBytes
    bias_bytes: MemoryBytes


SPLIT, SHARED = "(split)", "(shared)"


def _memory_kind(values: object) -> str:
    """Which kind a table means, so that complaints are about that one alone."""
    given = isinstance(values, SharedMemory) or (
        isinstance(values, Mapping) and "shared_bytes" in values
    )
    return SHARED if given else SPLIT


TileMemories = Annotated[
    Annotated[SplitMemories, Tag(SPLIT)] | Annotated[SharedMemory, Tag(SHARED)],
    Discriminator(_memory_kind),
]


class PeArray(Part):
    """A two-dimensional array of PEs, a MAC each a cycle: ``width`` of them in a row, spread over
    the loop ``column_mapping``, ``height`` rows, spread over ``row_mapping`` (e-PlaNNer, 6.1).
    ``taps_at_once``: PEs over channels that a tile leaves idle can take other taps of the same
    kernels, up to so many taps at a time; each PE then reads an input value of its own. The thesis
    knows no such array (Equation 6.9)."""

    width: PES
    height: PES
    column_mapping: ArrayAxis
    row_mapping: ArrayAxis
    setup_cycles: Cycles
    taps_at_once: PES = 1

    def pes_over(self, axis: ArrayAxis) -> int:
        """Over how many PEs a loop is spread."""
        over_columns = self.width if self.column_mapping == axis else 1
        return self.height if self.row_mapping == axis else over_columns

    @model_validator(mode="after")
    def _two_loops(self) -> PeArray:
        if self.column_mapping == self.row_mapping:
            raise ValueError(
                f"column_mapping = row_mapping = {self.row_mapping!r}; they take different loops"
            )
        return self

    @model_validator(mode="after")
    def _taps_beside_channels(self) -> PeArray:
        most = self.pes_over("IC")
        if self.taps_at_once > most:
            raise ValueError(
                f"taps_at_once = {self.taps_at_once}; at most {most}, as many PEs as the loop IC "
                "is spread over"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_one_tap(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        if values.get("taps_at_once") == 1:
            del values["taps_at_once"]  # as files have it that are older than the key
        return values


class Core(Part):
    """A scalar core that convolves by itself. With a cache every line that a command touches is
    fetched once from where it lies, unless it is found in the cache; without one every access goes
    there."""

    mac_cycles: Cycles
    operation_cycles: Cycles
    setup_cycles: Cycles
    chip_access_cycles: Cycles
    dram_access_cycles: Cycles
    cache_bytes: Annotated[int, Field(ge=0, le=1 << 24)]
    line_bytes: Annotated[int, Field(ge=4, le=4096)]
    hit_cycles: Cycles
    chip_miss_cycles: Cycles
    dram_miss_cycles: Cycles


class Mover(Part):
    """A transfer engine that runs beside the compute engine and keeps to the program's order where
    tiles meet: a transfer takes setup + segments * segment_cycles + bytes / bytes_per_cycle."""

    setup_cycles: Cycles
    segment_cycles: Cycles
    bytes_per_cycle: Rate


ALTERNATIVES = (("array", "core"), ("mover", "dmac"))
"""Tables of which a machine has one."""


def without_alternatives(base: dict[str, object], values: Mapping[str, object]) -> None:
    """Takes out of ``base`` what ``values``, which extend it, replace by its alternative."""
    for pair in ALTERNATIVES:
        for one, other in (pair, pair[::-1]):
            if one in values:
                base.pop(other, None)
    mine, theirs = values.get("memories"), base.get("memories")
    if isinstance(mine, Mapping) and isinstance(theirs, dict):
        split = {f"{name}_bytes" for name in ("input", "weight", "output")}
        for own, replaced in ((split, {"shared_bytes"}), ({"shared_bytes"}, split)):
            if own & mine.keys():
                base["memories"] = {k: v for k, v in theirs.items() if k not in replaced}


class TileMachine(MachineDescription):
    """One tile machine. It has an ``array`` or a ``core``, a ``mover`` or a ``dmac``."""

    lowest_address: ClassVar[int] = SCRATCHPADS_END

    isa: Literal["tiles"]
    default_precision: Precision = "int8"
    words: Words
    memories: TileMemories
    array: PeArray | None = None
    core: Core | None = None
    mover: Mover | None = None
    dmac: DmacTiming | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> TileMachine:
        for one, other in ALTERNATIVES:
            given = [f"[{name}]" for name in (one, other) if getattr(self, name) is not None]
            if len(given) != 1:
                found = "both" if given else "neither"
                raise ValueError(f"{found} of [{one}] and [{other}] given; a machine has one")
        if self.dmac is not None and self.core is None:
            raise ValueError("[dmac] without [core]; it takes one to start its programs")
        if self.dmac is not None and not isinstance(self.memories, SharedMemory):
            raise ValueError("[dmac] without memories.shared_bytes; it serves one memory on chip")
        return self

    def element_bytes(self, precision: Precision) -> Literal[1, 2, 4]:
        """Bytes of a stored element."""
        return self.words.int8_bytes if precision == "int8" else self.words.int16_bytes

    def stored_element_bytes(self, precision: Precision) -> Literal[1, 2, 4]:
        return self.element_bytes(precision)

    def accumulator_bytes(self, precision: Precision) -> int:
        """Bytes of a partial sum, on chip and off."""
        words = self.words
        return (
            words.int8_accumulator_bytes if precision == "int8" else words.int16_accumulator_bytes
        )

    @property
    def dram_bytes_per_cycle(self) -> float | None:
        """The mover's rate, or the one of DDR that a DMA controller sees; None for a core that
        moves data itself."""
        if self.mover is not None:
            return self.mover.bytes_per_cycle
        return None if self.dmac is None else self.dmac.ddr_bytes_per_cycle

    def units(self) -> tuple[Unit, ...]:
        """What issues words, the array or core that computes, the mover or the channels of the DMA
        controller, memories on chip, DRAM."""
        memories = self.memories
        if isinstance(memories, SharedMemory):
            chip = {"shared": memories.shared_bytes}
        else:
            chip = {
                "input": memories.input_bytes,
                "weight": memories.weight_bytes,
                "output": memories.output_bytes,
            }
        moves = (
            [Unit("mover", "dma")]
            if self.dmac is None
            else [Unit("channel", "dma", channel) for channel in range(self.dmac.channels)]
        )
        sizes = {**chip, "bias": memories.bias_bytes, "dram": self.dram.capacity_bytes}
        return (
            Unit("control", "control"),
            Unit("array" if self.core is None else "core", "mac"),
            *moves,
            *(Unit(part, "memory", capacity_bytes=size) for part, size in sizes.items()),
        )

    def macs_per_cycle(self, element_bytes: int) -> float:
        """Peak multiply-accumulates a cycle; those of a core that finds all in registers."""
        if self.array is not None:
            return self.array.width * self.array.height
        assert self.core is not None
        return 1.0 / self.core.mac_cycles if self.core.mac_cycles else float("inf")
