"""Pooling and padding layers: every core loads, computes and stores for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.nmp.emit.commands import (
    Compute,
    Nodes,
    Transfer,
    clamped,
    dma_registers,
    loop,
    registers,
)
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    SECOND_ARRIVED,
    STORE_DONE,
    stored,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish, require_fit
from tvm_npu.codegen.nmp.emit.mac import OutTile, out_tile, requantize
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.transfers import START, box_transfer, rows_transfer
from tvm_npu.codegen.nmp.plan.window import (
    WindowPlan,
    WindowProblem,
    linear_kinds,
    mb0_channel_bytes,
    mb2_channel_bytes,
)
from tvm_npu.codegen.ops import FixedPad, FixedPool
from tvm_npu.codegen.plan.problem import share
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister, Memory, PoolKind
from tvm_npu.sim.streams import Stream


def pool_fill(layer: FixedPool, element_bytes: int) -> int:
    """What a pool sees outside of its input."""
    return element_limits(element_bytes)[0] if layer.kind == "max" else 0


def pool_tile(
    layer: FixedPool | FixedPad,
    out: OutTile,
    in_address: Expression,
    in_box: tuple[Operand, Operand, Operand],
    corner: tuple[Operand, Operand],
    in_tensor: tuple[int, int],
    element_bytes: int,
) -> Nodes:
    """From the tile [channels, rows, columns] at byte ``in_address`` of MB0 to the OUT tile; its
    first row and column are ``corner`` of the tensor. A pad is a maximum over 1x1 windows."""
    kernel = layer.kernel if isinstance(layer, FixedPool) else (1, 1)
    values: dict[MacRegister, Operand] = {
        **out,
        MacRegister.IN_ADDRESS: in_address,
        MacRegister.IN_CHANNELS: in_box[0],
        MacRegister.IN_ROWS: in_box[1],
        MacRegister.IN_COLUMNS: in_box[2],
        MacRegister.KERNEL_ROWS: kernel[0],
        MacRegister.KERNEL_COLUMNS: kernel[1],
        MacRegister.STRIDE_ROWS: layer.stride[0],
        MacRegister.STRIDE_COLUMNS: layer.stride[1],
        MacRegister.DILATION_ROWS: 1,
        MacRegister.DILATION_COLUMNS: 1,
    }
    kind = PoolKind.MAX
    if isinstance(layer, FixedPool) and layer.kind == "avg":
        kind = PoolKind.AVERAGE_AWAY if layer.halves_away else PoolKind.AVERAGE
        widened = layer.counted_padding if layer.count_include_pad else (0, 0, 0, 0)
        values |= {
            MacRegister.ORIGIN_ROW: corner[0],
            MacRegister.ORIGIN_COLUMN: corner[1],
            MacRegister.COUNT_ROW_BEGIN: -widened[0],
            MacRegister.COUNT_ROW_END: in_tensor[0] + widened[2],
            MacRegister.COUNT_COLUMN_BEGIN: -widened[1],
            MacRegister.COUNT_COLUMN_END: in_tensor[1] + widened[3],
        }
    nodes: Nodes = (Compute("nmp_pool", int(kind), MAC_DONE, registers(values)), wait(MAC_DONE))
    smallest, largest = element_limits(element_bytes)
    if isinstance(layer, FixedPool) and (
        layer.low > smallest or layer.high < largest or layer.shift != 0
    ):
        nodes += requantize(out, layer.shift, layer.low, layer.high, element_bytes)
    return nodes


def copy_tile(out: OutTile, in_box: tuple[Operand, Operand, Operand]) -> Nodes:
    """The tile [channels, rows, columns] at the start of MB0 to one like it in MB2."""
    values: dict[MacRegister, Operand] = {
        **out,
        MacRegister.IN_ADDRESS: 0,
        MacRegister.IN_CHANNELS: in_box[0],
        MacRegister.IN_ROWS: in_box[1],
        MacRegister.IN_COLUMNS: in_box[2],
        MacRegister.KERNEL_ROWS: 1,
        MacRegister.KERNEL_COLUMNS: 1,
        MacRegister.STRIDE_ROWS: 1,
        MacRegister.STRIDE_COLUMNS: 1,
        MacRegister.DILATION_ROWS: 1,
        MacRegister.DILATION_COLUMNS: 1,
    }
    return (Compute("nmp_pool", int(PoolKind.MAX), MAC_DONE, registers(values)), wait(MAC_DONE))


Box = tuple[Expression, Expression, Expression]
"""Three numbers of a box: channels, rows, columns."""


@dataclass(frozen=True)
class WindowTiles:
    """Tiles of one layer. ``before`` is what the box of the first window reaches in front of the
    tensor, ``fill`` what it reads there."""

    layer: FixedPool | FixedPad
    problem: WindowProblem
    plan: WindowPlan
    in_tensor: tuple[int, int, int]
    out_tensor: tuple[int, int, int]
    before: tuple[int, int, int]
    fill: int
    in_address: Expression
    out_address: Expression

    def run(self, start: Box, box: Box) -> Nodes:
        """Loads, computes and stores the OUT tile ``box`` at ``start``."""
        stride, kernel, size = self.layer.stride, self.problem.kernel, self.problem.element_bytes
        before = self.before
        corner = (
            start[0] - before[0], start[1] * stride[0] - before[1], start[2] * stride[1] - before[2]
        )  # fmt: skip
        in_box = (
            box[0], (box[1] - 1) * stride[0] + kernel[0], (box[2] - 1) * stride[1] + kernel[1]
        )  # fmt: skip
        if self.plan.maps == "rows":
            in_box = (in_box[0], in_box[1], Expression.of(self.in_tensor[2]))
        compute = pool_tile(
            self.layer, out_tile(*box, size), Expression(), in_box, corner[1:], self.in_tensor[1:],
            size,
        )  # fmt: skip
        loads = self._loads(corner, in_box)
        return (*loads, *compute, self._store(start, box), *stored())

    def _store(self, start: Box, box: Box) -> Transfer:
        size = self.problem.element_bytes
        if self.plan.maps != "boxes":
            return rows_transfer(
                "nmp_store", Stream.OUT, Memory.MB2, self.out_address, STORE_DONE,
                self.out_tensor[1:], (start[0], box[0]), (start[1], box[1]), size,
            )  # fmt: skip
        return box_transfer(
            "nmp_store3d", Stream.OUT, Memory.MB2, self.out_address, STORE_DONE, self.out_tensor,
            start, box, size,
        )  # fmt: skip

    def _loads(self, corner: Box, in_box: Box) -> Nodes:
        """The IN tile, which begins at ``corner``, and the waits for it and for the last store."""
        size, tensor = self.problem.element_bytes, self.in_tensor
        if self.plan.maps == "bordered":
            return self._loads_with_border(corner, in_box)
        if self.plan.maps == "rows":
            load = rows_transfer(
                "nmp_load", Stream.IN, Memory.MB0, self.in_address, IN_ARRIVED, tensor[1:],
                (corner[0], in_box[0]), (corner[1], in_box[1]), size,
            )  # fmt: skip
            return (load, wait(IN_ARRIVED), *wait_store())
        load = box_transfer(
            "nmp_load3d", Stream.IN, Memory.MB0, self.in_address, IN_ARRIVED, self.in_tensor,
            corner, in_box, size, self.fill,
        )  # fmt: skip
        return (load, wait(IN_ARRIVED), *wait_store())

    def _loads_with_border(self, corner: Box, in_box: Box) -> Nodes:
        """The rows of the IN tile that the tensor has, through a maximum over 1x1 windows, to MB2,
        and from there with what windows see outside of the tensor to MB0."""
        size, (_, rows, columns) = self.problem.element_bytes, self.in_tensor
        begin, make_begin = clamped("in_row", rows, corner[1])
        end, make_end = clamped("in_row_end", rows, corner[1] + in_box[1])
        plan = self.plan
        behind = Expression(constant=plan.tile_channels * plan.tile_r * plan.tile_c)
        load = rows_transfer(
            "nmp_load", Stream.IN, Memory.MB0, self.in_address, IN_ARRIVED, (rows, columns),
            (corner[0], in_box[0]), (begin, end - begin), size,
        )  # fmt: skip
        tile = (in_box[0], end - begin, Expression.of(columns))
        copy = copy_tile(out_tile(*tile, size, behind), tile)
        values: dict[DmaRegister, Operand] = {
            DmaRegister.ELEMENT_BYTES: size,
            DmaRegister.CHANNELS: in_box[0],
            DmaRegister.ROWS: end - begin,
            DmaRegister.COLUMNS: columns,
            DmaRegister.CHANNEL_STRIDE: (end - begin) * (columns * size),
            DmaRegister.ROW_STRIDE: columns * size,
            DmaRegister.START_CHANNEL: 0,
            DmaRegister.START_ROW: corner[1] - begin,
            DmaRegister.START_COLUMN: corner[2],
            DmaRegister.BOX_CHANNELS: in_box[0],
            DmaRegister.BOX_ROWS: in_box[1],
            DmaRegister.BOX_COLUMNS: in_box[2],
            DmaRegister.FILL: self.fill,
            **START.registers("nmp_forward3d"),
        }
        forward = Transfer(
            "nmp_forward3d", Stream.OTHER, Memory.MB0, Expression(), behind, SECOND_ARRIVED,
            dma_registers(values),
        )  # fmt: skip
        moved = (wait(IN_ARRIVED), *wait_store(), *copy, forward, wait(SECOND_ARRIVED))
        return (*make_begin, *make_end, load, *moved)


def window(
    layer: FixedPool | FixedPad,
    in_shape: Shape,
    out_shape: Shape,
    problem: WindowProblem,
    plan: WindowPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """A pool, or a pad as a maximum over 1x1 windows of a box that sticks out of the tensor."""
    require_tiles(layer.name, problem, plan, machine)
    parameters, part = window_parameters(problem, plan, machine)
    if isinstance(layer, FixedPool):
        before = (0, layer.padding[0], layer.padding[1])
        fill = pool_fill(layer, problem.element_bytes)
    else:
        before, fill = layer.before, layer.value
    tiles = WindowTiles(
        layer, problem, plan, chw(in_shape), chw(out_shape), before, fill,
        in_address=parameters.address("in_address", operands.inputs[0]),
        out_address=parameters.address("out_address", operands.output),
    )  # fmt: skip
    return finish(parameters, over_tiles(part, problem, plan, tiles.run))


@dataclass(frozen=True)
class Part:
    """A core's rows and channels."""

    first_row: Expression
    rows: Expression
    first_channel: Expression
    channels: Expression


