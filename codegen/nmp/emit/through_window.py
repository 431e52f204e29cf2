"""A pool or a depthwise convolution behind a convolution, tile by tile on chip.

When the channels of an OUT tile are through, the tile of the convolution's OFM goes over the TLE's
ring from MB2 to MB0, with a border where windows stick out of the OFM, and from there through the
window into MB2 behind the first. Kernels and biases of a depthwise convolution stay in MB1 and in
the bias buffer, behind those of the convolution, for the whole layer.
"""

from __future__ import annotations

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed import FixedConv, FixedPool
from tvm_npu.codegen.nmp.emit.commands import (
    Affine,
    Compute,
    Nodes,
    Operand,
    Transfer,
    dma_registers,
    product,
    registers,
)
from tvm_npu.codegen.nmp.emit.conventions import (
    MAC_DONE,
    SECOND_ARRIVED,
    START,
    OnChip,
    activation,
    out_registers,
    run_transfer,
    wait,
)
from tvm_npu.codegen.nmp.emit.layer import Operands
from tvm_npu.codegen.nmp.emit.step_loads import StepLoads
from tvm_npu.codegen.nmp.emit.steps import OfmPlace, Step
from tvm_npu.codegen.nmp.emit.windows import pool_fill, pool_tile
from tvm_npu.codegen.plan.problem import BIAS_BYTES
from tvm_npu.sim.nmp.xnmp import DmaRegister, Initialise, MacRegister, Memory
from tvm_npu.sim.streams import Stream


class ThroughWindow(StepLoads):
    """What a convolution with a window does besides."""

    window_layer: FixedPool | FixedConv | None = None
    window_weight: Affine | None = None
    window_bias: Affine | None = None
    window_w_offset = 0

    def take_window(self, layer: FixedPool | FixedConv, operands: Operands) -> None:
        """Remembers the layer; its weights and biases get words of the core's line."""
        self.window_layer = layer
        if self.machine.ring is None:
            raise EmitError(
                f"layer {self.layer.name!r}: a window behind a convolution needs the ring of a "
                f"TLE; machine {self.machine.name!r} has no [ring]"
            )
        if isinstance(layer, FixedPool):
            return
        if operands.window_weight is None or operands.window_bias is None:
            raise EmitError(f"layer {layer.name!r}: no weights")
        weight, bias = operands.window_weight, operands.window_bias
        firsts = self.shares.values(lambda one: one.first_item)
        address = self.parameters.address
        kernel_bytes = layer.weight.shape[2] * layer.weight.shape[3] * self.size
        self.window_weight = address(
            "window_weight", [weight.plus(first * kernel_bytes) for first in firsts]
        )
        self.window_bias = address(
            "window_bias", [bias.plus(first * BIAS_BYTES) for first in firsts]
        )

    def window_loads(self) -> Nodes:
        """All kernels and biases of the TLT's filters, once a layer."""
        if self.window_weight is None or self.window_bias is None:
            return ()
        assert isinstance(self.window_layer, FixedConv)
        kernel = self.window_layer.weight.shape[2] * self.window_layer.weight.shape[3]
        load = run_transfer(
            "nmp_load", Stream.WEIGHT, Memory.MB1, self.window_weight, SECOND_ARRIVED,
            self.items * (kernel * self.size), self.size,
            OnChip(Affine(constant=self.window_w_offset)),
        )  # fmt: skip
        behind = OnChip(Affine(constant=self.most.filters * BIAS_BYTES))
        return (
            load,
            wait(SECOND_ARRIVED),
            *self.load_biases(self.window_bias, self.items, behind),
        )

    def through_window(
        self,
        step: Step,
        at: OfmPlace,
        middle: dict[MacRegister, Operand],
        out_offset: Affine,
        in_offset: Affine,
    ) -> Nodes:
        """From the requantized tile ``middle`` at the start of MB2 to the OUT tile at element
        ``out_offset`` of MB2, by way of byte ``in_offset`` of MB0."""
        window, layer = self.problem.window, self.window_layer
        assert window is not None and layer is not None
        corner = (
            (self.first_row + step.r) * window.stride[0] - window.padding[0],
            (self.first_column + step.c) * window.stride[1] - window.padding[1],
        )
        box = (
            (step.rows - 1) * window.stride[0] + window.kernel[0],
            (step.columns - 1) * window.stride[1] + window.kernel[1],
        )
        fill = pool_fill(layer, self.size) if isinstance(layer, FixedPool) else 0
        area, make_area = product("middle_area", at.rows, at.columns * self.size)
        values: dict[DmaRegister, Operand] = {
            DmaRegister.ELEMENT_BYTES: self.size,
            DmaRegister.CHANNELS: step.own,
            DmaRegister.ROWS: at.rows,
            DmaRegister.COLUMNS: at.columns,
            DmaRegister.CHANNEL_STRIDE: area,
            DmaRegister.ROW_STRIDE: at.columns * self.size,
            DmaRegister.START_CHANNEL: 0,
            DmaRegister.START_ROW: corner[0] - at.row,
            DmaRegister.START_COLUMN: corner[1] - at.column,
            DmaRegister.BOX_CHANNELS: step.own,
            DmaRegister.BOX_ROWS: box[0],
            DmaRegister.BOX_COLUMNS: box[1],
            DmaRegister.FILL: fill,
            **START.registers("nmp_forward3d"),
        }
        forward = Transfer(
            "nmp_forward3d", Stream.OTHER, Memory.MB0, in_offset, Affine(), SECOND_ARRIVED,
            dma_registers(values),
        )  # fmt: skip
        out = out_registers(step.own, step.rows, step.columns, self.size, out_offset)
        in_box = (step.own, *box)
        if isinstance(layer, FixedPool):
            tensor = (self.problem.rows, self.problem.columns)
            compute = pool_tile(layer, out, in_offset, in_box, corner, tensor, self.size)
        else:
            compute = self._depthwise(layer, out, in_offset, box, step)
        return (*make_area, forward, wait(SECOND_ARRIVED), *compute)

    def _depthwise(
        self,
        layer: FixedConv,
        out: dict[MacRegister, Operand],
        in_offset: Affine,
        box: tuple[Affine, Affine],
        step: Step,
    ) -> Nodes:
        kernel = (layer.weight.shape[2], layer.weight.shape[3])
        taps = kernel[0] * kernel[1]
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: in_offset,
            MacRegister.IN_CHANNELS: 1,
            MacRegister.IN_ROWS: box[0],
            MacRegister.IN_COLUMNS: box[1],
            MacRegister.W_ADDRESS: step.m * (taps * self.size) + self.window_w_offset,
            MacRegister.W_PITCH: taps,
            MacRegister.BIAS_ADDRESS: step.m + self.most.filters,
            MacRegister.KERNEL_ROWS: kernel[0],
            MacRegister.KERNEL_COLUMNS: kernel[1],
            MacRegister.STRIDE_ROWS: layer.stride[0],
            MacRegister.STRIDE_COLUMNS: layer.stride[1],
            MacRegister.DILATION_ROWS: 1,
            MacRegister.DILATION_COLUMNS: 1,
            MacRegister.GROUPS: step.own,
        }
        multiply = Compute("nmp_conv2d", int(Initialise.BIAS), MAC_DONE, registers(values))
        finish = activation(out, layer.shift, layer.low, layer.high, self.size)
        return (multiply, wait(MAC_DONE), *finish)
