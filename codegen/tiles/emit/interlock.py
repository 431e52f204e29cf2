"""When commands run on a machine with a mover: what the simulator's clocks say, for cost models.

Words issue one a cycle. Mover and engine take commands in program order; a command starts when it
has issued, its unit is free, and the other unit is done with all earlier commands that touch the
same bytes on chip, unless both only read them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tvm_npu.codegen.tiles.emit.commands import OPERANDS, ChipRange, Command, Transfer
from tvm_npu.codegen.tiles.emit.emitter import transfer_registers
from tvm_npu.codegen.tiles.emit.pipeline import TileStep, command_cycles
from tvm_npu.codegen.tiles.emit.registers import Registers
from tvm_npu.sim.tiles.isa import TileMemory, TileRegister
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

MOVER, ENGINE = 0, 1


@dataclass(frozen=True)
class Touched:
    """Bytes of a memory on chip that a command reads or writes."""

    memory: int
    begin: int
    end: int
    is_written: bool


@dataclass(frozen=True)
class Timed:
    """A command as the clocks see it: its unit, how long it takes there, its words."""

    unit: int
    cycles: float
    words: int
    touched: tuple[Touched, ...]


TimedStep = TileStep[Timed]


def timed_steps(
    steps: Iterable[TileStep[Command]], machine: TileMachine, element_bytes: int, buffers: int,
    area: int = 0,
) -> Iterator[TimedStep]:  # fmt: skip
    """``steps`` with what their commands take and touch, and their words in the order of
    `pipeline.ordered`; their biases lie in an ``area`` of their memory that has nothing in common
    with others. What is in front of ``steps`` is taken to have left other values in registers."""
    registers = Registers()
    shared = isinstance(machine.memories, SharedMemory)

    def timed(command: Command) -> Timed:
        cycles = command_cycles(command, machine, element_bytes)
        words = 1 + len(registers.set(_registers(command)))
        if isinstance(command, Transfer):
            places = (touched(command.on_chip, command.to_chip),)
            return Timed(MOVER, cycles, words, places)
        reads = tuple(touched(one, False) for one in command.reads)
        return Timed(ENGINE, cycles, words, (*reads, touched(command.writes, True)))

    def touched(one: ChipRange, is_written: bool) -> Touched:
        memory = int(one.memory)
        if memory == TileMemory.BIAS:
            memory += len(TileMemory) * area
        elif shared and memory <= TileMemory.OUTPUT:
            memory = int(TileMemory.INPUT)
        return Touched(memory, one.begin, one.end, is_written)

    def with_loads(loads: tuple[Timed, ...], step: TileStep[Command]) -> TimedStep:
        return TileStep(loads, tuple(map(timed, step.work)), tuple(map(timed, step.stores)))

    waiting: tuple[tuple[Timed, ...], TileStep[Command]] | None = None
    for step in steps:
        loads = tuple(map(timed, step.loads))
        if waiting is not None:
            yield with_loads(*waiting)
        waiting = loads, step
        if buffers == 1:
            yield with_loads(*waiting)
            waiting = None
    if waiting is not None:
        yield with_loads(*waiting)


def _registers(command: Command) -> Mapping[TileRegister, int]:
    if not isinstance(command, Transfer):
        return {TileRegister.OPERANDS: int(OPERANDS), **command.registers}
    return transfer_registers(command)


@dataclass(frozen=True)
class Clocks:
    """When the units are free and words issue, and what earlier commands of each unit touch until
    when: those that may still delay the other one. ``waiting``: work and stores of the step before,
    which come behind the loads of the next one where there are two buffers."""

    free: tuple[float, float] = (0.0, 0.0)
    issued: float = 0.0
    touched: tuple[tuple[tuple[Touched, float], ...], ...] = ((), ())
    waiting: tuple[Timed, ...] = ()

    @property
    def end(self) -> float:
        return max(self._run(self.waiting).free)

    def behind(self, steps: Iterable[TimedStep], buffers: int) -> Clocks:
        """Those after ``steps``, in the order of `pipeline.ordered`."""
        commands: list[Timed] = []
        waiting = self.waiting
        for step in steps:
            commands += (*step.loads, *waiting)
            waiting = (*step.work, *step.stores)
            if buffers == 1:
                commands += waiting
                waiting = ()
        return replace(self._run(commands), waiting=waiting)

    def _run(self, commands: Iterable[Timed]) -> Clocks:
        free, issued = list(self.free), self.issued
        live = [deque(one) for one in self.touched]
        for command in commands:
            unit, other = command.unit, 1 - command.unit
            issued += command.words
            start = max(free[unit], issued)
            for mine in command.touched:
                for theirs, done in live[other]:
                    if (
                        done > start
                        and (mine.is_written or theirs.is_written)
                        and mine.begin < theirs.end
                        and theirs.begin < mine.end
                        and mine.memory == theirs.memory
                    ):
                        start = done
            free[unit] = done = start + command.cycles
            horizon = max(free[other], issued)
            while live[unit] and live[unit][0][1] <= horizon:  # they are done in order
                live[unit].popleft()
            if done > horizon:
                live[unit].extend((mine, done) for mine in command.touched)
        return Clocks((free[0], free[1]), issued, (tuple(live[0]), tuple(live[1])))
