"""The tiles of a convolution under a plan: who works on what, how large tiles are, and how they lie
in their tensors."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.shares import Shares, core_shares
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.twin import all_guard_elements
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class MostExtents:
    """The most rows, columns and filters that one core works on."""

    rows: int
    columns: int
    filters: int


@dataclass(frozen=True)
class ConvTiles:
    """Tiles of one layer. ``shares`` says what each core works on, ``most`` the most of any core.

    Filters and channels are those of one group.
    """

    problem: ConvProblem
    plan: ConvPlan
    shares: Shares
    most: MostExtents

    @property
    def size(self) -> int:
        """Bytes of an element of operands."""
        return self.problem.element_bytes

    @property
    def out_size(self) -> int:
        """Bytes of an element of what is stored."""
        return self.problem.out_bytes or self.problem.element_bytes

    @property
    def filters(self) -> int:
        return self.problem.filters // self.problem.groups

    @property
    def channels(self) -> int:
        return self.problem.channels // self.problem.groups

    @property
    def taps(self) -> int:
        """Weights of a filter for one channel."""
        return self.problem.taps

    @property
    def filter_bytes(self) -> int:
        return self.channels * self.taps * self.size

    @property
    def is_grouped(self) -> bool:
        return self.plan.mode == "grouped"

    @cached_property
    def flat_in(self) -> bool:
        """The IFM has one element a channel: a tile is one run."""
        problem = self.problem
        is_point = problem.in_rows * problem.in_columns == 1 and problem.kernel == (1, 1)
        return is_point and problem.padding == (0, 0, 0, 0)

    @property
    def flat_out(self) -> bool:
        return self.problem.out_rows * self.problem.out_columns == 1

    @cached_property
    def linear_out(self) -> bool:
        """OUT tiles are whole rows that move as 1-D transfers."""
        plan = self.plan
        has_one_column = plan.column_slices * plan.tlt_columns == 1
        return plan.linear_maps and plan.tile_c >= self.problem.out_columns and has_one_column

    @cached_property
    def linear_in(self) -> bool:
        """IN tiles are whole rows that move as 1-D transfers."""
        problem = self.problem
        reach = problem.columns
        if problem.window is not None:  # windows need not reach the last column
            reach = problem.middle_tile(1, problem.out_columns)[1] - problem.window.padding[1]
        return (
            self.linear_out
            and problem.in_tile_columns(min(reach, problem.columns)) == problem.in_columns
            and problem.padding == (0, 0, 0, 0)
        )

    @property
    def by_channels(self) -> bool:
        """IN tiles are no whole rows, and move as 1-D transfers nevertheless."""
        return self.plan.in_by_channels and not self.flat_in and not self.linear_in

    @cached_property
    def largest(self) -> tuple[int, int, int, int]:
        """The largest tile that occurs: filters, channels, rows, columns."""
        plan, most = self.plan, self.most
        return (
            most.filters if plan.schedule == "IS" else min(plan.tile_m, most.filters),
            min(plan.tile_n, self.channels),
            min(plan.tile_r, most.rows),
            min(plan.tile_c, most.columns),
        )

    @cached_property
    def largest_middle(self) -> tuple[int, int]:
        """Rows and columns of the convolution's OFM under the largest OUT tile."""
        rows, columns = self.problem.middle_tile(*self.largest[2:])
        return min(rows, self.problem.rows), min(columns, self.problem.columns)

    @property
    def box_bytes(self) -> int:
        """Of what the window reads under the largest tile."""
        filters, _, rows, columns = self.largest
        box = self.problem.middle_tile(rows, columns)
        return filters * self.problem.planes * box[0] * box[1] * self.size

    @property
    def guard_bytes(self) -> int:
        """Between two IN tiles (`plan.kept_rows`, `plan.twin`)."""
        elements = all_guard_elements(self.problem, self.plan.keeps_rows, *self.largest_middle)
        return elements * self.size

    def tile_bytes(self) -> tuple[int, int, int]:
        """Bytes of the largest IN and W tiles, and of the largest tile of the convolution's OFM."""
        filters, channels, _, _ = self.largest
        rows, columns = self.largest_middle
        groups = -(-filters // self.filters) if self.is_grouped else 1
        problem = self.problem
        in_elements = problem.in_tile_rows(rows) * problem.in_tile_columns(columns)
        depth = self.channels if self.plan.schedule == "WS" else channels
        return (
            groups * channels * in_elements * self.size,
            filters * depth * self.taps * self.size,
            filters * problem.planes * rows * columns * self.size,
        )

    def in_extent(self, axis: int, extent: Expression) -> Expression:
        """IFM rows (axis 0) or columns (1) under ``extent`` output positions (Equation 1)."""
        problem = self.problem
        span = (problem.kernel[axis] - 1) * problem.dilation[axis] + 1
        return (extent - 1) * problem.stride[axis] + span

    def in_start(self, axis: int, start: Expression) -> Expression:
        """The first IFM row or column under output position ``start``; negative in the padding."""
        return start * self.problem.stride[axis] - self.problem.padding[axis]


def conv_tiles(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> ConvTiles:
    """What the cores of ``machine`` work on under ``plan``."""
    filters = problem.filters // problem.groups
    is_grouped = plan.mode == "grouped"
    items = problem.groups if is_grouped else filters
    shares = core_shares(plan, problem.out_rows, problem.out_columns, items, machine)
    most = MostExtents(
        max(shares.values(lambda one: one.rows)),
        max(shares.values(lambda one: one.columns)),
        max(shares.values(lambda one: one.items)) * (filters if is_grouped else 1),
    )
    return ConvTiles(problem, plan, shares, most)
