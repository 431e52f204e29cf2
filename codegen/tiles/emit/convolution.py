"""Convolutions and fully connected layers: actions on tiles as commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.loops.plan import LoopPlan, Range, seen, steps, touched, trips
from tvm_npu.codegen.plan.loops.room import biases_stay, tile_places
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import (
    Action,
    ActionSteps,
    Clear,
    Finish,
    Held,
    Load,
    Multiply,
    Slide,
    Store,
    Tile,
)
from tvm_npu.codegen.tiles.emit.boxes import Placed
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.copies import slid
from tvm_npu.codegen.tiles.emit.layer import Operands, out_registers, requantize_registers
from tvm_npu.codegen.tiles.emit.pipeline import ordered
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import Accumulate, TileMemory, TileRegister
from tvm_npu.sim.tiles.isa import Finish as FinishKind
from tvm_npu.sim.tiles.machine import TileMachine

MEMORIES = {
    "INPUT": TileMemory.INPUT,
    "WEIGHT": TileMemory.WEIGHT,
    "OUTPUT": TileMemory.OUTPUT,
    "RESIDUAL": TileMemory.INPUT,
    "BIAS": TileMemory.BIAS,
}
STREAMS = {
    "INPUT": Stream.IN,
    "WEIGHT": Stream.WEIGHT,
    "OUTPUT": Stream.OUT,
    "RESIDUAL": Stream.RESIDUAL,
    "BIAS": Stream.BIAS,
}



def plan_actions(problem: ConvProblem, plan: LoopPlan, machine: TileMachine) -> Iterator[Action]:
    """What a plan that fits the machine (`room.check_loop_plan`) does, in program order."""
    view = loop_machine(machine)
    places, stay = tile_places(problem, plan, view), biases_stay(problem, view)
    source = seen(problem, plan)
    made = ActionSteps(source, steps(problem, plan), places, stay, plan.keeps_rows, plan.resident)
    return ordered(made, plan.buffers)


def stated_taps(taps_at_once: int, machine: TileMachine) -> int | None:
    """``taps_at_once`` where a program has to say it."""
    return taps_at_once if loop_machine(machine).taps_at_once > 1 else None


def partial_bytes(problem: ConvProblem, plan: LoopPlan) -> int:
    """The area that partial sums take outside of the chip: those of one group, since several
    groups come with all their channels."""
    return 0 if trips(problem, plan, "N") == 1 else partial_area_bytes(problem)


def partial_area_bytes(problem: ConvProblem) -> int:
    filters = problem.filters // problem.groups
    return filters * problem.rows * problem.columns * problem.accumulator_bytes


@dataclass(frozen=True)
class ConvCommands:
    """One layer's actions as commands; ``touched_only`` and ``taps_at_once`` as in `LoopPlan`, the
    latter None on machines that take one tap at a time, whatever a program says."""

    layer: FixedConv
    problem: ConvProblem
    operands: Operands
    touched_only: bool = False
    taps_at_once: int | None = None

    def commands(self, actions: Iterable[Action]) -> Iterator[Command]:
        for action in actions:
            if isinstance(action, Slide):
                yield from slid(self.problem, self.operands.inputs[0], action)
            elif self.touched_only and isinstance(action, Load) and _is_input(action.held):
                yield from self.gather(action.held)
            else:
                yield _MAKERS[type(action)](self, action)

    def load(self, action: Load) -> Transfer:
        held = action.held
        partial = held.tile.kind == "OUTPUT"
        stream = Stream.PARTIAL if partial else STREAMS[held.tile.kind]
        return self._transfer(True, held, stream, partial)

    def store(self, action: Store) -> Transfer:
        stream = Stream.PARTIAL if action.partial else Stream.OUT
        return self._transfer(False, action.held, stream, action.partial)

    def gather(self, held: Held) -> Iterator[Command]:
        """What windows touch, a channel at a time: two counts of runs are the mover's most."""
        problem, tile = self.problem, held.tile
        shape = (problem.channels, problem.in_rows, problem.in_columns)
        source = self._placed(self.operands.inputs[0], shape)
        each = tile.rows[1] * tile.columns[1] * problem.element_bytes
        for turn in range(tile.first[1]):
            runs = source.points(tile.first[0] + turn, tile.rows, tile.columns, problem.stride)
            offset = held.offset + turn * each
            yield Transfer(True, MEMORIES["INPUT"], offset, runs, STREAMS["INPUT"])

    def _transfer(self, to_chip: bool, held: Held, stream: Stream, partial: bool) -> Transfer:
        runs = self._runs(held.tile, partial)
        return Transfer(to_chip, MEMORIES[held.tile.kind], held.offset, runs, stream)

    def _runs(self, tile: Tile, partial: bool) -> Runs:
        problem, operands = self.problem, self.operands
        if tile.kind == "INPUT":
            shape = (problem.channels, problem.in_rows, problem.in_columns)
            return self._map(operands.inputs[0], shape, tile)
        if tile.kind == "WEIGHT":
            return self._weight_runs(tile.first, tile.rows)
        if tile.kind == "BIAS":
            address = operands.bias + tile.first[0] * BIAS_BYTES
            return Runs(TileMemory.CONSTANTS, address, tile.count * BIAS_BYTES)
        if partial:
            return self._partial_runs(tile)
        address = operands.inputs[1] if tile.kind == "RESIDUAL" else operands.output
        return self._map(address, (problem.filters, problem.rows, problem.columns), tile)

    def _map(self, address: int, shape: tuple[int, int, int], tile: Tile) -> Runs:
        return self._placed(address, shape).box(tile.first, tile.rows, tile.columns)

    def _placed(self, address: int, shape: tuple[int, int, int]) -> Placed:
        return Placed(TileMemory.ACTIVATIONS, address, shape, self.problem.element_bytes)

    def _weight_runs(self, filters: Range, channels: Range) -> Runs:
        depth = self.problem.channels // self.problem.groups
        taps = self._taps
        matrix = Placed(
            TileMemory.CONSTANTS, self.operands.weight, (self.problem.filters, 1, depth * taps),
            self.problem.element_bytes,
        )  # fmt: skip
        return matrix.box(filters, (0, 1), (channels[0] * taps, channels[1] * taps))

    def _partial_runs(self, tile: Tile) -> Runs:
        problem = self.problem
        filters = problem.filters // problem.groups
        area = Placed(
            TileMemory.ACTIVATIONS, self.operands.partial,
            (filters, problem.rows, problem.columns), problem.accumulator_bytes,
        )  # fmt: skip
        begin, count = tile.first
        return area.box((begin % filters, count), tile.rows, tile.columns)

    @property
    def _taps(self) -> int:
        return self.problem.kernel[0] * self.problem.kernel[1]

    def _sums(self, out: Held) -> ChipRange:
        size = out.tile.count * self.problem.accumulator_bytes
        return ChipRange(TileMemory.OUTPUT, out.offset, size)

    def _read(self, held: Held, items: int = 1) -> ChipRange:
        size = held.tile.count * items * self.problem.element_bytes
        return ChipRange(MEMORIES[held.tile.kind], held.offset, size)

    def multiply(self, action: Multiply) -> Work:
        problem = touched(self.problem) if self.touched_only else self.problem
        in_tile = action.in_.tile
        depth = action.weight.tile.rows[1]
        registers = {
            TileRegister.IN_OFFSET: action.in_.offset,
            TileRegister.W_OFFSET: action.weight.offset,
            **out_registers(action.out.offset, *action.out.tile.shape),
            TileRegister.IN_CHANNELS: depth,
            TileRegister.IN_ROWS: in_tile.rows[1],
            TileRegister.IN_COLUMNS: in_tile.columns[1],
            TileRegister.KERNEL_ROWS: problem.kernel[0],
            TileRegister.KERNEL_COLUMNS: problem.kernel[1],
            TileRegister.STRIDE_ROWS: problem.stride[0],
            TileRegister.STRIDE_COLUMNS: problem.stride[1],
            TileRegister.DILATION_ROWS: problem.dilation[0],
            TileRegister.DILATION_COLUMNS: problem.dilation[1],
            TileRegister.PAD_TOP: action.padding[0],
            TileRegister.PAD_LEFT: action.padding[1],
            TileRegister.GROUPS: in_tile.first[1] // depth,
        }
        if self.taps_at_once is not None:
            registers[TileRegister.TAPS_AT_ONCE] = self.taps_at_once
        reads = (self._read(action.in_), self._read(action.weight, self._taps))
        sub = Accumulate.ZERO if action.starts else Accumulate.KEEP
        return Work("tconv", sub, registers, reads, self._sums(action.out))

    def clear(self, action: Clear) -> Work:
        """Zeros, as elements: an accumulator is as long as a whole number of them."""
        words = self.problem.accumulator_bytes // self.problem.element_bytes
        filters, rows, columns = action.out.tile.shape
        registers = {
            **out_registers(action.out.offset, filters * words, rows, columns),
            TileRegister.FILL: 0,
        }
        operations = words * action.out.tile.count
        return Work("tfill", None, registers, (), self._sums(action.out), operations)

    def finish(self, action: Finish) -> Work:
        out = action.out
        offset = action.bias.offset
        offset += (out.tile.first[0] - action.bias.tile.first[0]) * BIAS_BYTES
        registers = {
            **out_registers(out.offset, *out.tile.shape),
            TileRegister.BIAS_OFFSET: offset,
            **requantize_registers(self.layer),
        }
        reads = [ChipRange(TileMemory.BIAS, offset, out.tile.first[1] * BIAS_BYTES)]
        sub = FinishKind.BIAS
        if action.residual is not None:
            sub = FinishKind.BIAS_RESIDUAL
            registers |= {
                TileRegister.IN_OFFSET: action.residual.offset,
                TileRegister.SHIFT_A: self.layer.accumulator_shift,
                TileRegister.SHIFT_B: self.layer.residual_shift,
            }
            reads.append(self._read(action.residual))
        operations = out.tile.count
        return Work("tfinish", sub, registers, tuple(reads), self._sums(out), operations)


def _is_input(held: Held) -> bool:
    return held.tile.kind == "INPUT"


_MAKERS: dict[type, Callable[[ConvCommands, Any], Command]] = {
    Load: ConvCommands.load,
    Multiply: ConvCommands.multiply,
    Clear: ConvCommands.clear,
    Finish: ConvCommands.finish,
    Store: ConvCommands.store,
}
