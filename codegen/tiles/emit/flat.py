"""Elementwise layers: operations on flat runs as commands."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.ops import FixedElementwise
from tvm_npu.codegen.tiles.emit.boxes import parts
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.layer import Operands, out_registers, requantize_registers
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands
from tvm_npu.codegen.tiles.plan.flat import FlatShape, FlatTiles
from tvm_npu.codegen.tiles.plan.sizes import sizes
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TileMemory, TileRegister, TileVector
from tvm_npu.sim.tiles.machine import TileMachine

OPERATIONS = {"copy": TileVector.COPY, "add": TileVector.ADD, "mul": TileVector.MULTIPLY}


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
            Transfer(True, memory, at, flat_run(address, begin, count, size), Stream.IN)
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
        runs = flat_run(operands.output, begin, count, size)
        store = Transfer(False, TileMemory.OUTPUT, out_at, runs, Stream.OUT)
        yield StepCommands(loads, (work,), (store,))


def flat_run(address: int, begin: int, count: int, size: int) -> Runs:
    """``count`` elements of a tensor at ``address``, from element ``begin`` on."""
    return Runs(TileMemory.ACTIVATIONS, address + begin * size, count * size)
