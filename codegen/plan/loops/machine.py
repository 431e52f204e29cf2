"""A machine as planners of loops see it: one engine, memories on chip, one way in and out.

A kind's backend derives a `LoopMachine` from its description, of the whole machine or of one core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.plan.loops.plan import LOOPS, Loop


@dataclass(frozen=True)
class SplitMemories:
    """A memory each for input, weight and output tiles."""

    input_bytes: int
    weight_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class SharedMemory:
    """One memory for all tiles."""

    shared_bytes: int


@dataclass(frozen=True)
class TransferCost:
    """Equation 1 of the double-buffer paper, in cycles: ``start`` (C) a transfer, ``segment`` (p) a
    contiguous run outside of the chip, ``byte`` (t / element size) a byte."""

    start: float
    segment: float
    byte: float


@dataclass(frozen=True)
class EngineCost:
    """Cycles of the compute engine: ``iteration`` a pass over all loops with as many PEs on each
    as the machine has, ``setup`` a step, ``output`` an element that is finished; of a core also
    ``total`` a sum in each step that adds to it, ``finish`` a tile that is finished, ``byte`` a
    byte of a tile that comes into the cache for a step."""

    iteration: float
    setup: float
    output: float
    total: float = 0.0
    finish: float = 0.0
    byte: float = 0.0


@dataclass(frozen=True)
class LoopMachine:
    """``pes`` are the PEs that each of `plan.LOOPS` (M, N, R, C) is spread over. Elements and sums
    are as wide as the question (`ConvProblem`) says. Without ``sums_leave``, partial sums cannot
    leave the chip: a planner does not have to know it, but one that does gives better plans.
    ``outside_bytes_per_cycle`` is the rate of the memory outside of the chip, which all cores of
    the machine share."""

    name: str
    memories: SplitMemories | SharedMemory
    bias_bytes: int
    pes: tuple[int, int, int, int]
    macs_per_cycle: float
    engine: EngineCost
    transfer: TransferCost
    outside_bytes_per_cycle: float
    sums_leave: bool = True
    most_buffers: Literal[1, 2] = 2
    """Places that each kind of tile can have at a time."""
    groups_together: bool = True
    """Several groups can be in a tile (`LoopPlan.tile_groups`)."""
    gathers: bool = False
    """A transfer can take single elements at equal distances (`LoopPlan.touched_only`)."""
    moves_rows: bool = False
    """Rows of an IN tile can move to the next one on chip (`LoopPlan.keeps_rows`)."""
    keeps_tiles: bool = False
    """IN or W tiles of all channels can lie beside each other (`LoopPlan.resident`)."""
    taps_at_once: int = 1
    """Most kernel taps that PEs over channels take beside each other (`LoopPlan.taps_at_once`)."""
    interlocked: bool = False
    """A mover and an engine take transfers and work in the order of the steps, and wait for each
    other only where both touch a tile: its clocks are those of `walk`."""
    waits_between: bool = False
    """What computes also starts transfers, and waits for one before it starts the next of the same
    tile: of an IN tile that comes in several, only the last runs beside products."""

    def pes_on(self, loop: Loop) -> int:
        return self.pes[LOOPS.index(loop)]

    def most_taps(self, channels: int, taps: int) -> int:
        """Of a kernel of ``taps``, those that can be multiplied at once."""
        return most_taps(self.taps_at_once, self.pes_on("N"), channels, taps)

    def best_taps(self, channels: int, taps: int) -> int:
        """The fewest at once with which the kernel takes no more passes than with `most_taps`."""
        return -(-taps // -(-taps // self.most_taps(channels, taps)))

    @property
    def tile_memory_bytes(self) -> int:
        """Of all tiles together."""
        memories = self.memories
        if isinstance(memories, SharedMemory):
            return memories.shared_bytes
        return memories.input_bytes + memories.weight_bytes + memories.output_bytes


def most_taps(taps_at_once: int, pes: int, channels: int, taps: int) -> int:
    """Taps of a kernel of ``taps`` that ``pes`` over channels take at once, for ``channels`` in a
    tile, each tap on PEs for all of them; at most ``taps_at_once``."""
    return max(1, min(taps_at_once, pes // channels, taps))