def window_parameters(
    problem: WindowProblem, plan: WindowPlan, machine: NmpMachine
) -> tuple[LayerParameters, Part]:
    """The words of a layer's cores, so far their parts."""
    rows, channels = _shares(problem, plan, machine.core_count)
    parameters = LayerParameters(
        [own_rows[1] * part[1] > 0 for own_rows, part in zip(rows, channels, strict=True)]
    )
    number = parameters.number
    return parameters, Part(
        first_row=number("first_row", [begin for begin, _ in rows]),
        rows=number("rows", [count for _, count in rows]),
        first_channel=number("first_channel", [begin for begin, _ in channels]),
        channels=number("channels", [count for _, count in channels]),
    )


def over_tiles(
    part: Part, problem: WindowProblem, plan: WindowPlan, body: Callable[[Box, Box], Nodes]
) -> Nodes:
    """Channel, row and column tiles of a part; ``body`` gets (start, extents)."""
    return loop(
        "channel", part.channels, plan.tile_channels,
        lambda c, tile_channels: loop(
            "row", part.rows, plan.tile_r,
            lambda r, tile_rows: loop(
                "column", problem.columns, plan.tile_c,
                lambda q, tile_columns: body(
                    (part.first_channel + c, part.first_row + r, q),
                    (tile_channels, tile_rows, tile_columns),
                ),
            ),
        ),
    )  # fmt: skip


