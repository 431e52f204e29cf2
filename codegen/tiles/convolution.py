"""Convolutions and fully connected layers: the steps of a TilePlan as commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tvm_npu.codegen.fixed import FixedConv
from tvm_npu.codegen.plan.check import BIAS_BYTES
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.plan.tiles.plan import Step, TilePlan, in_extent, steps, trips
from tvm_npu.codegen.plan.tiles.room import Place, biases_stay, tile_places
from tvm_npu.codegen.tiles.boxes import Placed
from tvm_npu.codegen.tiles.commands import ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.layer import (
    LayerSteps,
    Operands,
    out_registers,
    requantize_registers,
)
from tvm_npu.codegen.tiles.pipeline import StepCommands
from tvm_npu.sim.machine import TileMachine
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import Accumulate, Finish, TileMemory, TileRegister


def convolution(
    layer: FixedConv,
    problem: ConvProblem,
    plan: TilePlan,
    machine: TileMachine,
    operands: Operands,
) -> LayerSteps:
    """The steps of a plan that fits the machine (`room.check_tile_plan`)."""
    return LayerSteps(ConvSteps(layer, problem, plan, machine, operands).commands(), plan.buffers)


def partial_bytes(problem: ConvProblem, plan: TilePlan) -> int:
    """The area that partial sums take outside of the chip: those of one run of groups."""
    if trips(problem, plan, "N") == 1:
        return 0
    filters = problem.filters // problem.groups * plan.tile_groups
    return filters * problem.rows * problem.columns * problem.accumulator_bytes


@dataclass
class _Turns:
    """Which place of each kind of tile was filled last; -1: none yet."""

    places: tuple[Place, ...]
    in_: int = -1
    weight: int = -1
    out: int = -1
    residual: int = -1

    def next(self, kind: str) -> None:
        setattr(self, kind, (getattr(self, kind) + 1) % len(self.places))


@dataclass
class ConvSteps:
    """Walks the steps of one layer; remembers which tile lies where."""

    layer: FixedConv
    problem: ConvProblem
    plan: TilePlan
    machine: TileMachine
    operands: Operands
    _turns: _Turns = field(init=False)
    _biases: tuple[int, int] = field(init=False, default=(0, 0))
    """(begin, count) of the filters whose biases are on chip."""

    def __post_init__(self) -> None:
        self._turns = _Turns(tile_places(self.problem, self.plan, self.machine))

    def commands(self) -> Iterator[StepCommands]:
        for step in steps(self.problem, self.plan):
            yield self._step(step)

    def _step(self, step: Step) -> StepCommands:
        turns = self._turns
        filters, channels = self._all_filters(step), self._all_channels(step)
        rows = in_extent(self.problem, *step.rows, "R")
        columns = in_extent(self.problem, *step.columns, "C")
        in_tile = (channels[1], rows[1], columns[1])
        out = (filters[1], step.rows[1], step.columns[1])
        loads: list[Transfer] = []
        if step.loads_in and in_tile[1] * in_tile[2] > 0:
            turns.next("in_")
            runs = self._map(self.operands.inputs[0], in_map(self.problem)).box(
                channels, rows[:2], columns[:2]
            )
            at = turns.places[turns.in_].in_offset
            loads.append(Transfer(True, TileMemory.INPUT, at, runs, Stream.IN))
        if step.loads_weights:
            turns.next("weight")
            at = turns.places[turns.weight].weight_offset
            runs = self._weight_runs(filters, step.channels)
            loads.append(Transfer(True, TileMemory.WEIGHT, at, runs, Stream.WEIGHT))
        if step.enters_out:
            turns.next("out")
            if not step.first:
                loads.append(self._partial(step, out, to_chip=True))
        if step.last and self.problem.has_residual:
            turns.next("residual")
            runs = self._out_box(self.operands.inputs[1], filters, step)
            at = turns.places[turns.residual].residual_offset
            loads.append(Transfer(True, TileMemory.INPUT, at, runs, Stream.RESIDUAL))

        work: list[Command] = []
        if in_tile[1] * in_tile[2] > 0:
            work.append(self._multiply(step, in_tile, out, (rows[2], columns[2])))
        elif step.first:
            work.append(self._clear(out))
        stores: list[Transfer] = []
        if step.last:
            if self._biases_missing(filters):
                if biases_stay(self.problem, self.machine):
                    self._biases = (0, self.problem.filters)
                    loads.append(self._load_biases())
                else:  # there is one place for them: the step before may not have finished
                    self._biases = filters
                    work.insert(0, self._load_biases())
            work.append(self._finish(filters, out))
            runs = self._out_box(self.operands.output, filters, step)
            at = turns.places[turns.out].out_offset
            stores.append(Transfer(False, TileMemory.OUTPUT, at, runs, Stream.OUT))
        elif step.leaves_out:
            stores.append(self._partial(step, out, to_chip=False))
        return StepCommands(tuple(loads), tuple(work), tuple(stores))

    def _all_filters(self, step: Step) -> tuple[int, int]:
        """(begin, count) over all groups of the step."""
        each = self.problem.filters // self.problem.groups
        return step.groups[0] * each + step.filters[0], step.groups[1] * step.filters[1]

    def _all_channels(self, step: Step) -> tuple[int, int]:
        each = self.problem.channels // self.problem.groups
        return step.groups[0] * each + step.channels[0], step.groups[1] * step.channels[1]

    def _map(self, address: int, shape: tuple[int, int, int]) -> Placed:
        return Placed(TileMemory.ACTIVATIONS, address, shape, self.problem.element_bytes)

    def _out_box(self, address: int, filters: tuple[int, int], step: Step) -> Runs:
        return self._map(address, out_map(self.problem)).box(filters, step.rows, step.columns)

    def _weight_runs(self, filters: tuple[int, int], channels: tuple[int, int]) -> Runs:
        depth = self.problem.channels // self.problem.groups
        taps = self.problem.kernel[0] * self.problem.kernel[1]
        matrix = Placed(
            TileMemory.CONSTANTS, self.operands.weight, (self.problem.filters, 1, depth * taps),
            self.problem.element_bytes,
        )  # fmt: skip
        return matrix.box(filters, (0, 1), (channels[0] * taps, channels[1] * taps))

    def _partial(self, step: Step, out: tuple[int, int, int], to_chip: bool) -> Transfer:
        """Partial sums of this OUT tile; the area holds those of one run of groups."""
        problem = self.problem
        filters = problem.filters // problem.groups * self.plan.tile_groups
        area = Placed(
            TileMemory.ACTIVATIONS, self.operands.partial,
            (filters, problem.rows, problem.columns), problem.accumulator_bytes,
        )  # fmt: skip
        runs = area.box((step.filters[0], out[0]), step.rows, step.columns)
        at = self._turns.places[self._turns.out].out_offset
        return Transfer(to_chip, TileMemory.OUTPUT, at, runs, Stream.PARTIAL)

    def _sums(self, out: tuple[int, int, int]) -> ChipRange:
        at = self._turns.places[self._turns.out].out_offset
        size = out[0] * out[1] * out[2] * self.problem.accumulator_bytes
        return ChipRange(TileMemory.OUTPUT, at, size)

    def _multiply(
        self,
        step: Step,
        in_tile: tuple[int, int, int],
        out: tuple[int, int, int],
        padding: tuple[int, int],
    ) -> Work:
        problem, turns = self.problem, self._turns
        size = problem.element_bytes
        taps = problem.kernel[0] * problem.kernel[1]
        in_at = turns.places[turns.in_].in_offset
        weight_at = turns.places[turns.weight].weight_offset
        registers = {
            TileRegister.IN_OFFSET: in_at,
            TileRegister.W_OFFSET: weight_at,
            **out_registers(self._sums(out).begin, *out),
            TileRegister.IN_CHANNELS: step.channels[1],
            TileRegister.IN_ROWS: in_tile[1],
            TileRegister.IN_COLUMNS: in_tile[2],
            TileRegister.KERNEL_ROWS: problem.kernel[0],
            TileRegister.KERNEL_COLUMNS: problem.kernel[1],
            TileRegister.STRIDE_ROWS: problem.stride[0],
            TileRegister.STRIDE_COLUMNS: problem.stride[1],
            TileRegister.DILATION_ROWS: problem.dilation[0],
            TileRegister.DILATION_COLUMNS: problem.dilation[1],
            TileRegister.PAD_TOP: padding[0],
            TileRegister.PAD_LEFT: padding[1],
            TileRegister.GROUPS: step.groups[1],
        }
        reads = (
            ChipRange(TileMemory.INPUT, in_at, in_tile[0] * in_tile[1] * in_tile[2] * size),
            ChipRange(TileMemory.WEIGHT, weight_at, out[0] * step.channels[1] * taps * size),
        )
        sub = Accumulate.ZERO if step.first else Accumulate.KEEP
        return Work("tconv", sub, registers, reads, self._sums(out))

    def _clear(self, out: tuple[int, int, int]) -> Work:
        """Sums of a tile whose windows all lie in the padding: zeros, as elements."""
        words = self.problem.accumulator_bytes // self.problem.element_bytes
        registers = {
            **out_registers(self._sums(out).begin, out[0] * words, out[1], out[2]),
            TileRegister.FILL: 0,
        }
        operations = words * out[0] * out[1] * out[2]
        return Work("tfill", None, registers, (), self._sums(out), operations)

    def _biases_missing(self, filters: tuple[int, int]) -> bool:
        begin, count = self._biases
        return not begin <= filters[0] <= filters[0] + filters[1] <= begin + count

    def _load_biases(self) -> Transfer:
        begin, count = self._biases
        address = self.operands.bias + begin * BIAS_BYTES
        runs = Runs(TileMemory.CONSTANTS, address, count * BIAS_BYTES)
        return Transfer(True, TileMemory.BIAS, 0, runs, Stream.BIAS)

    def _finish(self, filters: tuple[int, int], out: tuple[int, int, int]) -> Work:
        layer, turns = self.layer, self._turns
        sums = self._sums(out)
        offset = (filters[0] - self._biases[0]) * BIAS_BYTES
        registers = {
            **out_registers(sums.begin, *out),
            TileRegister.BIAS_OFFSET: offset,
            **requantize_registers(layer),
        }
        reads = [ChipRange(TileMemory.BIAS, offset, filters[1] * BIAS_BYTES)]
        sub = Finish.BIAS
        operations = out[0] * out[1] * out[2]
        if self.problem.has_residual:
            sub = Finish.BIAS_RESIDUAL
            at = turns.places[turns.residual].residual_offset
            registers |= {
                TileRegister.IN_OFFSET: at,
                TileRegister.SHIFT_A: layer.accumulator_shift,
                TileRegister.SHIFT_B: layer.residual_shift,
            }
            size = operations * self.problem.element_bytes
            reads.append(ChipRange(TileMemory.INPUT, at, size))
        return Work("tfinish", sub, registers, tuple(reads), sums, operations)


def in_map(problem: ConvProblem) -> tuple[int, int, int]:
    return problem.channels, problem.in_rows, problem.in_columns


def out_map(problem: ConvProblem) -> tuple[int, int, int]:
    return problem.filters, problem.rows, problem.columns
