"""Tilings as arrays: every combination of candidate tile sizes that fits a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.axes import InAxis, in_axis
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LOOPS, Loop, LoopPlan, extent
from tvm_npu.codegen.plan.loops.room import aligned, memory_needs, part_bytes
from tvm_npu.codegen.plan.problem import ConvProblem, tile_sizes
from tvm_npu.sim.machine_parts import BIAS_BYTES

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Tilings:
    """Tile sizes, element by element one tiling; and IFM rows and columns inside of all tiles of a
    loop together (`InAxis.inside`)."""

    m: Integers
    n: Integers
    r: Integers
    c: Integers
    rows_inside: Integers
    columns_inside: Integers

    def __len__(self) -> int:
        return len(self.m)

    def sizes(self, loop: Loop) -> Integers:
        return {"M": self.m, "N": self.n, "R": self.r, "C": self.c}[loop]

    def trips(self, problem: ConvProblem, loop: Loop) -> Integers:
        return -(-extent(problem, loop) // self.sizes(loop))

    def where(self, chosen: NDArray[Any]) -> Tilings:
        """Those that a mask or indices choose."""
        return Tilings(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def plan(self, index: int, order: tuple[Loop, ...], buffers: Literal[1, 2] = 1) -> LoopPlan:
        m, n, r, c = (int(self.sizes(loop)[index]) for loop in LOOPS)
        return LoopPlan(m, n, r, c, order, buffers=buffers)


def limited(problem: ConvProblem, loop: Loop, limits: TileLimits) -> int:
    """The largest tile that is allowed along a loop."""
    most = {
        "M": limits.max_tile_m, "N": limits.max_tile_n,
        "R": limits.max_tile_r, "C": limits.max_tile_c,
    }[loop]  # fmt: skip
    total = extent(problem, loop)
    return total if most is None else min(total, most)


def candidate_sizes(
    problem: ConvProblem, loop: Loop, pes: int = 1, limits: TileLimits = NO_LIMITS
) -> list[int]:
    """For every number of tiles along a loop the smallest size that gives it, and that size rounded
    up to the PEs on the loop where it still gives it; ascending. Any other size gives as many tiles
    of more bytes, and no fewer iterations."""
    total, most = extent(problem, loop), limited(problem, loop, limits)
    sizes = set()
    for size in tile_sizes(total):
        rounded = min(-(-size // pes) * pes, total)
        for one in (size, rounded):
            if one <= most:
                sizes.add(one)
    return sorted(sizes | {most})


def tilings(
    problem: ConvProblem,
    machine: LoopMachine,
    sizes: Mapping[Loop, Sequence[int]],
    buffers: int = 1,
) -> Tilings:
    """All combinations of ``sizes`` that fit (as `room.check_loop_plan` says), the later loops of
    M, N, R, C varying fastest."""
    m, n, r, c = (
        axis.reshape(-1)
        for axis in np.meshgrid(
            *(np.asarray(sizes[loop], np.int64) for loop in LOOPS), indexing="ij"
        )
    )
    rows, columns = (
        [in_axis(problem, loop, int(tile)) for tile in sizes[loop]] for loop in ("R", "C")
    )
    shape = [len(sizes[loop]) for loop in LOOPS]
    at_row = np.broadcast_to(np.arange(shape[2])[:, None], shape).reshape(-1)
    at_column = np.broadcast_to(np.arange(shape[3]), shape).reshape(-1)
    largest = _of(rows, "largest")[at_row] * _of(columns, "largest")[at_column]
    found = Tilings(m, n, r, c, _of(rows, "inside")[at_row], _of(columns, "inside")[at_column])
    return found.where(_fit(problem, machine, found, largest, buffers))


def _of(axes: list[InAxis], name: str) -> Integers:
    return np.array([getattr(axis, name) for axis in axes], np.int64)


def _fit(
    problem: ConvProblem, machine: LoopMachine, tiles: Tilings, largest: Integers, buffers: int
) -> NDArray[np.bool_]:
    size = problem.element_bytes
    taps = problem.kernel[0] * problem.kernel[1]
    outputs = tiles.m * tiles.r * tiles.c
    inputs = aligned(tiles.n * largest * size)
    if problem.has_residual:
        inputs = inputs + aligned(outputs * size)
    weights = aligned(tiles.m * tiles.n * taps * size)
    sums = aligned(outputs * problem.accumulator_bytes)
    fits: NDArray[np.bool_] = tiles.m * BIAS_BYTES <= machine.bias_bytes
    for _, needed, most in memory_needs(machine.memories, inputs, weights, sums):
        fits &= needed <= part_bytes(most, buffers)
    return fits
