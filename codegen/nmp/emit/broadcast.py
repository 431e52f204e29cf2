"""Sums and products of a feature map and a number a channel: every core works for itself."""

from __future__ import annotations

from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.nmp.emit.commands import Compute, Nodes, Transfer, registers
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    SECOND_ARRIVED,
    STORE_DONE,
    stored,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Operand
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish, require_fit
from tvm_npu.codegen.nmp.emit.mac import out_tile, requantize
from tvm_npu.codegen.nmp.emit.table import load_table, table_place
from tvm_npu.codegen.nmp.emit.transfers import box_transfer, run_transfer
from tvm_npu.codegen.nmp.emit.windows import Box, over_tiles, require_tiles, window_parameters
from tvm_npu.codegen.nmp.plan.window import WindowPlan, WindowProblem, is_run
from tvm_npu.codegen.ops import FixedBroadcast
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import MacRegister, Memory, VectorOp
from tvm_npu.sim.streams import Stream

OPERATIONS = {"add": VectorOp.ADD, "sub": VectorOp.SUBTRACT, "mul": VectorOp.MULTIPLY}


def broadcast(
    layer: FixedBroadcast,
    shape: Shape,
    problem: WindowProblem,
    plan: WindowPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """Boxes of the feature map to MB0, their channels' numbers to MB1, the operation, the store."""
    size, tensor = problem.element_bytes, chw(shape)
    require_tiles(layer.name, problem, plan, machine)
    require_fit(layer.name, "the second operand", plan.tile_channels * size, machine, "mb1")
    parameters, part = window_parameters(problem, plan, machine)
    first, second = (
        parameters.address(f"operand_{index}", operands.inputs[index]) for index in (0, 1)
    )
    out_address = parameters.address("out_address", operands.output)
    place = table_place(layer.table, machine, size)

    def move(start: Box, box: Box) -> tuple[Transfer, Transfer]:
        """The load and the store of a tile."""
        if not is_run(problem, (plan.tile_channels, plan.tile_r, plan.tile_c)):
            return box_transfer(
                "nmp_load3d", Stream.IN, Memory.MB0, first, IN_ARRIVED, tensor, start, box, size, 0
            ), box_transfer(
                "nmp_store3d", Stream.OUT, Memory.MB2, out_address, STORE_DONE, tensor, start, box,
                size,
            )  # fmt: skip
        _, rows, columns = tensor
        row = columns * size
        begin = start[0] * (rows * row) + start[1] * row
        count = box[1] * row if plan.tile_channels == 1 else box[0] * (rows * row)
        return run_transfer(
            "nmp_load", Stream.IN, Memory.MB0, first + begin, IN_ARRIVED, count, size
        ), run_transfer(
            "nmp_store", Stream.OUT, Memory.MB2, out_address + begin, STORE_DONE, count, size
        )

    def tile(start: Box, box: Box) -> Nodes:
        out = out_tile(*box, size)
        values: dict[MacRegister, Operand] = {
            **out,
            MacRegister.IN_ADDRESS: 0,
            MacRegister.W_ADDRESS: 0,
            MacRegister.SHIFT_A: 0,
            MacRegister.SHIFT_B: 0,
        }
        load, store = move(start, box)
        return (
            load,
            run_transfer(
                "nmp_load", Stream.IN, Memory.MB1, second + start[0] * size, SECOND_ARRIVED,
                box[0] * size, size,
            ),
            wait(IN_ARRIVED),
            wait(SECOND_ARRIVED),
            *wait_store(),
            Compute("nmp_veopc", int(OPERATIONS[layer.op]), MAC_DONE, registers(values)),
            wait(MAC_DONE),
            *requantize(out, layer.shift, layer.low, layer.high, size, place=place),
            store,
            *stored(),
        )  # fmt: skip

    load = load_table(operands.table, parameters, machine, size)
    return finish(parameters, (*load, *over_tiles(part, problem, plan, tile)))
