"""Elementwise layers: flat runs of the tensors, as long as the memories hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.ops import FixedElementwise
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.emit.boxes import even, largest, parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import (
    Operands,
    Sizes,
    out_registers,
    requantize_registers,
    sizes,
)
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TileRegister, TileVector
from tvm_npu.sim.tiles.machine import TileMachine

OPERATIONS = {"copy": TileVector.COPY, "add": TileVector.ADD, "mul": TileVector.MULTIPLY}


@dataclass(frozen=True)
class FlatShape:
    """``operands`` (1 or 2) tensors of ``elements`` each, and a result of as many."""

    elements: int
    operands: int
    element_bytes: int


@dataclass(frozen=True)
class FlatTiles:
    tile_elements: int
    buffers: int


def flat_tiles(shape: FlatShape, machine: TileMachine) -> FlatTiles | Infeasible:
    """All at once where that fits, else two buffers with even parts."""
    if _fit(shape, shape.elements, sizes(machine, 1)):
        return FlatTiles(shape.elements, 1)
    room = sizes(machine, 2)
    most = largest(shape.elements, lambda n: _fit(shape, n, room))
    if most == 0:
        return Infeasible(
            "memory", shape.element_bytes, room.first, "one element of each operand",
            "use a machine with a larger memory",
        )  # fmt: skip
    return FlatTiles(even(shape.elements, most), 2)


def _fit(shape: FlatShape, elements: int, room: Sizes) -> bool:
    size = elements * shape.element_bytes
    return room.fits(size, size if shape.operands > 1 else 0, size)


def flat_steps(
    layer: FixedElementwise,
    shape: FlatShape,
    tiles: FlatTiles,
    machine: TileMachine,
    operands: Operands,
) -> Iterator[StepCommands]:
    """tvec over all runs."""
    room = sizes(machine, tiles.buffers)
    size = shape.element_bytes
    most = tiles.tile_elements * size
    second = most if shape.operands > 1 else 0
    for turn, (begin, count) in enumerate(parts((0, shape.elements), tiles.tile_elements)):
        in_at, second_at, out_at = room.offsets(turn % tiles.buffers, most, second)
        chip = ((TileMemory.INPUT, in_at), (TileMemory.WEIGHT, second_at))[: shape.operands]
        loads = tuple(
            Transfer(True, memory, at, _run(address, begin, count, size), Stream.IN)
            for (memory, at), address in zip(chip, operands.inputs, strict=True)
        )
        registers = {
            TileRegister.IN_OFFSET: in_at,
            **out_registers(out_at, count, 1, 1),
            **requantize_registers(layer),
            TileRegister.SHIFT_A: layer.shift_a if layer.op == "add" else 0,
        }
        if shape.operands > 1:
            registers[TileRegister.W_OFFSET] = second_at
            registers[TileRegister.SHIFT_B] = layer.shift_b if layer.op == "add" else 0
        result = ChipRange(TileMemory.OUTPUT, out_at, count * size)
        reads = tuple(one.on_chip for one in loads)
        work = Work("tvec", OPERATIONS[layer.op], registers, reads, result, count)
        runs = _run(operands.output, begin, count, size)
        store = Transfer(False, TileMemory.OUTPUT, out_at, runs, Stream.OUT)
        yield StepCommands(loads, (work,), (store,))


def _run(address: int, begin: int, count: int, size: int) -> Runs:
    return Runs(TileMemory.ACTIVATIONS, address + begin * size, count * size)