def require_tiles(name: str, problem: WindowProblem, plan: WindowPlan, machine: NmpMachine) -> None:
    if plan.maps != "boxes" and (
        plan.maps not in linear_kinds(problem, machine) or plan.tile_c != problem.columns
    ):
        raise EmitError(
            f"layer {name!r}: tiles of {plan.tile_c} of {problem.columns} columns cannot move as "
            f"{plan.maps!r} on machine {machine.name!r}"
        )
    in_bytes = mb0_channel_bytes(problem, plan.maps, plan.tile_r, plan.tile_c)
    out_bytes = mb2_channel_bytes(problem, plan.maps, plan.tile_r, plan.tile_c)
    require_fit(name, "the IN tile", plan.tile_channels * in_bytes, machine, "mb0")
    require_fit(name, "the OUT tile", plan.tile_channels * out_bytes, machine, "mb2")
    busy = plan.row_slices * plan.channel_slices
    if busy > machine.core_count:
        raise EmitError(
            f"layer {name!r}: the plan uses {busy} cores, the machine has {machine.core_count}"
        )


def _shares(
    problem: WindowProblem, plan: WindowPlan, core_count: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(begin, count) of the OUT rows and of the channels of every core."""
    rows, channels = [], []
    for core in range(core_count):
        if core >= plan.row_slices * plan.channel_slices:
            rows.append((0, 0))
            channels.append((0, 0))
            continue
        row_slice, channel_slice = divmod(core, plan.channel_slices)
        rows.append(share(problem.rows, plan.row_slices, row_slice))
        channels.append(share(problem.channels, plan.channel_slices, channel_slice))
    return rows, channels
