"""A pool or a depthwise convolution behind a convolution, tile by tile on chip.

When the channels of an OUT tile are through, the tile of the convolution's OFM goes over the TLE's
ring from MB2 to MB0, with a border where windows stick out of the OFM, and from there through the
window into MB2 behind the first. Kernels and biases of a depthwise convolution stay in MB1 and in
the bias buffer, behind those of the convolution, for the whole layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.chip_layout import ChipLayout
from tvm_npu.codegen.nmp.emit.commands import (
    Compute,
    Nodes,
    Transfer,
    dma_registers,
    product,
    registers,
    when,
)
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers, OfmBox
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, SECOND_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.kept_rows import keep, row_elements
from tvm_npu.codegen.nmp.emit.layer import Operands
from tvm_npu.codegen.nmp.emit.mac import OutTile, first_bias, out_tile, requantize_conv
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.steps import Step, Steps
from tvm_npu.codegen.nmp.emit.transfers import START, OnChip, run_transfer
from tvm_npu.codegen.nmp.emit.windows import pool_fill, pool_tile
from tvm_npu.codegen.ops import FixedConv, FixedPool
from tvm_npu.codegen.plan.problem import Window
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister, Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class ThroughWindow:
    """The window layer behind a convolution: ``layer`` and, for the planner's eyes, ``window``.
    ``weight`` and ``bias`` are the DRAM addresses of a depthwise convolution's kernels."""

    layer: FixedPool | FixedConv
    window: Window
    steps: Steps
    transfers: ConvTransfers
    layout: ChipLayout
    weight: Expression | None
    bias: Expression | None

    def loads(self) -> Nodes:
        """All kernels and biases of the TLT's filters, once a layer, and the wait for them."""
        nodes: Nodes = ()
        for load in self.constants():
            nodes += (load, wait(SECOND_ARRIVED))
        return nodes

    def constants(self) -> Nodes:
        """The loads of kernels and biases, each of which signals SECOND_ARRIVED."""
        if self.weight is None or self.bias is None:
            return ()
        assert isinstance(self.layer, FixedConv)
        tiles, items = self.transfers.tiles, self.transfers.words.items
        kernel = self.layer.weight.shape[2] * self.layer.weight.shape[3]
        load = run_transfer(
            "nmp_load", Stream.WEIGHT, Memory.MB1, self.weight, SECOND_ARRIVED,
            items * (kernel * tiles.size), tiles.size,
            OnChip(Expression(constant=self.layout.window_w_offset)),
        )  # fmt: skip
        behind = OnChip(Expression(constant=tiles.most.filters * BIAS_BYTES))
        return (load, self.transfers.load_biases(self.bias, items, behind)[0])

    def run(self, step: Step, at: OfmBox, out_offset: Expression, in_offset: Expression) -> Nodes:
        """From the requantized tile of the convolution's OFM, which is ``at`` it and lies at the
        start of MB2, to the OUT tile at element ``out_offset`` of MB2, by way of byte ``in_offset``
        of MB0."""
        window, size, problem = self.window, self.transfers.tiles.size, self.steps.tiles.problem
        out_box = self.steps.out_box(step)
        corner = (
            out_box.row * window.stride[0] - window.padding[0],
            out_box.column * window.stride[1] - window.padding[1],
        )
        extents = (
            (step.rows - 1) * window.stride[0] + window.kernel[0],
            (step.columns - 1) * window.stride[1] + window.kernel[1],
        )
        forward = self._forward(step, at, in_offset, corner, extents)
        made = step.own * problem.planes
        out = out_tile(made, step.rows, step.columns, size, out_offset)
        if isinstance(self.layer, FixedPool):
            compute = pool_tile(
                self.layer, out, in_offset, (made, *extents), corner,
                (problem.rows, problem.columns), size,
            )  # fmt: skip
        else:
            compute = self._depthwise(self.layer, out, in_offset, extents, step)
        kept: Nodes = ()
        if self.steps.tiles.plan.keeps_rows:
            rest = self.steps.words.rows - step.r - self.steps.tiles.largest[2]
            column = at.column - corner[1]
            copy = keep(self.steps.tiles, step, at, in_offset, column, extents)
            kept = when(rest, ">", copy)
        return (*forward, *compute, *kept)

    def _forward(
        self,
        step: Step,
        at: OfmBox,
        in_offset: Expression,
        corner: tuple[Expression, Expression],
        extents: tuple[Expression, Expression],
    ) -> Nodes:
        """The tile in MB2 to MB0, with what windows see outside of the OFM around it."""
        size = self.transfers.tiles.size
        made = step.own * self.steps.tiles.problem.planes
        fill = pool_fill(self.layer, size) if isinstance(self.layer, FixedPool) else 0
        if self.steps.tiles.plan.keeps_rows:
            elements, make = row_elements(self.steps.tiles, step, at)
            channel, row = at.columns * size, elements * size
        else:
            channel, make = product("middle_area", at.rows, at.columns * size)
            row = at.columns * size
        values: dict[DmaRegister, Operand] = {
            DmaRegister.ELEMENT_BYTES: size,
            DmaRegister.CHANNELS: made,
            DmaRegister.ROWS: at.rows + at.kept,
            DmaRegister.COLUMNS: at.columns,
            DmaRegister.CHANNEL_STRIDE: channel,
            DmaRegister.ROW_STRIDE: row,
            DmaRegister.START_CHANNEL: 0,
            DmaRegister.START_ROW: corner[0] - at.row + at.kept,
            DmaRegister.START_COLUMN: corner[1] - at.column,
            DmaRegister.BOX_CHANNELS: made,
            DmaRegister.BOX_ROWS: extents[0],
            DmaRegister.BOX_COLUMNS: extents[1],
            DmaRegister.FILL: fill,
            **START.registers("nmp_forward3d"),
        }
        forward = Transfer(
            "nmp_forward3d", Stream.OTHER, Memory.MB0, in_offset, Expression(), SECOND_ARRIVED,
            dma_registers(values),
        )  # fmt: skip
        return (*make, forward, wait(SECOND_ARRIVED))

    def _depthwise(
        self,
        layer: FixedConv,
        out: OutTile,
        in_offset: Expression,
        extents: tuple[Expression, Expression],
        step: Step,
    ) -> Nodes:
        tiles = self.transfers.tiles
        kernel = (layer.weight.shape[2], layer.weight.shape[3])
        taps = kernel[0] * kernel[1]
        bias = step.m + tiles.most.filters
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: in_offset,
            MacRegister.IN_CHANNELS: 1,
            MacRegister.IN_ROWS: extents[0],
            MacRegister.IN_COLUMNS: extents[1],
            MacRegister.W_ADDRESS: step.m * (taps * tiles.size) + self.layout.window_w_offset,
            MacRegister.W_PITCH: taps,
            MacRegister.BIAS_ADDRESS: bias,
            MacRegister.KERNEL_ROWS: kernel[0],
            MacRegister.KERNEL_COLUMNS: kernel[1],
            MacRegister.STRIDE_ROWS: layer.stride[0],
            MacRegister.STRIDE_COLUMNS: layer.stride[1],
            MacRegister.DILATION_ROWS: 1,
            MacRegister.DILATION_COLUMNS: 1,
            MacRegister.GROUPS: step.own,
        }
        multiply = Compute("nmp_conv2d", int(first_bias(layer)), MAC_DONE, registers(values))
        end = requantize_conv(layer, out, bias, tiles.out_size)
        return (multiply, wait(MAC_DONE), *end)


