"""What both modes of a convolution share: who works on what, and the steps of one tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed import FixedConv
from tvm_npu.codegen.nmp.emit.commands import (
    Affine,
    Compute,
    Nodes,
    Operand,
    Transfer,
    loop,
    registers,
)
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    SECOND_ARRIVED,
    START,
    STORE_DONE,
    W_ARRIVED,
    OnChip,
    activation,
    box_transfer,
    run_transfer,
    segments_transfer,
    wait,
)
from tvm_npu.codegen.nmp.emit.layer import Operands
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.shares import core_shares
from tvm_npu.codegen.nmp.emit.weights import weight_runs
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import BIAS_BYTES, ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Initialise, MacRegister, Memory, VectorOp
from tvm_npu.sim.streams import Stream

ZERO = Affine()


@dataclass(frozen=True)
class MostExtents:
    """The most rows, columns and filters that one core works on."""

    rows: int
    columns: int
    filters: int


class ConvolutionTiles:
    """What both modes share: sizes, the tile's registers, the end of an OUT tile."""

    def __init__(
        self,
        layer: FixedConv,
        problem: ConvProblem,
        plan: ConvPlan,
        machine: NmpMachine,
        operands: Operands,
    ) -> None:
        self.layer, self.problem, self.plan, self.machine = layer, problem, plan, machine
        self.size = problem.element_bytes
        self.filters = problem.filters // problem.groups
        self.channels = problem.channels // problem.groups
        self.taps = problem.kernel[0] * problem.kernel[1]
        self.filter_bytes = self.channels * self.taps * self.size
        self.flat_in = problem.in_rows * problem.in_columns == 1 and problem.kernel == (1, 1)
        self.flat_in = self.flat_in and problem.padding == (0, 0, 0, 0)
        self.flat_out = problem.out_rows * problem.out_columns == 1
        is_wide = plan.tile_c >= problem.out_columns and plan.column_slices * plan.tlt_columns == 1
        self.linear_out = plan.linear_maps and is_wide
        reach = problem.columns
        if problem.window is not None:  # windows need not reach the last column
            reach = problem.middle_tile(1, problem.out_columns)[1] - problem.window.padding[1]
        self.linear_in = (
            self.linear_out
            and problem.in_tile_columns(min(reach, problem.columns)) == problem.in_columns
            and problem.padding == (0, 0, 0, 0)
        )
        self.is_grouped = plan.mode == "grouped"
        items = problem.groups if self.is_grouped else self.filters
        item_filters = self.filters if self.is_grouped else 1
        self.shares = core_shares(plan, problem.out_rows, problem.out_columns, items, machine)
        idle = [self.is_grouped and one is not None and not one.items for one in self.shares.cores]
        self.parameters = LayerParameters(
            [active and not none for active, none in zip(self.shares.active, idle, strict=True)]
        )
        if operands.weight is None or operands.bias is None:
            raise EmitError(f"layer {layer.name!r}: no weights")
        number, address = self.parameters.number, self.parameters.address
        values = self.shares.values
        self.first_row = number("first_row", values(lambda one: one.first_row))
        self.rows = number("rows", values(lambda one: one.rows))
        self.first_column = number("first_column", values(lambda one: one.first_column))
        self.columns = number("columns", values(lambda one: one.columns))
        self.first_item = number("first_item", values(lambda one: one.first_item))
        self.items = number("items", values(lambda one: one.items))
        self.most = MostExtents(
            max(values(lambda one: one.rows)),
            max(values(lambda one: one.columns)),
            max(values(lambda one: one.items)) * item_filters,
        )
        self.in_address = address("in_address", operands.inputs[0])
        weight, bias = operands.weight, operands.bias
        runs = weight_runs(plan, problem, self.shares)
        self.w_address = address("w_address", [weight.plus(offset) for offset in runs])
        self.bias_address = address(
            "bias_address",
            [
                bias.plus(first * item_filters * BIAS_BYTES)
                for first in values(lambda one: one.first_item)
            ],
        )
        self.out_address = address("out_address", operands.output)
        self.residual_address = None
        if problem.has_residual:
            self.residual_address = address("residual_address", operands.inputs[1])

    @property
    def tile(self) -> tuple[int, int, int, int]:
        """The largest tile that occurs: filters, channels, rows, columns."""
        plan, most = self.plan, self.most
        return (
            most.filters if plan.schedule == "IS" else min(plan.tile_m, most.filters),
            min(plan.tile_n, self.channels),
            min(plan.tile_r, most.rows),
            min(plan.tile_c, most.columns),
        )

    @property
    def middle_tile(self) -> tuple[int, int]:
        """Rows and columns of the convolution's OFM under the largest OUT tile."""
        rows, columns = self.problem.middle_tile(*self.tile[2:])
        return min(rows, self.problem.rows), min(columns, self.problem.columns)

    def tile_bytes(self) -> tuple[int, int, int]:
        """Bytes of the largest IN and W tiles, and of the largest tile of the convolution's OFM."""
        filters, channels, _, _ = self.tile
        rows, columns = self.middle_tile
        groups = -(-filters // self.filters) if self.is_grouped else 1
        problem = self.problem
        in_elements = problem.in_tile_rows(rows) * problem.in_tile_columns(columns)
        depth = self.channels if self.plan.schedule == "WS" else channels
        return (
            groups * channels * in_elements * self.size,
            filters * depth * self.taps * self.size,
            filters * rows * columns * self.size,
        )

    def over_places(self, body: Callable[[Affine, Affine, Affine, Affine], Nodes]) -> Nodes:
        """Row and column tiles; ``body`` gets (row, rows, column, columns) of the OFM."""
        plan = self.plan
        return loop(
            "row", self.rows, plan.tile_r,
            lambda r, rows: loop(
                "column", self.columns, plan.tile_c,
                lambda c, columns: body(self.first_row + r, rows, self.first_column + c, columns),
            ),
        )  # fmt: skip

    def in_extent(self, axis: int, extent: Affine) -> Affine:
        """IFM rows (axis 0) or columns (1) under ``extent`` output positions (Equation 1)."""
        problem = self.problem
        span = (problem.kernel[axis] - 1) * problem.dilation[axis] + 1
        return (extent - 1) * problem.stride[axis] + span

    def in_start(self, axis: int, start: Affine) -> Affine:
        return start * self.problem.stride[axis] - self.problem.padding[axis]

    def load_in(
        self,
        mnemonic: str,
        channel: Affine,
        channels: Affine,
        row: Affine,
        rows: Affine,
        column: Affine,
        columns: Affine,
        on_chip: OnChip = START,
    ) -> Transfer:
        """The IN tile under OUT rows and columns; ``mnemonic`` nmp_load or nmp_mload."""
        problem = self.problem
        if self.flat_in:
            return run_transfer(
                mnemonic, Stream.IN, Memory.MB0, self.in_address + channel * self.size,
                IN_ARRIVED, channels * self.size, self.size, on_chip,
            )  # fmt: skip
        if self.linear_in:
            return self._rows_transfer(
                mnemonic, Stream.IN, Memory.MB0, self.in_address, IN_ARRIVED,
                (problem.in_rows, problem.in_columns), (channel, channels),
                (self.in_start(0, row), self.in_extent(0, rows)), on_chip,
            )  # fmt: skip
        return box_transfer(
            f"{mnemonic}3d", Stream.IN, Memory.MB0, self.in_address, IN_ARRIVED,
            (problem.channels, problem.in_rows, problem.in_columns),
            (channel, self.in_start(0, row), self.in_start(1, column)),
            (channels, self.in_extent(0, rows), self.in_extent(1, columns)),
            self.size, fill=0, on_chip=on_chip,
        )  # fmt: skip

    def out_transfer(
        self,
        load: bool,
        filter_: Affine,
        filters: Affine,
        row: Affine,
        rows: Affine,
        column: Affine,
        columns: Affine,
        on_chip: OnChip = START,
    ) -> Transfer:
        """The store of the OUT tile, or the load of the residual tile that is added to it."""
        problem = self.problem
        address = self.residual_address if load else self.out_address
        assert address is not None
        memory = Memory.MB0 if load else Memory.MB2
        stream = Stream.RESIDUAL if load else Stream.OUT
        semaphore = SECOND_ARRIVED if load else STORE_DONE
        mnemonic = "nmp_load" if load else "nmp_store"
        if self.flat_out:
            return run_transfer(
                mnemonic, stream, memory, address + filter_ * self.size, semaphore,
                filters * self.size, self.size, on_chip,
            )  # fmt: skip
        if self.linear_out:
            return self._rows_transfer(
                mnemonic, stream, memory, address, semaphore,
                (problem.out_rows, problem.out_columns), (filter_, filters), (row, rows), on_chip,
            )  # fmt: skip
        return box_transfer(
            f"{mnemonic}3d", stream, memory, address, semaphore,
            (problem.filters, problem.out_rows, problem.out_columns),
            (filter_, row, column), (filters, rows, columns), self.size,
            fill=0 if load else None, on_chip=on_chip,
        )  # fmt: skip

    def _rows_transfer(
        self,
        mnemonic: str,
        stream: Stream,
        memory: Memory,
        address: Affine,
        semaphore: int,
        tensor: tuple[int, int],
        channels: tuple[Affine, Affine],
        rows: tuple[Affine, Affine],
        on_chip: OnChip,
    ) -> Transfer:
        """Whole rows of some channels, (begin, count) of each, of planes of ``tensor`` rows and
        columns: a segment a channel, or one in all for whole planes."""
        row_bytes = tensor[1] * self.size
        plane_bytes = tensor[0] * row_bytes
        begin = address + channels[0] * plane_bytes + rows[0] * row_bytes
        segments: tuple[Operand, Operand, Operand]
        if rows[1] == Affine.of(tensor[0]):
            segments = (1, channels[1] * plane_bytes, 0)
        else:
            segments = (channels[1], rows[1] * row_bytes, plane_bytes)
        return segments_transfer(
            mnemonic, stream, memory, begin, semaphore, segments, self.size, on_chip
        )

    def load_biases(
        self, address: Affine, filters: Affine, on_chip: OnChip = START
    ) -> Nodes:
        transfer = run_transfer(
            "nmp_load", Stream.BIAS, Memory.BIAS, address, SECOND_ARRIVED,
            filters * BIAS_BYTES, self.size, on_chip,
        )  # fmt: skip
        return (transfer, wait(SECOND_ARRIVED))

    def load_weights(
        self,
        mnemonic: str,
        address: Affine,
        filters: Affine,
        channels: Affine,
        on_chip: OnChip = START,
    ) -> Transfer:
        """A W tile or some filters of one: a segment a filter, or one in all where they lie one
        behind the other."""
        segments: tuple[Operand, Operand, Operand]
        if channels == Affine.of(self.channels):
            segments = (1, filters * self.filter_bytes, 0)
        else:
            segments = (filters, channels * (self.taps * self.size), self.filter_bytes)
        return segments_transfer(
            mnemonic, Stream.WEIGHT, Memory.MB1, address, W_ARRIVED, segments, self.size, on_chip
        )

    def multiply(
        self,
        out: dict[MacRegister, Operand],
        initialise: Initialise,
        bias: Affine,
        channels: Affine,
        w_offset: Affine,
        w_pitch: Affine,
        groups: Affine,
        rows: Affine,
        columns: Affine,
        in_offset: Affine = ZERO,
    ) -> Compute:
        """nmp_conv2d or nmp_percept on the tiles in MB0 and MB1; ``bias`` is the index of the
        tile's first bias in the bias buffer."""
        problem = self.problem
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: in_offset,
            MacRegister.IN_CHANNELS: channels,
            MacRegister.W_ADDRESS: w_offset,
            MacRegister.W_PITCH: w_pitch,
            MacRegister.BIAS_ADDRESS: bias,
        }
        if problem.is_dense:
            return Compute("nmp_percept", int(initialise), MAC_DONE, registers(values))
        values |= {
            MacRegister.IN_ROWS: self.in_extent(0, rows),
            MacRegister.IN_COLUMNS: self.in_extent(1, columns),
            MacRegister.KERNEL_ROWS: problem.kernel[0],
            MacRegister.KERNEL_COLUMNS: problem.kernel[1],
            MacRegister.STRIDE_ROWS: problem.stride[0],
            MacRegister.STRIDE_COLUMNS: problem.stride[1],
            MacRegister.DILATION_ROWS: problem.dilation[0],
            MacRegister.DILATION_COLUMNS: problem.dilation[1],
            MacRegister.GROUPS: groups,
        }
        return Compute("nmp_conv2d", int(initialise), MAC_DONE, registers(values))

    def add_residual(self, out: dict[MacRegister, Operand], in_offset: Affine = ZERO) -> Nodes:
        """Adds the residual tile that arrives at byte ``in_offset`` of MB0."""
        values = {
            **out,
            MacRegister.IN_ADDRESS: in_offset,
            MacRegister.SHIFT_A: self.layer.accumulator_shift,
            MacRegister.SHIFT_B: self.layer.residual_shift,
        }
        add = Compute("nmp_veop", int(VectorOp.ACCUMULATE), MAC_DONE, registers(values))
        return (wait(SECOND_ARRIVED), add, wait(MAC_DONE))

    def requantize(self, out: dict[MacRegister, Operand]) -> Nodes:
        layer = self.layer
        return activation(out, layer.shift, layer.low, layer.high, self.size)
