"""The readable level of tile code: transfers of tiles and work on tiles, one after another.

A command says which bytes it touches, so that what emits it can order it: a machine with a mover
finds conflicts by itself, one with a DMA controller has to be told where to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TILE_ISA, TileMemory, TileRegister


@dataclass(frozen=True)
class Runs:
    """Bytes outside of the chip: ``outer`` rows of ``inner`` contiguous runs. Strides of a count of
    1 are 0."""

    segment: TileMemory
    address: int
    run_bytes: int
    inner: int = 1
    stride_inner: int = 0
    outer: int = 1
    stride_outer: int = 0

    @property
    def size_bytes(self) -> int:
        return self.run_bytes * self.inner * self.outer

    @property
    def count(self) -> int:
        """Contiguous runs."""
        return self.inner * self.outer


@dataclass(frozen=True)
class ChipRange:
    """Bytes on chip. On a machine with a shared memory INPUT, WEIGHT and OUTPUT are the same
    memory."""

    memory: TileMemory
    begin: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.begin + self.size_bytes


@dataclass(frozen=True)
class Transfer:
    """Moves ``runs`` to (``to_chip``) or from consecutive bytes of ``memory`` from
    ``chip_offset``."""

    to_chip: bool
    memory: TileMemory
    chip_offset: int
    runs: Runs
    stream: Stream

    @property
    def on_chip(self) -> ChipRange:
        return ChipRange(self.memory, self.chip_offset, self.runs.size_bytes)

    def __str__(self) -> str:
        runs = self.runs
        word = "load" if self.to_chip else "store"
        text = (
            f"{word} {self.stream.name.lower()} {self.memory.name.lower()}+{self.chip_offset} "
            f"{runs.segment.name.lower()}+{runs.address} {runs.run_bytes}"
        )
        for count, stride in ((runs.inner, runs.stride_inner), (runs.outer, runs.stride_outer)):
            text += f" x {count} by {stride}" if count > 1 else ""
        return text


@dataclass(frozen=True)
class Work:
    """One instruction of the compute engine with the registers that it reads, the bytes on chip
    that it reads (apart from those that it also writes) and those that it writes. ``operations``
    are what its time counts: result elements, for a pool times the window; MACs are counted by
    the registers of a tconv."""

    mnemonic: str
    sub: int | None
    registers: Mapping[TileRegister, int]
    reads: tuple[ChipRange, ...]
    writes: ChipRange
    operations: int = 0

    def __str__(self) -> str:
        name = self.mnemonic
        if self.sub is not None:
            names = TILE_ISA.by_mnemonic[name].field("sub").names
            assert names is not None
            name += f" {names(self.sub).name.lower()}"  # type: ignore[call-arg]
        shown = " ".join(f"{key.name.lower()}={value}" for key, value in self.registers.items())
        return f"{name} {shown}"


Command = Transfer | Work

OPERANDS = TileMemory.INPUT | TileMemory.WEIGHT << 3 | TileMemory.OUTPUT << 6
"""First operand, second operand and result where they always are in this code generator."""


def listing(commands: Iterable[Command], indent: str = "") -> str:
    """One line a command."""
    return "".join(f"{indent}{command}\n" for command in commands)
