"""Sizes of tiles that memories hold: what layers without MACs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.plan.loops.room import aligned, part_bytes
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""(begin, count) of channels, rows and columns."""


@dataclass(frozen=True)
class Sizes:
    """Bytes for IN, second operand and OUT of one place when a memory is cut into ``buffers``
    parts. With a shared memory all three lie in one part, IN first, OUT last."""

    first: int
    second: int
    result: int
    shared: bool

    def fits(self, first: int, second: int, result: int) -> bool:
        if self.shared:
            return aligned(first) + aligned(second) + aligned(result) <= self.first
        return first <= self.first and second <= self.second and result <= self.result

    def offsets(self, turn: int, first: int, second: int) -> tuple[int, int, int]:
        """Of IN, second operand and OUT in place number ``turn``, for the largest tiles' bytes."""
        if self.shared:
            base = turn * self.first
            return base, base + aligned(first), base + aligned(first) + aligned(second)
        return turn * self.first, turn * self.second, turn * self.result


def sizes(machine: TileMachine, buffers: int) -> Sizes:
    """Room of one of ``buffers`` equal parts of every memory."""
    memories = machine.memories
    if isinstance(memories, SharedMemory):
        part = part_bytes(memories.shared_bytes, buffers)
        return Sizes(part, part, part, True)
    first, second, result = (
        part_bytes(size, buffers)
        for size in (memories.input_bytes, memories.weight_bytes, memories.output_bytes)
    )
    return Sizes(first, second, result, False)


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 1..most for which ``fits(n)`` holds, 0 if it does not for 1; what fits
    for n fits for less."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def even(total: int, most: int) -> int:
    """The smallest part size with which ``total`` still needs no more parts than with ``most``."""
    return -(-total // -(-total // most))
