"""What the MAC unit does with a convolution's tiles: products, the residual, requantization."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.commands import Compute, Nodes, registers
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, SECOND_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.mac import OutTile, multiplying, requantize_conv
from tvm_npu.codegen.nmp.emit.table import FinishPlace
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.sim.nmp.xnmp import Initialise, MacRegister, VectorOp

ZERO = Expression()


@dataclass(frozen=True)
class WTile:
    """A W tile in MB1: its first byte, the elements from one filter to the next, and the index of
    its first bias in the bias buffer."""

    offset: Expression
    pitch: Expression
    bias: Expression


@dataclass(frozen=True)
class ConvMac:
    """MAC steps of one layer, on tiles in MB0, MB1 and MB2."""

    layer: FixedConv
    tiles: ConvTiles
    place: FinishPlace | None

    def multiply(
        self,
        out: OutTile,
        initialise: Initialise,
        weights: WTile,
        channels: Expression,
        groups: Expression,
        extents: tuple[Expression, Expression],
        in_offset: Expression = ZERO,
    ) -> Compute:
        """nmp_conv2d or nmp_percept of an IN tile with ``channels`` channels a group under
        ``extents`` (rows, columns) of the OFM."""
        tiles, problem = self.tiles, self.tiles.problem
        mnemonic, zero_point = multiplying(self.layer, problem.is_dense)
        values: dict[MacRegister, Operand] = {
            **out,
            **zero_point,
            MacRegister.IN_ADDRESS: in_offset,
            MacRegister.IN_CHANNELS: channels,
            MacRegister.W_ADDRESS: weights.offset,
            MacRegister.W_PITCH: weights.pitch,
            MacRegister.BIAS_ADDRESS: weights.bias,
        }
        if problem.is_dense:
            return Compute(mnemonic, int(initialise), MAC_DONE, registers(values))
        values |= {
            MacRegister.IN_ROWS: tiles.in_extent(0, extents[0]),
            MacRegister.IN_COLUMNS: tiles.in_extent(1, extents[1]),
            MacRegister.KERNEL_ROWS: self.layer.weight.shape[2],
            MacRegister.KERNEL_COLUMNS: self.layer.weight.shape[3],
            MacRegister.STRIDE_ROWS: problem.stride[0],
            MacRegister.STRIDE_COLUMNS: problem.stride[1],
            MacRegister.DILATION_ROWS: problem.dilation[0],
            MacRegister.DILATION_COLUMNS: problem.dilation[1],
            MacRegister.GROUPS: groups,
        }
        return Compute(mnemonic, int(initialise), MAC_DONE, registers(values))

    def add_residual(
        self,
        out: OutTile,
        bias: Expression,
        in_offset: Expression = ZERO,
        arrived: int = SECOND_ARRIVED,
    ) -> Nodes:
        """Adds the residual tile that arrives at byte ``in_offset`` of MB0, as the semaphore
        ``arrived`` says; ``bias`` as of `WTile`."""
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: in_offset,
            MacRegister.SHIFT_A: self.layer.accumulator_shift,
            MacRegister.SHIFT_B: self.layer.residual_shift,
        }
        mnemonic: str = "nmp_veop"
        sub: int | None = int(VectorOp.ACCUMULATE)
        if self.layer.filter_shifts is not None:
            mnemonic, sub = "nmp_veopf", None
            values[MacRegister.BIAS_ADDRESS] = bias
        add = Compute(mnemonic, sub, MAC_DONE, registers(values))
        return (wait(arrived), add, wait(MAC_DONE))

    def requantize(self, out: OutTile, bias: Expression, first_filter: Expression) -> Nodes:
        """From accumulators to elements, in place; ``bias`` as of `WTile`, ``first_filter`` of the
        tile among those of the layer."""
        size = self.layer.out_bytes or self.tiles.size
        return requantize_conv(self.layer, out, bias, size, self.place, first_filter)
