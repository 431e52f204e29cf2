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

    def pes_on(self, loop: Loop) -> int:
        return self.pes[LOOPS.index(loop)]

    @property
    def tile_memory_bytes(self) -> int:
        """Of all tiles together."""
        memories = self.memories
        if isinstance(memories, SharedMemory):
            return memories.shared_bytes
        return memories.input_bytes + memories.weight_bytes + memories.output_bytes
