"""Transposed convolutions as convolutions of the input, one a phase.

Results whose rows (and columns) are the same modulo the stride make a phase: it is a convolution of
the input, at stride 1, with every stride-th row and column of the kernel. All phases look at the
same window of the input, of which each takes a part: so a tile of maps serves them all, and phases
can be computed side by side, as filters of one convolution with zeros where a phase takes no part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tvm_npu.codegen.plan.problem import share
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Geometry,
    SnowflakePlan,
    geometry,
)
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

SideBySide = Literal["none", "columns", "all"]


@dataclass(frozen=True)
class PhasesPlan(SnowflakePlan):
    """``side_by_side``: phases of a row of results ("columns"), or all of them, are filters of one
    convolution, ``tile_m`` of which are a tile."""

    side_by_side: SideBySide = "none"


@dataclass(frozen=True)
class PhaseAxis(Axis):
    """The rows (or columns) of a phase: of the common window's taps it takes ``taken`` (first,
    count). Tap t is row ``kernel_first`` - t * ``kernel_step`` of the layer's kernel, or none: taps
    of zeros give every result one. Result j is row ``begin`` + j * ``kernel_step`` of the
    layer's."""

    taken: tuple[int, int] = (0, 0)
    kernel_first: int = 0
    kernel_step: int = 1
    begin: int = 0

    def taps(self, at: int) -> tuple[int, int]:
        low, count = super().taps(at)
        begin, end = max(low, self.taken[0]), min(low + count, sum(self.taken))
        return begin, max(0, end - begin)

    @property
    def alone(self) -> Axis:
        """With a window of what it takes."""
        first, count = self.taken
        return Axis(self.size, self.out, count, before=self.before - first)

    @property
    def common(self) -> Axis:
        """With the window of all phases."""
        return Axis(self.size, self.out, self.kernel, before=self.before)


def phase_axes(
    size: int, out: int, kernel: int, stride: int, before: int
) -> tuple[PhaseAxis, ...]:
    """The phases of ``out`` results along one axis; ``before`` of them are taken away in front."""
    found: list[tuple[int, int, int, int, int]] = []
    # (first result, how many, first input of result 0, last one, the row of the kernel for it)
    for begin in range(min(stride, out)):
        count = -(-(out - begin) // stride)
        last, first_row = divmod(begin + before, stride)
        rows = max(0, -(-(kernel - first_row) // stride))
        low = min(last - rows + 1, size - count)
        found.append((begin, count, low, max(last, 0, low), last * stride + first_row))
    lowest, highest = min(one[2] for one in found), max(one[3] for one in found)
    return tuple(
        PhaseAxis(
            size, count, highest - lowest + 1, before=-lowest,
            taken=(low - lowest, high - low + 1), kernel_first=row - lowest * stride,
            kernel_step=stride, begin=begin,
        )
        for begin, count, low, high, row in found
    )  # fmt: skip


def _joined(axes: tuple[PhaseAxis, ...]) -> PhaseAxis:
    """Takes all that one of ``axes`` takes."""
    first = min(axis.taken[0] for axis in axes)
    end = max(sum(axis.taken) for axis in axes)
    return replace(axes[0], taken=(first, end - first))


@dataclass(frozen=True)
class Phase:
    """Results of ``rows`` x ``columns``."""

    rows: PhaseAxis
    columns: PhaseAxis


@dataclass(frozen=True)
class Together:
    """``phases`` that one convolution computes: its filters are those of the first, then those of
    the second, and so on."""

    shape: ConvShape
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class TransposedShape:
    """One group's phases, every one of ``rows`` with every one of ``columns``; in mode lane, which
    takes all groups of a depthwise layer at once, those of all."""

    rows: tuple[PhaseAxis, ...]
    columns: tuple[PhaseAxis, ...]
    planes: int
    filters: int
    groups: int
    is_depthwise: bool

    @property
    def shares_maps(self) -> bool:
        """Tiles of maps are the same for all phases."""
        return len({one.out for one in self.rows}) == len({one.out for one in self.columns}) == 1

    @property
    def ways(self) -> tuple[SideBySide, ...]:
        """In which phases can be computed. Planes of mode lane have a lane each."""
        if self.is_depthwise or len({one.out for one in self.columns}) > 1:
            return ("none",)
        found: list[SideBySide] = ["none"]
        if len(self.columns) > 1:
            found.append("columns")
        if len(self.rows) > 1 and self.shares_maps:
            found.append("all")
        return tuple(found)

    def convolutions(self, side_by_side: SideBySide) -> tuple[Together, ...]:
        if side_by_side == "none":
            return tuple(
                self._together((row,), (column,)) for row in self.rows for column in self.columns
            )
        if side_by_side == "columns":
            return tuple(self._together((row,), self.columns) for row in self.rows)
        return (self._together(self.rows, self.columns),)

    def _together(
        self, rows: tuple[PhaseAxis, ...], columns: tuple[PhaseAxis, ...]
    ) -> Together:
        phases = tuple(Phase(row, column) for row in rows for column in columns)
        shape = ConvShape(
            _joined(rows), _joined(columns), self.planes, self.filters * len(phases), 1,
            has_residual=False, is_depthwise=self.is_depthwise,
        )  # fmt: skip
        return Together(shape, phases)

    def geometries(
        self, plan: PhasesPlan, machine: SnowflakeMachine, clusters: int = 1, cluster: int = 0
    ) -> tuple[Geometry, ...]:
        """Of each convolution, for the rows that cluster number ``cluster`` of ``clusters`` has."""
        return tuple(
            geometry(
                one.shape, replace(plan, tile_c=min(plan.tile_c, one.shape.columns.out)), machine,
                share(one.shape.rows.out, clusters, cluster),
            )
            for one in self.convolutions(plan.side_by_side)
        )  # fmt: skip


def transposed_shape(
    size: tuple[int, int, int], out: tuple[int, int, int], kernel: tuple[int, int],
    stride: tuple[int, int], before: tuple[int, int], groups: int,
) -> TransposedShape:  # fmt: skip
    """Of an input (planes, rows, columns) and output; ``before`` are rows and columns that are
    taken away in front."""
    depthwise = groups > 1 and groups == size[0] == out[0]
    planes, filters = (size[0], out[0]) if depthwise else (size[0] // groups, out[0] // groups)
    rows, columns = (
        phase_axes(size[1 + axis], out[1 + axis], kernel[axis], stride[axis], before[axis])
        for axis in range(2)
    )
    return TransposedShape(rows, columns, planes, filters, 1 if depthwise else groups, depthwise)
