"""Chains as steps of commands, alone or in a run: see `plan.chain` and `plan.run` for what they
do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConv
from tvm_npu.codegen.plan.loops.axes import shared_rows
from tvm_npu.codegen.plan.loops.plan import Range
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import Held, Slide, Tile
from tvm_npu.codegen.tiles.emit.boxes import Placed
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.convolution import stated_taps
from tvm_npu.codegen.tiles.emit.copies import copied, slid
from tvm_npu.codegen.tiles.emit.layer import Operands, out_registers, requantize_registers
from tvm_npu.codegen.tiles.emit.pipeline import StepCommands, TileStep
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlaces,
    ChainProblem,
    ChainStep,
    ChainTiles,
    Strip,
    chain_steps,
)
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import Accumulate, TileMemory, TileRegister
from tvm_npu.sim.tiles.isa import Finish as FinishKind
from tvm_npu.sim.tiles.machine import TileMachine


def convolutions_of(layer: FixedBlock) -> tuple[FixedConv, ...]:
    """In the order in which they run; a block's window is a depthwise convolution here."""
    head = layer.head
    if isinstance(head, FixedCascade):
        assert isinstance(head.window, FixedConv)
        return head.conv, head.window, layer.point
    return head, layer.point


@dataclass(frozen=True)
class _Source:
    """Where a convolution's input tile lies: its memory, its offset, rows that it has."""

    memory: TileMemory
    offset: int
    rows: int
    padding: int


Requantizing = tuple[Mapping[TileRegister, int], ...]
"""What the requantize step of each convolution of a chain is told."""


def requantizing(layer: FixedBlock) -> Requantizing:
    found = []
    for conv in convolutions_of(layer):
        registers = requantize_registers(conv)
        if len(conv.inputs) > 1:
            registers[TileRegister.SHIFT_A] = conv.accumulator_shift
            registers[TileRegister.SHIFT_B] = conv.residual_shift
        found.append(registers)
    return tuple(found)


