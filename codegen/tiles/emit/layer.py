"""What the generators of layers share: operands in memory, the registers of work on tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvm_npu.codegen.graph import Requantized, Shape, chw
from tvm_npu.codegen.tiles.emit.boxes import Placed
from tvm_npu.codegen.tiles.emit.commands import Command
from tvm_npu.codegen.tiles.emit.interlock import Clocks, timed_steps
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands, estimated_cycles, ordered
from tvm_npu.sim.tiles.isa import TileMemory, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class Operands:
    """Where a layer's tensors and constants lie: byte offsets in ACTIVATIONS (``inputs``,
    ``output``, ``partial``: the area for partial sums) and in CONSTANTS (``weight``, ``bias``;
    ``parts``: both of each convolution of a chain)."""

    inputs: tuple[int, ...]
    output: int
    partial: int = 0
    weight: int = 0
    bias: int = 0
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class LayerSteps:
    """A layer's steps, to be put into the order that ``buffers`` places of each tile allow; those
    of ``first`` use the memories as they like and are done before."""

    steps: Iterable[StepCommands]
    buffers: int
    first: tuple[StepCommands, ...] = ()

    def commands(self) -> Iterator[Command]:
        yield from ordered(self.first, 1)
        yield from ordered(self.steps, self.buffers)

    def predicted_cycles(self, machine: TileMachine, element_bytes: int) -> float:
        """By clocks that go through the commands of a mover; what the channels of a DMA controller
        do is estimated step by step."""
        parts = ((self.first, 1), (self.steps, self.buffers))
        if machine.mover is None:
            return sum(
                estimated_cycles(steps, buffers, machine, element_bytes)
                for steps, buffers in parts
            )
        clocks = Clocks()
        for steps, buffers in parts:
            clocks = clocks.behind(timed_steps(steps, machine, element_bytes, buffers), buffers)
        return clocks.end


def feature_map(address: int, shape: Shape, stored_bytes: int) -> Placed:
    return Placed(TileMemory.ACTIVATIONS, address, chw(shape), stored_bytes)


def out_registers(offset: int, channels: int, rows: int, columns: int) -> dict[TileRegister, int]:
    return {
        TileRegister.OUT_OFFSET: offset,
        TileRegister.OUT_CHANNELS: channels,
        TileRegister.OUT_ROWS: rows,
        TileRegister.OUT_COLUMNS: columns,
    }


def requantize_registers(layer: Requantized) -> dict[TileRegister, int]:
    return {
        TileRegister.SHIFT: layer.shift,
        TileRegister.LOW: layer.low,
        TileRegister.HIGH: layer.high,
    }
