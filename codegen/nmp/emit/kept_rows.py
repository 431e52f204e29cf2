"""Rows of a convolution's OFM that stay in MB2 for the window's next tile (`plan.kept_rows`).

The OFM under a tile lies row by row from the start of MB2 on: the rows that were kept, and behind
them the new ones, each with all filters of the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Compute,
    Minimum,
    Nodes,
    loop,
    product,
    registers,
    when,
)
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.conv_transfers import OfmBox
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand, Variable
from tvm_npu.codegen.nmp.emit.mac import OutTile, out_tile
from tvm_npu.codegen.nmp.emit.steps import Step
from tvm_npu.codegen.nmp.plan.kept_rows import shared_rows
from tvm_npu.sim.nmp.xnmp import MacRegister, PoolKind

OUT_ROW, IN_ROW = Variable("out_row", 0, 1 << 20), Variable("in_row", 0, 1 << 20)
"""Where the row at hand begins: the element of MB2, and the byte of MB0 of its IN tile."""
Row = Callable[[OutTile, Expression], Nodes]
"""From where a new row goes, and the byte of MB0 where its IN rows begin."""


def row_elements(tiles: ConvTiles, step: Step, at: OfmBox) -> tuple[Expression, Nodes]:
    """Of one row with all filters of the tile."""
    return product("row_elements", step.own * tiles.problem.planes, at.columns)


@dataclass(frozen=True)
class NewRows:
    """The rows of ``at`` one by one, if there are any; in each, the channels that the convolution
    makes, or those of its ``twin``."""

    tiles: ConvTiles
    step: Step
    at: OfmBox
    twin: bool = False

    def first(self, in_offset: Expression, row: Row) -> Nodes:
        """``row`` for the first of them, whose IN tile begins at ``in_offset``."""
        elements, make_elements = row_elements(self.tiles, self.step, self.at)
        first, make_first = product("kept_elements", self.at.kept, elements)
        if self.twin:
            behind, make_behind = product("plane_elements", self.step.own, self.at.columns)
            first, make_first = first + behind, (*make_first, *make_behind)
        nodes = (
            *make_elements, *make_first, Assign(OUT_ROW, first), Assign(IN_ROW, in_offset),
            *row(self._tile, Expression.of(IN_ROW)),
        )  # fmt: skip
        return when(self.at.rows, ">", nodes)

    def others(self, row: Row, waits: bool = True) -> Nodes:
        """``row`` for those behind it; ``waits``: each one for the MAC unit to be through with the
        one before, and in the end for the last one."""
        pause: Nodes = (wait(MAC_DONE),) if waits else ()
        if not self._most:
            return when(self.at.rows, ">", pause)
        elements, make_elements = row_elements(self.tiles, self.step, self.at)
        step_out, make_out = _in_one("row_step", elements)
        row_bytes = self.tiles.in_extent(1, self.at.columns)
        row_bytes *= self.tiles.problem.stride[0] * self.tiles.size
        step_in, make_in = _in_one("row_in_step", row_bytes)
        count = Variable("other_rows", 1, self._most)

        def turn(_: Expression, __: Expression) -> Nodes:
            return (
                *pause,
                Assign(OUT_ROW, Expression.of(OUT_ROW) + step_out),
                Assign(IN_ROW, Expression.of(IN_ROW) + step_in),
                *row(self._tile, Expression.of(IN_ROW)),
            )

        begin = (*make_elements, *make_out, *make_in)
        rest = (Minimum(count, self._most, self.at.rows - 1), *loop("other_row", count, 1, turn))
        nodes = (*when(self.at.rows - 1, ">", (*begin, *rest)), *pause)
        return when(self.at.rows, ">", nodes)

    @property
    def _most(self) -> int:
        """Of rows behind the first."""
        return self.tiles.largest_middle[0] - 1

    @property
    def _tile(self) -> OutTile:
        place = Expression.of(OUT_ROW)
        return out_tile(self.step.own, 1, self.at.columns, self.tiles.size, place)


def _in_one(name: str, value: Expression) -> tuple[Expression, Nodes]:
    """``value`` as a constant or in one register."""
    if value.is_constant or value == Expression.of(next(iter(value.variables))):
        return value, ()
    variable = Variable(name, value.low, value.high)
    return Expression.of(variable), (Assign(variable, value),)


def all_new_rows(tiles: ConvTiles, step: Step, at: OfmBox) -> tuple[Nodes, OutTile]:
    """All new rows as one tile, for what asks no filter."""
    elements, make_elements = row_elements(tiles, step, at)
    first, make_first = product("kept_elements", at.kept, elements)
    tile = out_tile(step.own * tiles.problem.planes, at.rows, at.columns, tiles.size, first)
    return (*make_elements, *make_first), tile


def keep(
    tiles: ConvTiles,
    step: Step,
    at: OfmBox,
    in_offset: Expression,
    column: Expression,
    extents: tuple[Expression, Expression],
) -> Nodes:
    """The last rows of the box of ``extents`` that the window has read, from byte ``in_offset`` of
    MB0 on and with the OFM from its ``column`` on, to the start of MB2."""
    window, size = tiles.problem.window, tiles.size
    assert window is not None
    elements, nodes = row_elements(tiles, step, at)
    made = step.own * tiles.problem.planes
    for number in range(shared_rows(tiles.problem)):
        row = tiles.largest[2] * window.stride[0] + number
        values: dict[MacRegister, Operand] = {
            **out_tile(made, 1, at.columns, size, elements * number),
            MacRegister.IN_ADDRESS: in_offset + (extents[1] * row + column) * size,
            MacRegister.IN_CHANNELS: made,
            MacRegister.IN_ROWS: extents[0],
            MacRegister.IN_COLUMNS: extents[1],
            MacRegister.KERNEL_ROWS: 1,
            MacRegister.KERNEL_COLUMNS: 1,
            MacRegister.STRIDE_ROWS: 1,
            MacRegister.STRIDE_COLUMNS: 1,
            MacRegister.DILATION_ROWS: 1,
            MacRegister.DILATION_COLUMNS: 1,
        }
        copy = Compute("nmp_pool", int(PoolKind.MAX), MAC_DONE, registers(values))
        nodes += (copy, wait(MAC_DONE))
    return nodes
