"""Layers on runs of elements: every core loads, computes and stores one for itself."""

from __future__ import annotations

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed_point import element_limits
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
from tvm_npu.codegen.nmp.emit.mac import out_tile, requantize
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters, Location
from tvm_npu.codegen.nmp.emit.table import (
    FinishPlace,
    finish_place,
    load_table,
    table_place,
)
from tvm_npu.codegen.nmp.emit.transfers import run_transfer
from tvm_npu.codegen.nmp.plan.window import FlatLayer, FlatPlan, FlatProblem
from tvm_npu.codegen.ops import FixedMaxFeatureMap, FixedMaximum, FixedTable
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import MacRegister, Memory, VectorOp
from tvm_npu.sim.streams import Stream


def elementwise(
    layer: FlatLayer,
    problem: FlatProblem,
    plan: FlatPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """Flat runs: A to MB0, B to MB1, the operation, the store."""
    size, out_size = problem.element_bytes, problem.out_bytes or problem.element_bytes
    tile_bytes = min(plan.tile_elements, problem.elements) * problem.most_bytes
    for memory in ("mb0", "mb1", "mb2") if problem.operands > 1 else ("mb0", "mb2"):
        require_fit(layer.name, "the tile", tile_bytes, machine, memory)
    begins, counts = _shares(layer.name, problem, plan, machine.core_count)
    parameters = LayerParameters([count > 0 for count in counts])
    own = parameters.number("elements", counts)

    sources = _sources(layer, problem, operands)

    def at(name: str, base: Location, each: int) -> Expression:
        return parameters.address(name, [base.plus(begin * each) for begin in begins])

    addresses = [
        at(f"operand_{index}", sources[index], size) for index in range(problem.operands)
    ]
    out_address = at("out_address", operands.output, out_size)
    op, operation = _operation(layer)
    shift, low, high = _requantization(layer, out_size)
    place = _place(layer, machine, size)

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
            **operation,
        }
        return (
            *loads,
            *(wait(semaphore) for _, semaphore in arrive),
            *wait_store(),
            Compute("nmp_veop", int(op), MAC_DONE, registers(values)),
            wait(MAC_DONE),
            *requantize(out, shift, low, high, out_size, place=place),
            run_transfer(
                "nmp_store", Stream.OUT, Memory.MB2, out_address + begin * out_size, STORE_DONE,
                count * out_size, out_size,
            ),
            *stored(),
        )  # fmt: skip

    load = load_table(operands.table, parameters, machine, size)
    return finish(parameters, (*load, *loop("element", own, plan.tile_elements, step)))


def _sources(layer: FlatLayer, problem: FlatProblem, operands: Operands) -> list[Location]:
    """Of all operands; those of a max feature map are the halves of its input."""
    if isinstance(layer, FixedMaxFeatureMap):
        (whole,) = operands.inputs
        return [whole, whole.plus(problem.elements * problem.element_bytes)]
    return list(operands.inputs)


def _place(layer: FlatLayer, machine: NmpMachine, element_bytes: int) -> FinishPlace | None:
    """Where its table, slopes or scale words lie; None for a layer that has none of them."""
    if isinstance(layer, FixedTable):
        return table_place(layer.table, machine, element_bytes)
    return finish_place(layer, machine, element_bytes)


def _operation(layer: FlatLayer) -> tuple[VectorOp, dict[MacRegister, Operand]]:
    """What nmp_veop does, and by how much it shifts its operands or multiplies them."""
    plain: dict[MacRegister, Operand] = {MacRegister.SHIFT_A: 0, MacRegister.SHIFT_B: 0}
    if isinstance(layer, FixedTable):
        return VectorOp.COPY, plain
    if isinstance(layer, FixedMaximum | FixedMaxFeatureMap):
        return VectorOp.MAXIMUM, plain
    if layer.weights is not None:
        return VectorOp.WEIGH if layer.op == "add" else VectorOp.WEIGH_ONE, {
            MacRegister.SHIFT_A: layer.weights.factor_a,
            MacRegister.SHIFT_B: layer.weights.factor_b,
            MacRegister.FACTOR: layer.weights.constant,
        }
    if layer.op == "add":
        return VectorOp.ADD, {
            MacRegister.SHIFT_A: layer.shift_a, MacRegister.SHIFT_B: layer.shift_b
        }
    return VectorOp.MULTIPLY if layer.op == "mul" else VectorOp.COPY, plain


def _requantization(layer: FlatLayer, element_bytes: int) -> tuple[int, int, int]:
    """Shift and bounds; a table alone takes elements as they are."""
    if isinstance(layer, FixedTable):
        return (0, *element_limits(element_bytes))
    return layer.shift, layer.low, layer.high


def _shares(
    name: str, problem: FlatProblem, plan: FlatPlan, core_count: int
) -> tuple[list[int], list[int]]:
    """The first element of every core, and how many it has."""
    begins = [min(core * plan.core_elements, problem.elements) for core in range(core_count)]
    counts = [min(plan.core_elements, problem.elements - begin) for begin in begins]
    if sum(counts) != problem.elements:
        raise EmitError(
            f"layer {name!r}: the plan covers {sum(counts)} of {problem.elements} elements"
        )
    return begins, counts
