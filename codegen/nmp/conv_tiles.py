"""What both modes of a convolution share: who works on what, and the steps of one tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed import FixedConv
from tvm_npu.codegen.nmp.commands import (
    Affine,
    Compute,
    Nodes,
    Operand,
    Transfer,
    loop,
    registers,
)
from tvm_npu.codegen.nmp.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    SECOND_ARRIVED,
    STORE_DONE,
    W_ARRIVED,
    activation,
    box_transfer,
    run_transfer,
    segments_transfer,
    wait,
)
from tvm_npu.codegen.nmp.layer import Operands, require_fit
from tvm_npu.codegen.nmp.parameters import LayerParameters
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, share, slice_of
from tvm_npu.sim.isa.xnmp import Initialise, MacRegister, Memory, VectorOp
from tvm_npu.sim.machine import Machine
from tvm_npu.sim.streams import Stream

BIAS_BYTES = 4


@dataclass(frozen=True)
class CoreShare:
    """What one core works on. ``items`` are filters of a group (multicast) or groups (grouped);
    ``most_items`` is the largest count among the TLTs of the TLE."""

    first_row: int
    rows: int
    first_item: int
    items: int
    most_items: int


def core_shares(plan: ConvPlan, rows: int, items: int, machine: Machine) -> list[CoreShare]:
    """Rows and items of every core; TLEs that the plan does not use get nothing."""
    tlts = machine.cores.tlts_per_tle
    result = []
    for core in range(machine.core_count):
        tle, tlt = divmod(core, tlts)
        row_slice, item_slice = divmod(tle, plan.filter_slices)
        first_row, row_count = slice_of(rows, plan.row_slices, min(row_slice, plan.row_slices))
        begin, count = slice_of(items, plan.filter_slices, item_slice)
        if row_slice >= plan.row_slices or row_count == 0 or count == 0:
            result.append(CoreShare(0, 0, 0, 0, 0))
            continue
        first, own = share(count, tlts, tlt)
        most = share(count, tlts, 0)[1]
        result.append(CoreShare(first_row, row_count, begin + first, own, most))
    return result


class ConvolutionTiles:
    """What both modes share: sizes, the tile's registers, the end of an OUT tile."""

    def __init__(
        self,
        layer: FixedConv,
        problem: ConvProblem,
        plan: ConvPlan,
        machine: Machine,
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
        self.flat_out = problem.rows * problem.columns == 1
        items = problem.groups if plan.mode == "grouped" else self.filters
        self.shares = core_shares(plan, problem.rows, items, machine)
        grouped = plan.mode == "grouped"
        self.parameters = LayerParameters(
            [(one.items if grouped else one.most_items) > 0 for one in self.shares]
        )
        if operands.weight is None or operands.bias is None:
            raise EmitError(f"layer {layer.name!r}: no weights")
        number, address = self.parameters.number, self.parameters.address
        self.first_row = number("first_row", [one.first_row for one in self.shares])
        self.rows = number("rows", [one.rows for one in self.shares])
        self.first_item = number("first_item", [one.first_item for one in self.shares])
        self.items = number("items", [one.items for one in self.shares])
        self.most_items = self.items
        if not grouped and any(one.items != one.most_items for one in self.shares):
            self.most_items = number("most_items", [one.most_items for one in self.shares])
        item_filters = self.filters if plan.mode == "grouped" else 1
        self.in_address = address("in_address", operands.inputs[0])
        weight, bias = operands.weight, operands.bias
        self.w_address = address(
            "w_address",
            [weight.plus(s.first_item * item_filters * self.filter_bytes) for s in self.shares],
        )
        self.bias_address = address(
            "bias_address",
            [bias.plus(s.first_item * item_filters * BIAS_BYTES) for s in self.shares],
        )
        self.out_address = address("out_address", operands.output)
        self.residual_address = None
        if problem.has_residual:
            self.residual_address = address("residual_address", operands.inputs[1])
        self._require_fit(item_filters)

    def _require_fit(self, item_filters: int) -> None:
        problem, plan, name = self.problem, self.plan, self.layer.name
        most = max((one.most_items for one in self.shares), default=0) * item_filters
        tile_m = most if plan.schedule == "IS" else min(plan.tile_m, most)
        groups = -(-tile_m // self.filters) if plan.mode == "grouped" else 1
        in_rows = problem.in_tile_rows(min(plan.tile_r, problem.rows))
        in_columns = problem.in_tile_columns(min(plan.tile_c, problem.columns))
        in_bytes = groups * plan.tile_n * in_rows * in_columns * self.size
        depth = self.channels if plan.schedule == "WS" else plan.tile_n
        out_elements = tile_m * min(plan.tile_r, problem.rows) * min(plan.tile_c, problem.columns)
        require_fit(name, "the IN tile", in_bytes, self.machine, "mb0")
        require_fit(name, "the W tile", tile_m * depth * self.taps * self.size, self.machine, "mb1")
        require_fit(name, "the OUT tile", out_elements * self.size, self.machine, "mb2")
        require_fit(name, "the biases of one TLT", most * BIAS_BYTES, self.machine, "bias")
        if problem.has_residual:
            require_fit(name, "the residual tile", out_elements * self.size, self.machine, "mb0")

    def over_places(self, body: Callable[[Affine, Affine, Affine, Affine], Nodes]) -> Nodes:
        """Row and column tiles; ``body`` gets (row, rows, column, columns) of the OFM."""
        plan = self.plan
        return loop(
            "row", self.rows, plan.tile_r,
            lambda r, rows: loop(
                "column", self.problem.columns, plan.tile_c,
                lambda c, columns: body(self.first_row + r, rows, c, columns),
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
    ) -> Transfer:
        """The IN tile under OUT rows and columns; ``mnemonic`` nmp_load or nmp_mload."""
        problem = self.problem
        if self.flat_in:
            return run_transfer(
                mnemonic, Stream.IN, Memory.MB0, self.in_address + channel * self.size,
                IN_ARRIVED, channels * self.size, self.size,
            )  # fmt: skip
        return box_transfer(
            f"{mnemonic}3d", Stream.IN, Memory.MB0, self.in_address, IN_ARRIVED,
            (problem.channels, problem.in_rows, problem.in_columns),
            (channel, self.in_start(0, row), self.in_start(1, column)),
            (channels, self.in_extent(0, rows), self.in_extent(1, columns)),
            self.size, fill=0,
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
                filters * self.size, self.size,
            )  # fmt: skip
        return box_transfer(
            f"{mnemonic}3d", stream, memory, address, semaphore,
            (problem.filters, problem.rows, problem.columns),
            (filter_, row, column), (filters, rows, columns), self.size,
            fill=0 if load else None,
        )  # fmt: skip

    def load_biases(self, address: Affine, filters: Affine) -> Nodes:
        transfer = run_transfer(
            "nmp_load", Stream.BIAS, Memory.BIAS, address, SECOND_ARRIVED,
            filters * BIAS_BYTES, self.size,
        )  # fmt: skip
        return (transfer, wait(SECOND_ARRIVED))

    def load_weights(self, address: Affine, filters: Affine, channels: Affine) -> Transfer:
        """The W tile: one segment a filter, or one in all when it has all channels."""
        segments: tuple[Operand, Operand, Operand]
        if channels == Affine.of(self.channels):
            segments = (1, filters * self.filter_bytes, 0)
        else:
            segments = (filters, channels * (self.taps * self.size), self.filter_bytes)
        return segments_transfer(
            "nmp_load", Stream.WEIGHT, Memory.MB1, address, W_ARRIVED, segments, self.size
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
    ) -> Compute:
        """nmp_conv2d or nmp_percept on the tiles in MB0 and MB1; ``bias`` is the index of the
        tile's first bias in the bias buffer."""
        problem = self.problem
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: 0,
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

    def add_residual(self, out: dict[MacRegister, Operand], load: Transfer) -> Nodes:
        values = {
            **out,
            MacRegister.IN_ADDRESS: 0,
            MacRegister.SHIFT_A: self.layer.accumulator_shift,
            MacRegister.SHIFT_B: self.layer.residual_shift,
        }
        add = Compute("nmp_veop", int(VectorOp.ACCUMULATE), MAC_DONE, registers(values))
        return (load, wait(SECOND_ARRIVED), add, wait(MAC_DONE))

    def requantize(self, out: dict[MacRegister, Operand]) -> Nodes:
        layer = self.layer
        return activation(out, layer.shift, layer.low, layer.high, self.size)
