"""A planned region -> code of a tile machine: places of operands, commands, instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedLayer
from tvm_npu.codegen.ops import FixedBlock, FixedConv, FixedRun
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES, Storage
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.program.code import Code
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.format import WORD_BYTES
from tvm_npu.codegen.program.parts import CodeRange
from tvm_npu.codegen.tiles.emit import length
from tvm_npu.codegen.tiles.emit.chains import convolutions_of
from tvm_npu.codegen.tiles.emit.commands import Command, listing
from tvm_npu.codegen.tiles.emit.emitter import Code as InstructionCode
from tvm_npu.codegen.tiles.emit.emitters import emitter_for
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.emit.layers import LayerCommands, layer_commands
from tvm_npu.codegen.tiles.emit.seams import Seams
from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.tiles.machine import TileMachine

STORED_TYPE: dict[int, np.dtype[Any]] = {1: np.dtype("<i1"), 2: np.dtype("<i2"), 4: np.dtype("<i4")}
BIAS_TYPE: np.dtype[Any] = np.dtype("<i4")


@dataclass(frozen=True)
class TileRegion:
    """A region at the command level (`backend.Emitted`)."""

    machine: TileMachine
    names: tuple[str, ...]
    layers: tuple[LayerCommands, ...]
    operands: tuple[Operands, ...]
    constants: Constants
    activation_bytes: int
    """Tensors and, behind them, the area for partial sums."""

    def commands(self, index: int) -> Iterable[Command]:
        return self.layers[index].commands(self.operands[index])

    def text(self, layer: int) -> str:
        return listing(self.commands(layer), "  ")

    def assemble(self) -> Code:
        """CapacityError for a program that is too long: before any of it is made, where the plans
        say so."""
        emitter = emitter_for(self.machine, self.constants)
        ranges: list[tuple[CodeRange, ...]] = []
        seams = Seams(self.machine)
        for index in range(len(self.layers)):
            emitter.code.layer = index
            begin = emitter.code.position
            emitter.emit(self._bounded(ranges, emitter.code, seams.watched(self.commands(index))))
            ranges.append((CodeRange(begin, emitter.code.position),))
        emitter.finish()
        self.constants.pad()
        return Code(
            words=emitter.code.words(),
            layers=tuple(ranges),
            constants=self.constants.data,
            activation_bytes=self.activation_bytes,
            debug=emitter.code.debug(),
            start_cycles=seams.start_cycles(),
        )

    def _bounded(
        self,
        before: Sequence[tuple[CodeRange, ...]],
        code: InstructionCode,
        commands: Iterable[Command],
    ) -> Iterator[Command]:
        """``commands`` of the layer behind those ``before``; CapacityError where the code becomes
        too long."""
        ends = [0, *(parts[-1].end for parts in before)]
        done = [(end - begin) // WORD_BYTES for begin, end in pairwise(ends)]
        self._check_length(done)
        later = sum(one.fewest_instructions for one in self.layers[len(before) + 1 :])
        most = length.MOST_CODE_BYTES - max(0, later - length.LONGEST_COMMAND) * WORD_BYTES
        for command in commands:
            if code.position > most:
                self._check_length([*done, (code.position - ends[-1]) // WORD_BYTES])
            yield command

    def _check_length(self, emitted: Sequence[int]) -> None:
        fewest = [one.fewest_instructions for one in self.layers]
        length.check_length(emitted, self.names, fewest, self.machine)


def emit(planned: PlannedGraph, machine: TileMachine) -> TileRegion:
    """The region's layers as their plans say. EmitError for plans that the machine cannot run."""
    numbers = element_limits(planned.fixed.element_bytes)

    def commands(one: PlannedLayer) -> LayerCommands:
        return layer_commands(one, machine, numbers, planned.planner)

    return with_commands(planned, machine, commands)


def with_commands(
    planned: PlannedGraph, machine: TileMachine, commands: Callable[[PlannedLayer], LayerCommands]
) -> TileRegion:
    """The region's layers as ``commands`` says, and the places of their operands."""
    storage, constants = planned.storage, Constants()
    layers = tuple(commands(one) for one in planned.layers)
    partial = max((one.partial_bytes for one in layers), default=0)
    stored_bytes = machine.element_bytes(planned.precision)
    operands = tuple(
        _operands(one.layer, storage, constants, stored_bytes) for one in planned.layers
    )
    activation_bytes = storage.size_bytes + aligned(partial, ALIGNMENT_BYTES)
    names = tuple(one.layer.name for one in planned.layers)
    return TileRegion(machine, names, layers, operands, constants, activation_bytes)


def _operands(
    layer: FixedLayer, storage: Storage, constants: Constants, stored_bytes: int
) -> Operands:
    inputs = tuple(storage.offsets[tensor] for tensor in layer.inputs)
    output, partial = storage.offsets[layer.output], storage.size_bytes
    if isinstance(layer, FixedConv):
        return Operands(inputs, output, partial, *_constants(layer, constants, stored_bytes))
    if isinstance(layer, FixedBlock | FixedRun):
        blocks = (layer,) if isinstance(layer, FixedBlock) else layer.blocks
        parts = tuple(
            _constants(one, constants, stored_bytes)
            for block in blocks
            for one in convolutions_of(block)
        )
        return Operands(inputs, output, partial, parts=parts)
    return Operands(inputs, output, partial)


def _constants(layer: FixedConv, constants: Constants, stored_bytes: int) -> tuple[int, int]:
    """Where weights and biases are put."""
    name = f"layer {layer.name!r}"
    weight = constants.add(layer.weight, STORED_TYPE[stored_bytes], f"{name}, weights")
    return weight, constants.add(layer.bias, BIAS_TYPE, f"{name}, biases")
