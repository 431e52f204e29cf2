"""A convolution whose operands stay outside of the chip: one tconv, one tfinish."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import Operands, out_registers, requantize_registers
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import Accumulate, Finish, TileMemory, TileRegister

OUTSIDE = TileMemory.ACTIVATIONS | TileMemory.CONSTANTS << 3 | TileMemory.ACTIVATIONS << 6
"""The OPERANDS register: feature maps and weights where they lie."""
_NOTHING = ChipRange(TileMemory.OUTPUT, 0, 0)


def direct_commands(
    layer: FixedConv, problem: ConvProblem, operands: Operands
) -> Iterator[Command]:
    """The biases come on chip; everything else stays."""
    bias_bytes = problem.filters * BIAS_BYTES
    biases = Runs(TileMemory.CONSTANTS, operands.bias, bias_bytes)
    yield Transfer(True, TileMemory.BIAS, 0, biases, Stream.BIAS)
    out = out_registers(operands.output, problem.filters, problem.rows, problem.columns)
    common = {TileRegister.OPERANDS: int(OUTSIDE), **out}
    yield Work(
        "tconv", Accumulate.ZERO,
        {
            **common,
            TileRegister.IN_OFFSET: operands.inputs[0],
            TileRegister.W_OFFSET: operands.weight,
            TileRegister.IN_CHANNELS: problem.channels // problem.groups,
            TileRegister.IN_ROWS: problem.in_rows,
            TileRegister.IN_COLUMNS: problem.in_columns,
            TileRegister.KERNEL_ROWS: problem.kernel[0],
            TileRegister.KERNEL_COLUMNS: problem.kernel[1],
            TileRegister.STRIDE_ROWS: problem.stride[0],
            TileRegister.STRIDE_COLUMNS: problem.stride[1],
            TileRegister.DILATION_ROWS: problem.dilation[0],
            TileRegister.DILATION_COLUMNS: problem.dilation[1],
            TileRegister.PAD_TOP: problem.padding[0],
            TileRegister.PAD_LEFT: problem.padding[1],
            TileRegister.GROUPS: problem.groups,
        },
        (), _NOTHING,
    )  # fmt: skip
    registers = {**common, TileRegister.BIAS_OFFSET: 0, **requantize_registers(layer)}
    if problem.has_residual:
        registers |= {
            TileRegister.IN_OFFSET: operands.inputs[1],
            TileRegister.SHIFT_A: layer.accumulator_shift,
            TileRegister.SHIFT_B: layer.residual_shift,
        }
    sub = Finish.BIAS_RESIDUAL if problem.has_residual else Finish.BIAS
    reads = (ChipRange(TileMemory.BIAS, 0, bias_bytes),)
    operations = problem.filters * problem.rows * problem.columns
    yield Work("tfinish", sub, registers, reads, _NOTHING, operations)
