"""Rows of a convolution's OFM that stay in MB2 for the window's next tile (`plan.kept_rows`).

The OFM under a tile lies row by row from the start of MB2 on: the rows that were kept, and behind
them the new ones, each with all filters of the tile.
"""

from __future__ import annotations

from collections.abc import Callable

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

Row = Callable[[Expression, OutTile, Expression], Nodes]
"""From the number of a new row, where it goes, and the byte of MB0 where its IN rows begin."""


def row_elements(step: Step, at: OfmBox) -> tuple[Expression, Nodes]:
    """Of one row with all filters of the tile."""
    return product("row_elements", step.own, at.columns)


def each_new_row(
    tiles: ConvTiles, step: Step, at: OfmBox, in_offset: Expression | None, row: Row
) -> Nodes:
    """``row`` for all rows of ``at``, in order; nothing where there is none. ``in_offset`` is the
    byte of MB0 at which the IN tile begins, or None where nobody asks."""
    most = tiles.largest_middle[0]
    elements, make_elements = row_elements(step, at)
    first, make_first = product("kept_elements", at.kept, elements)
    count = Variable("new_rows", 1, most)
    out = Variable("row_out", 0, most * elements.high)
    step_out, make_step = _in_one("row_step", elements)
    advance: Nodes = (Assign(out, Expression.of(out) + step_out),)
    begin: Nodes = (
        *make_elements, *make_first, Minimum(count, most, at.rows), Assign(out, first), *make_step,
    )  # fmt: skip
    source = Expression()
    if in_offset is not None:
        row_bytes = tiles.in_extent(1, at.columns) * (tiles.problem.stride[0] * tiles.size)
        source_at = Variable("row_in", 0, in_offset.high + most * row_bytes.high)
        source = Expression.of(source_at)
        step_in, make_step = _in_one("row_in_step", row_bytes)
        advance += (Assign(source_at, source + step_in),)
        begin += (Assign(source_at, in_offset), *make_step)

    def turn(index: Expression, _: Expression) -> Nodes:
        place = out_tile(step.own, 1, at.columns, tiles.size, Expression.of(out))
        return (*row(index, place, source), *advance)

    return when(at.rows, ">", (*begin, *loop("new_row", Expression.of(count), 1, turn)))


def _in_one(name: str, value: Expression) -> tuple[Expression, Nodes]:
    """``value`` as a constant or in one register."""
    if value.is_constant or value == Expression.of(next(iter(value.variables))):
        return value, ()
    variable = Variable(name, value.low, value.high)
    return Expression.of(variable), (Assign(variable, value),)


def all_new_rows(tiles: ConvTiles, step: Step, at: OfmBox) -> tuple[Nodes, OutTile]:
    """All new rows as one tile, for what asks no filter."""
    elements, make_elements = row_elements(step, at)
    first, make_first = product("kept_elements", at.kept, elements)
    tile = out_tile(step.own, at.rows, at.columns, tiles.size, first)
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
    elements, nodes = row_elements(step, at)
    for number in range(shared_rows(tiles.problem)):
        row = tiles.largest[2] * window.stride[0] + number
        values: dict[MacRegister, Operand] = {
            **out_tile(step.own, 1, at.columns, size, elements * number),
            MacRegister.IN_ADDRESS: in_offset + (extents[1] * row + column) * size,
            MacRegister.IN_CHANNELS: step.own,
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