def through_window(
    layer: FixedPool | FixedConv,
    window: Window,
    steps: Steps,
    transfers: ConvTransfers,
    layout: ChipLayout,
    parameters: LayerParameters,
    operands: Operands,
) -> ThroughWindow:
    """Adds the words that ``layer`` needs to ``parameters``. EmitError without operands."""
    if isinstance(layer, FixedPool):
        return ThroughWindow(layer, window, steps, transfers, layout, None, None)
    if operands.window_weight is None or operands.window_bias is None:
        raise EmitError(f"layer {layer.name!r}: no weights")
    tiles = transfers.tiles
    kernel_bytes = layer.weight.shape[2] * layer.weight.shape[3] * tiles.size
    firsts = tiles.shares.values(lambda one: one.first_item)
    weights, biases = operands.window_weight, operands.window_bias
    weight = parameters.address(
        "window_weight", [weights.plus(first * kernel_bytes) for first in firsts]
    )
    bias = parameters.address("window_bias", [biases.plus(first * BIAS_BYTES) for first in firsts])
    return ThroughWindow(layer, window, steps, transfers, layout, weight, bias)


def require_ring(layer: str, machine: NmpMachine) -> None:
    """EmitError for a window behind the convolution ``layer`` on a machine without a ring."""
    if machine.ring is None:
        raise EmitError(
            f"layer {layer!r}: a window behind a convolution needs the ring of a TLE; machine "
            f"{machine.name!r} has no [ring]"
        )
