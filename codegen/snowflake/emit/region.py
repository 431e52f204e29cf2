"""A planned region to a program's code: steps of all layers, passes, code images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from tvm_npu.codegen.backend import PlannedGraph
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
from tvm_npu.codegen.snowflake.emit.beside import as_made, merged
from tvm_npu.codegen.snowflake.emit.clusters import (
    Lockstep,
    aligned,
    barriers,
    share_constants,
    share_loads,
)
from tvm_npu.codegen.snowflake.emit.layers import layer_steps
from tvm_npu.codegen.snowflake.emit.sequence import Sequencer
from tvm_npu.codegen.snowflake.emit.tables import Tables
from tvm_npu.codegen.snowflake.pace.layers import layer_cycles, way
from tvm_npu.codegen.snowflake.pace.paces import Paces
from tvm_npu.codegen.snowflake.plan.beside import runs_beside
from tvm_npu.codegen.snowflake.plan.tiling import Stays
from tvm_npu.codegen.snowflake.steps.objects import Kind, Rooms, Step
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

NO_PART: tuple[list[Step], Rooms, Stays] = ([], Rooms((0,), (0,), ((0, 0),)), "maps")
"""What a cluster has of a part of a layer that only others have."""


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
        paces, raw_cycles = Paces(machine), machine.control.raw_cycles
        compiler = BlockCompiler(raw_cycles, passes.code, paces)
        count = machine.clusters.count
        apart = planned.images == "apart"
        self._batch = count if apart else 1
        clusters = self._placed(passes.steps, 1 if apart else count)
        if apart:
            share_constants(clusters[0])
        else:
            share_loads(clusters)
        prefetched(clusters, passes.steps)
        waits = barriers(clusters)
        self._images, ways = [], []
        storage = planned.storage
        for cluster, steps in enumerate(clusters * self._batch):
            further = (
                {Segment.ACTIVATIONS: cluster * storage.size_bytes,
                 Segment.STATES: cluster * storage.state_bytes}
                if apart else {}
            )  # fmt: skip
            sequencer = Sequencer(machine, compiler, further)
            again = apart and cluster + 1 < count  # with images of their own all run the same steps
            sequencer.steps(steps if again else _taken(steps), waits)
            sequencer.end()
            self._images.append(pack(sequencer.blocks))
            ways.append(way(sequencer.blocks, self._images[-1].banks, raw_cycles))
        self._layer_cycles = layer_cycles(ways, paces, machine, len(planned.layers))

    def _placed(self, passes: StepPasses, count: int) -> Lockstep:
        """The steps of each of ``count`` clusters that share an image, in lockstep."""
        placers = [Placer(passes) for _ in range(count)]
        found: Lockstep = tuple([] for _ in range(count))
        begin = 0
        for index, one in enumerate(self._planned.layers):
            is_beside = runs_beside(one.plan)
            before: Lockstep = tuple(steps[begin:] if is_beside else [] for steps in found)
            mine = self._layer(index, placers, passes, before)
            if is_beside:
                both = merged(before, mine, begin, self._machine)
                if both is not None:
                    for steps, more in zip(found, both, strict=True):
                        steps[begin:] = more
                    continue
            begin = len(found[0])
            for steps, more in zip(found, mine, strict=True):
                steps += more
        return found

    def _layer(
        self, index: int, placers: Sequence[Placer], passes: StepPasses, before: Lockstep
    ) -> Lockstep:
        """Of a layer between whose steps it runs, ``before`` are the steps."""
        found: Lockstep = tuple([] for _ in placers)
        made = layer_steps(
            index, self._planned.layers[index], self._planned, self._machine, self._constants,
            self._tables, len(placers),
        )  # fmt: skip
        for part in zip_longest(*(layer.parts for layer in made), fillvalue=NO_PART):
            ordered = as_made(before, [steps for steps, _, _ in part])
            for cluster, ((_, rooms, stays), steps) in enumerate(zip(part, ordered, strict=True)):
                if passes.group:
                    steps = grouped(steps, Kind(stays))
                found[cluster].extend(placers[cluster].layer(steps, rooms))
            aligned(found, index)
        for placer in placers[1:]:
            placer.follow(placers[0])
        return found

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
        self._constants.pad()
        return Code(
            words=words,
            layers=tuple(zip(*ranges, strict=True)) if self._planned.layers else (),
            constants=self._constants.data,
            activation_bytes=self._batch * self._planned.storage.size_bytes,
            debug=debug,
            relocations=np.array(relocations, RELOCATION),
            images=tuple(images),
            tables=tuple(self._tables.entries),
            alignment_bytes=1 << ADDRESS_UNIT_BITS,
            batch=self._batch,
            layer_cycles=self._layer_cycles,
        )

    def _layers(self) -> Iterator[int]:
        return iter(range(len(self._planned.layers)))


def _taken(steps: list[PlacedStep]) -> Iterator[PlacedStep]:
    """In their order; each goes once it is code, which takes as much."""
    steps.reverse()
    while steps:
        yield steps.pop()


def _range(image: Packed, layer: int, begin: int) -> CodeRange:
    """From the first to the last instruction of a layer."""
    found = np.flatnonzero(image.layers == layer)
    if not len(found):
        return CodeRange(WORD_BYTES * begin, WORD_BYTES * begin)
    first, last = begin + int(found[0]), begin + int(found[-1]) + 1
    return CodeRange(WORD_BYTES * first, WORD_BYTES * last)
