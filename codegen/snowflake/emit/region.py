"""A planned region to a program's code: steps of all layers, passes, code images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES
from tvm_npu.codegen.program.code import Code
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.parts import (
    DEBUG,
    RELOCATION,
    SEGMENTS,
    WORD_BYTES,
    CodeRange,
    Segment,
)
from tvm_npu.codegen.snowflake.code.banks import Packed, pack
from tvm_npu.codegen.snowflake.code.block import BlockCompiler, CodePasses
from tvm_npu.codegen.snowflake.code.nodes import ADDRESS_UNIT_BITS
from tvm_npu.codegen.snowflake.emit.layers import layer_steps
from tvm_npu.codegen.snowflake.emit.place import LayerSteps
from tvm_npu.codegen.snowflake.emit.sequence import Sequencer
from tvm_npu.codegen.snowflake.emit.tables import Tables
from tvm_npu.codegen.snowflake.steps.objects import Kind
from tvm_npu.codegen.snowflake.steps.passes import (
    PlacedStep,
    Placer,
    StepPasses,
    grouped,
    prefetched,
)
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.snowflake.isa import SNOWFLAKE_ISA
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class Passes:
    """Everything that can be left out."""

    steps: StepPasses = StepPasses()
    code: CodePasses = CodePasses()


class SnowflakeRegion:
    """A region (`backend.Emitted`)."""

    def __init__(
        self, planned: PlannedGraph, machine: SnowflakeMachine, passes: Passes = Passes()
    ) -> None:
        self._planned, self._machine = planned, machine
        self._constants = Constants()
        self._tables = Tables(self._constants)
        compiler = BlockCompiler(machine.control.raw_cycles, passes.code)
        clusters = range(machine.clusters.count)
        layers = [
            layer_steps(index, one, planned, machine, self._constants, self._tables)
            for index, one in enumerate(planned.layers)
        ]
        self._images = [
            self._image(compiler, passes, [layer[cluster] for layer in layers])
            for cluster in clusters
        ]

    def _image(
        self, compiler: BlockCompiler, passes: Passes, layers: list[LayerSteps]
    ) -> Packed:
        placer, placed = Placer(passes.steps), list[PlacedStep]()
        for layer in layers:
            for steps, rooms, stays in layer.parts:
                if passes.steps.group:
                    steps = grouped(steps, Kind(stays))
                placed += placer.layer(steps, rooms)
        sequencer = Sequencer(self._machine, compiler)
        sequencer.steps(prefetched(placed, passes.steps))
        sequencer.end()
        return pack(sequencer.blocks)

    def text(self, layer: int) -> str:
        lines = []
        for number, image in enumerate(self._images):
            if len(self._images) > 1:
                lines.append(f"  cluster {number}:\n")
            mine = image.words[image.layers == layer]
            lines += [f"  {disassemble(word, SNOWFLAKE_ISA)}\n" for word in mine]
        return "".join(lines)

    def assemble(self) -> Code:
        words = np.concatenate([image.words for image in self._images])
        debug = np.zeros(len(words), DEBUG)
        debug["layer"] = np.concatenate([image.layers for image in self._images])
        debug["stream"] = np.concatenate([image.streams for image in self._images])
        images, ranges, relocations = [], [], []
        position = 0
        for image in self._images:
            end = position + len(image.words)
            images.append(CodeRange(WORD_BYTES * position, WORD_BYTES * end))
            ranges.append([_range(image, layer, position) for layer in self._layers()])
            relocations += [
                (SEGMENTS.index(Segment.CODE), WORD_BYTES * (position + at), SEGMENTS.index(target))
                for at, target in image.relocations
            ]
            position = end
        constants = bytes(self._constants.data)
        return Code(
            words=words,
            layers=tuple(zip(*ranges, strict=True)) if self._planned.layers else (),
            constants=constants + bytes(-len(constants) % ALIGNMENT_BYTES),
            activation_bytes=self._planned.storage.size_bytes,
            debug=debug,
            relocations=np.array(relocations, RELOCATION),
            images=tuple(images),
            tables=tuple(self._tables.entries),
            alignment_bytes=1 << ADDRESS_UNIT_BITS,
        )

    def _layers(self) -> Iterator[int]:
        return iter(range(len(self._planned.layers)))


def _range(image: Packed, layer: int, begin: int) -> CodeRange:
    """From the first to the last instruction of a layer."""
    found = np.flatnonzero(image.layers == layer)
    if not len(found):
        return CodeRange(WORD_BYTES * begin, WORD_BYTES * begin)
    first, last = begin + int(found[0]), begin + int(found[-1]) + 1
    return CodeRange(WORD_BYTES * first, WORD_BYTES * last)
