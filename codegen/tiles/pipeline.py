"""The order of a layer's commands, and what they take.

With one buffer a step's tiles come, are worked on and go. With two, the tiles of the next step come
before the work of this one: they go to the other places, so that the transfers run beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvm_npu.codegen.plan.tiles.cost import transfer_cost
from tvm_npu.codegen.plan.tiles.traffic import Moved
from tvm_npu.codegen.tiles.commands import Command, Transfer, Work
from tvm_npu.sim.machine import TileMachine


@dataclass(frozen=True)
class StepCommands:
    """What one step does: tiles that come (none of them where tiles lie that the step before works
    on, if there are two buffers), work, tiles that go."""

    loads: tuple[Transfer, ...]
    work: tuple[Command, ...]
    stores: tuple[Transfer, ...]


def ordered(steps: Iterable[StepCommands], buffers: int) -> Iterator[Command]:
    """All commands in program order."""
    if buffers == 1:
        for step in steps:
            yield from step.loads
            yield from step.work
            yield from step.stores
        return
    waiting: StepCommands | None = None
    for step in steps:
        yield from step.loads
        if waiting is not None:
            yield from waiting.work
            yield from waiting.stores
        waiting = step
    if waiting is not None:
        yield from waiting.work
        yield from waiting.stores


def estimated_cycles(steps: Iterable[StepCommands], buffers: int, machine: TileMachine) -> float:
    """Time of steps without convolutions: with one buffer the sum of all, with two transfers run
    beside the work of another step."""
    total = work = 0.0
    left_over = 0.0
    for step in steps:
        arrive = sum(_transfer_cycles(one, machine) for one in step.loads)
        own = sum(_cycles(one, machine) for one in step.work)
        leave = sum(_transfer_cycles(one, machine) for one in step.stores)
        if buffers == 1:
            total += arrive + own + leave
            continue
        total += max(arrive + left_over, work)
        work, left_over = own, leave
    return total + work + left_over


def _cycles(command: Command, machine: TileMachine) -> float:
    if isinstance(command, Transfer):
        return _transfer_cycles(command, machine)
    return _work_cycles(command, machine)


def _transfer_cycles(one: Transfer, machine: TileMachine) -> float:
    return transfer_cost(machine).cycles(Moved(1, one.runs.count, one.runs.size_bytes))


def _work_cycles(work: Work, machine: TileMachine) -> float:
    if machine.array is not None:
        return work.operations / (machine.array.width * machine.array.height)
    core = machine.core
    assert core is not None  # a machine has one of them
    access = core.chip_access_cycles if core.cache_bytes == 0 else core.hit_cycles
    return core.setup_cycles + work.operations * (core.operation_cycles + 2 * access)