@dataclass(frozen=True)
class ChainCommands:
    """One chain's steps. ``operands`` have the `parts` of its convolutions."""

    requantizing: Requantizing
    tiles: ChainTiles
    places: ChainPlaces
    machine: TileMachine
    operands: Operands

    @property
    def problem(self) -> ChainProblem:
        return self.tiles.problem

    def steps(self) -> Iterator[StepCommands]:
        for step in chain_steps(self.tiles):
            stores = (self._out(step),) if step.last and not self.tiles.kept else ()
            loads = [*self._input(step), *self._loads(step)]
            work = list(self._work(step))
            if step.last and self.tiles.loads_residual:
                # The chain before still works with an IN tile where this one's residual comes.
                late = self.tiles.held and step.first
                (work if late else loads).insert(0 if late else len(loads), self._residual(step))
            yield TileStep(tuple(loads), tuple(work), stores)

    # Transfers

    def _input(self, step: ChainStep) -> Iterator[Command]:
        """The IN tile of a strip, of a round under a depthwise head; rows that the strip before
        has, too, from there."""
        problem, head = self.problem, self.problem.head
        if self.tiles.held or not (problem.is_depthwise or step.first):
            return
        before = self.tiles.strips[step.strip_number - 1] if step.strip_number else None
        kept = 0
        if before is not None and self.tiles.keeps_rows:
            kept = shared_rows(before.inputs[:2], step.strip.inputs[:2])
        if before is not None and kept:
            places = self.places.inputs
            turn = (step.strip_number - 1) % len(places)
            slide = Slide(
                self._in_tile(step.strip, self._in_offset(step)),
                self._in_tile(before, places[turn]),
            )
            yield from slid(head, self.operands.inputs[0], slide)
        else:
            channels = step.channels if problem.is_depthwise else (0, head.channels)
            shape = (head.channels, head.in_rows, head.in_columns)
            source = self._map(self.operands.inputs[0], shape)
            runs = source.box(channels, step.strip.inputs[:2], (0, head.in_columns))
            yield self._load(TileMemory.INPUT, self._in_offset(step), runs, Stream.IN)

    def _in_tile(self, strip: Strip, offset: int) -> Held:
        head = self.problem.head
        columns = (0, head.in_columns)
        return Held(Tile("INPUT", (0, head.channels), strip.inputs[:2], columns), offset)

    def _loads(self, step: ChainStep) -> Iterator[Transfer]:
        problem = self.problem
        if step.number == 0 or not self.tiles.weights_stay:
            yield from self._weights(step)
        if step.number == 0:
            for number, one in enumerate(problem.convolutions):
                address, size = self.operands.parts[number][1], one.filters * BIAS_BYTES
                runs = Runs(TileMemory.CONSTANTS, address, size)
                yield self._load(TileMemory.BIAS, self._bias_offset(number), runs, Stream.BIAS)

    def _residual(self, step: ChainStep) -> Transfer:
        runs = self._ofm(self.operands.inputs[-1]).box(*self._out_box(step))
        return self._load(TileMemory.INPUT, self._residual_offset(step), runs, Stream.RESIDUAL)

    def _weights(self, step: ChainStep) -> Iterator[Transfer]:
        """A round's filters of the head and of what is behind it; its channels of the last."""
        offsets = self.places.weights[step.number % len(self.places.weights)]
        *front, point = self.problem.convolutions
        for number, one in enumerate(front):
            depth = one.channels // one.groups * prod(one.kernel)
            box = (step.channels, (0, 1), (0, depth))
            runs = self._matrix(number, one.filters, depth).box(*box)
            yield self._load(TileMemory.WEIGHT, offsets[number], runs, Stream.WEIGHT)
        matrix = self._matrix(len(front), point.filters, point.channels)
        runs = matrix.box((0, point.filters), (0, 1), step.channels)
        yield self._load(TileMemory.WEIGHT, offsets[-1], runs, Stream.WEIGHT)

    def _out(self, step: ChainStep) -> Transfer:
        runs = self._ofm(self.operands.output).box(*self._out_box(step))
        target = self._target(step, len(self.problem.convolutions) - 1)
        return Transfer(False, TileMemory.OUTPUT, target, runs, Stream.OUT)

    def _load(self, memory: TileMemory, offset: int, runs: Runs, stream: Stream) -> Transfer:
        return Transfer(True, memory, offset, runs, stream)

    def _map(self, address: int, shape: tuple[int, int, int]) -> Placed:
        return Placed(TileMemory.ACTIVATIONS, address, shape, self.problem.element_bytes)

    def _ofm(self, address: int) -> Placed:
        point = self.problem.point
        return self._map(address, (point.filters, point.rows, point.columns))

    def _matrix(self, number: int, filters: int, depth: int) -> Placed:
        address = self.operands.parts[number][0]
        size = self.problem.element_bytes
        return Placed(TileMemory.CONSTANTS, address, (filters, 1, depth), size)

    def _out_box(self, step: ChainStep) -> tuple[Range, Range, Range]:
        point = self.problem.point
        return (0, point.filters), step.strip.rows, (0, point.columns)

    # Places

    def _in_offset(self, step: ChainStep) -> int:
        """Of what a round reads; where the whole IFM is there, from its first channel on."""
        head, offset = self.problem.head, self.places.inputs[self._turn(step)]
        if self.tiles.held and self.problem.is_depthwise:
            offset += step.channels[0] * head.in_rows * head.in_columns * head.element_bytes
        return offset

    def _turn(self, step: ChainStep) -> int:
        turn = step.number if self.problem.is_depthwise else step.strip_number
        return turn % len(self.places.inputs)

    def _residual_offset(self, step: ChainStep) -> int:
        """A tile of its own, or the whole input."""
        places = self.places.residuals if self.tiles.loads_residual else self.places.inputs
        return places[self._turn(step)]

    def _target(self, step: ChainStep, number: int) -> int:
        """Where a convolution's results lie."""
        places = self.places
        if number < len(places.between):
            return places.between[number]
        return places.outputs[step.strip_number % len(places.outputs)]

    def _bias_offset(self, number: int) -> int:
        before = sum(one.filters for one in self.problem.convolutions[:number])
        return self.places.biases + BIAS_BYTES * before

    # Work

    def _work(self, step: ChainStep) -> Iterator[Command]:
        problem, places, strip = self.problem, self.places, step.strip
        made = step.channels[1]
        in_rows = problem.head.in_rows if self.tiles.held else strip.inputs[1]
        source = _Source(TileMemory.INPUT, self._in_offset(step), in_rows, strip.inputs[2])
        rows = strip.middle[1]
        yield self._products(step, 0, problem.head, source, rows, made)
        yield self._finish(step, 0, problem.head, rows, step.channels)
        source = _Source(TileMemory.OUTPUT, places.between[0], rows, strip.middle[2])
        if problem.middle is not None:
            yield self._products(step, 1, problem.middle, source, strip.rows[1], made)
            yield self._finish(step, 1, problem.middle, strip.rows[1], step.channels)
            source = _Source(TileMemory.OUTPUT, places.between[1], strip.rows[1], 0)
        point, number = problem.point, len(problem.convolutions) - 1
        yield self._products(step, number, point, source, strip.rows[1], point.filters)
        if step.last:
            yield self._finish(step, number, point, strip.rows[1], (0, point.filters))
            if self.tiles.kept:
                yield from self._keep(step, self._target(step, number))

    def _keep(self, step: ChainStep, offset: int) -> Iterator[Command]:
        """The strip's rows of the OFM, finished at ``offset``, to the map that stays: a channel at
        a time, unless they are all rows."""
        point = self.problem.point
        begin, count = step.strip.rows
        each = 1 if count < point.rows else point.filters
        size = point.columns * point.element_bytes
        for channel in range(0, point.filters, each):
            yield copied(
                (TileMemory.OUTPUT, offset + channel * count * size),
                (TileMemory.INPUT, (channel * point.rows + begin) * size),
                (each, count, point.columns), point.element_bytes,
            )  # fmt: skip

    def _products(
        self, step: ChainStep, number: int, one: ConvProblem, source: _Source, rows: int,
        filters: int,
    ) -> Work:  # fmt: skip
        is_point = number == len(self.problem.convolutions) - 1
        depth = step.channels[1] if is_point else one.channels // one.groups
        groups = 1 if one.groups == 1 else filters
        weight = self.places.weights[step.number % len(self.places.weights)][number]
        target = self._target(step, number)
        registers = {
            TileRegister.OPERANDS: int(
                source.memory | TileMemory.WEIGHT << 3 | TileMemory.OUTPUT << 6
            ),
            TileRegister.IN_OFFSET: source.offset,
            TileRegister.W_OFFSET: weight,
            **out_registers(target, filters, rows, one.columns),
            TileRegister.IN_CHANNELS: depth,
            TileRegister.IN_ROWS: source.rows,
            TileRegister.IN_COLUMNS: one.in_columns,
            TileRegister.KERNEL_ROWS: one.kernel[0],
            TileRegister.KERNEL_COLUMNS: one.kernel[1],
            TileRegister.STRIDE_ROWS: one.stride[0],
            TileRegister.STRIDE_COLUMNS: one.stride[1],
            TileRegister.DILATION_ROWS: one.dilation[0],
            TileRegister.DILATION_COLUMNS: one.dilation[1],
            TileRegister.PAD_TOP: source.padding,
            TileRegister.PAD_LEFT: one.padding[1],
            TileRegister.GROUPS: groups,
        }
        taps = stated_taps(
            loop_machine(self.machine).best_taps(depth, prod(one.kernel)), self.machine
        )
        if taps is not None:
            registers[TileRegister.TAPS_AT_ONCE] = taps
        size = groups * depth * source.rows * one.in_columns * one.element_bytes
        weights = filters * depth * prod(one.kernel) * one.element_bytes
        reads = (
            ChipRange(source.memory, source.offset, size),
            ChipRange(TileMemory.WEIGHT, weight, weights),
        )
        starts = step.first or not is_point
        sub = Accumulate.ZERO if starts else Accumulate.KEEP
        return Work("tconv", sub, registers, reads, _sums(target, one, rows, filters))

    def _finish(
        self, step: ChainStep, number: int, one: ConvProblem, rows: int, filters: Range
    ) -> Work:
        bias = self._bias_offset(number) + filters[0] * BIAS_BYTES
        target = self._target(step, number)
        registers = {
            **out_registers(target, filters[1], rows, one.columns),
            TileRegister.BIAS_OFFSET: bias,
            **self.requantizing[number],
        }
        reads = [ChipRange(TileMemory.BIAS, bias, filters[1] * BIAS_BYTES)]
        sub, operations = FinishKind.BIAS, filters[1] * rows * one.columns
        if one.has_residual:
            sub = FinishKind.BIAS_RESIDUAL
            residual, size = self._residual_offset(step), operations * one.element_bytes
            registers[TileRegister.IN_OFFSET] = residual
            reads.append(ChipRange(TileMemory.INPUT, residual, size))
        written = _sums(target, one, rows, filters[1])
        return Work("tfinish", sub, registers, tuple(reads), written, operations)


def _sums(offset: int, one: ConvProblem, rows: int, filters: int) -> ChipRange:
    size = filters * rows * one.columns * one.accumulator_bytes
    return ChipRange(TileMemory.OUTPUT, offset, size)
