"""Pooling, padding and elementwise layers: every core loads, computes and stores for itself."""

from __future__ import annotations

from math import prod

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.nmp.emit.commands import Compute, Nodes, loop, registers
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
from tvm_npu.codegen.nmp.emit.transfers import box_transfer, run_transfer
from tvm_npu.codegen.nmp.plan.window import FlatPlan, FlatProblem, WindowPlan, WindowProblem
from tvm_npu.codegen.ops import FixedElementwise, FixedPad, FixedPool
from tvm_npu.codegen.plan.problem import share
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import MacRegister, Memory, PoolKind, VectorOp
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
        kind = PoolKind.AVERAGE
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
    size = problem.element_bytes
    in_tensor, out_tensor = chw(in_shape), chw(out_shape)
    if isinstance(layer, FixedPool):
        before, fill = (0, layer.padding[0], layer.padding[1]), pool_fill(layer, size)
    else:
        before, fill = layer.before, layer.value

    tile = (plan.tile_channels, plan.tile_r, plan.tile_c)
    in_elements = tile[0] * problem.in_tile_rows(tile[1]) * problem.in_tile_columns(tile[2])
    require_fit(layer.name, "the IN tile", in_elements * size, machine, "mb0")
    require_fit(layer.name, "the OUT tile", prod(tile) * size, machine, "mb2")
    busy = plan.row_slices * plan.channel_slices
    if busy > machine.core_count:
        raise EmitError(
            f"layer {layer.name!r}: the plan uses {busy} cores, the machine has "
            f"{machine.core_count}"
        )
    rows, channels = [], []
    for core in range(machine.core_count):
        row_slice, channel_slice = divmod(core, plan.channel_slices)
        rows.append(share(problem.rows, plan.row_slices, row_slice) if core < busy else (0, 0))
        part = share(problem.channels, plan.channel_slices, channel_slice)
        channels.append(part if core < busy else (0, 0))
    parameters = LayerParameters(
        [own_rows[1] * part[1] > 0 for own_rows, part in zip(rows, channels, strict=True)]
    )
    first_row = parameters.number("first_row", [begin for begin, _ in rows])
    row_count = parameters.number("rows", [count for _, count in rows])
    first_channel = parameters.number("first_channel", [begin for begin, _ in channels])
    channel_count = parameters.number("channels", [count for _, count in channels])
    in_address = parameters.address("in_address", operands.inputs[0])
    out_address = parameters.address("out_address", operands.output)

    def one_tile(
        start: tuple[Expression, Expression, Expression],
        box: tuple[Expression, Expression, Expression],
    ) -> Nodes:
        corner = (
            start[0] - before[0],
            start[1] * layer.stride[0] - before[1],
            start[2] * layer.stride[1] - before[2],
        )
        in_box = (
            box[0],
            (box[1] - 1) * layer.stride[0] + problem.kernel[0],
            (box[2] - 1) * layer.stride[1] + problem.kernel[1],
        )
        compute = pool_tile(
            layer, out_tile(*box, size), Expression(), in_box, corner[1:], in_tensor[1:], size
        )
        return (
            box_transfer(
                "nmp_load3d", Stream.IN, Memory.MB0, in_address, IN_ARRIVED, in_tensor, corner,
                in_box, size, fill,
            ),
            wait(IN_ARRIVED),
            *wait_store(),
            *compute,
            box_transfer(
                "nmp_store3d", Stream.OUT, Memory.MB2, out_address, STORE_DONE, out_tensor, start,
                box, size,
            ),
            *stored(),
        )  # fmt: skip

    nodes = loop(
        "channel", channel_count, tile[0],
        lambda c, tile_channels: loop(
            "row", row_count, tile[1],
            lambda r, tile_rows: loop(
                "column", problem.columns, tile[2],
                lambda q, tile_columns: one_tile(
                    (first_channel + c, first_row + r, q),
                    (tile_channels, tile_rows, tile_columns),
                ),
            ),
        ),
    )  # fmt: skip
    return finish(parameters, nodes)


def elementwise(
    layer: FixedElementwise,
    problem: FlatProblem,
    plan: FlatPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """Flat runs: A to MB0, B to MB1, the operation, the store."""
    size = problem.element_bytes
    tile_bytes = min(plan.tile_elements, problem.elements) * size
    for memory in ("mb0", "mb1", "mb2") if problem.operands > 1 else ("mb0", "mb2"):
        require_fit(layer.name, "the tile", tile_bytes, machine, memory)
    begins = [
        min(core * plan.core_elements, problem.elements) for core in range(machine.core_count)
    ]
    counts = [min(plan.core_elements, problem.elements - begin) for begin in begins]
    if sum(counts) != problem.elements:
        raise EmitError(
            f"layer {layer.name!r}: the plan covers {sum(counts)} of {problem.elements} elements"
        )
    parameters = LayerParameters([count > 0 for count in counts])
    own = parameters.number("elements", counts)

    def at(name: str, index: int | None) -> Expression:
        base = operands.output if index is None else operands.inputs[index]
        return parameters.address(name, [base.plus(begin * size) for begin in begins])

    addresses = [at(f"operand_{index}", index) for index in range(problem.operands)]
    out_address = at("out_address", None)
    op = {"add": VectorOp.ADD, "mul": VectorOp.MULTIPLY, "copy": VectorOp.COPY}[layer.op]
    shift_a, shift_b = (layer.shift_a, layer.shift_b) if layer.op == "add" else (0, 0)

    def step(begin: Expression, count: Expression) -> Nodes:
        out = out_tile(count, 1, 1, size)
        arrive = ((Memory.MB0, IN_ARRIVED), (Memory.MB1, SECOND_ARRIVED))[: problem.operands]
        loads = tuple(
            run_transfer(
                "nmp_load", Stream.IN, memory, address + begin * size, semaphore, count * size, size
            )
            for address, (memory, semaphore) in zip(addresses, arrive, strict=True)
        )
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: 0,
            MacRegister.W_ADDRESS: 0,
            MacRegister.SHIFT_A: shift_a,
            MacRegister.SHIFT_B: shift_b,
        }
        return (
            *loads,
            *(wait(semaphore) for _, semaphore in arrive),
            *wait_store(),
            Compute("nmp_veop", int(op), MAC_DONE, registers(values)),
            wait(MAC_DONE),
            *requantize(out, layer.shift, layer.low, layer.high, size),
            run_transfer(
                "nmp_store", Stream.OUT, Memory.MB2, out_address + begin * size, STORE_DONE,
                count * size, size,
            ),
            *stored(),
        )  # fmt: skip

    return finish(parameters, loop("element", own, plan.tile_elements, step))
