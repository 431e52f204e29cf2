"""The order of a layer's commands, and what they take.

With one buffer a step's tiles come, are worked on and go. With two, the tiles of the next step come
before the work of this one: they go to the other places, so that the transfers run beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tvm_npu.codegen.plan.loops.cost import transfer_cycles
from tvm_npu.codegen.plan.loops.traffic import Moved
from tvm_npu.codegen.tiles.emit.commands import Command, Transfer, Work
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.tiles import rates
from tvm_npu.sim.tiles.isa import TileRegister
from tvm_npu.sim.tiles.machine import PeArray, TileMachine

Item = TypeVar("Item")


@dataclass(frozen=True)
class TileStep(Generic[Item]):
    """What one step does: tiles that come (none of them where tiles lie that the step before works
    on, if there are two buffers), work, tiles that go."""

    loads: tuple[Item, ...]
    work: tuple[Item, ...]
    stores: tuple[Item, ...]


StepCommands = TileStep[Command]


def ordered(steps: Iterable[TileStep[Item]], buffers: int) -> Iterator[Item]:
    """Everything in program order."""
    if buffers == 1:
        for step in steps:
            yield from step.loads
            yield from step.work
            yield from step.stores
        return
    waiting: TileStep[Item] | None = None
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
    total = work = left_over = 0.0
    for step in steps:
        arrive, own, leave = (
            sum(_cycles(command, machine) for command in part)
            for part in (step.loads, step.work, step.stores)
        )
        if buffers == 1:
            total += arrive + own + leave
            continue
        total += max(arrive + left_over, work)
        work, left_over = own, leave
    return total + work + left_over


def _cycles(command: Command, machine: TileMachine) -> float:
    if isinstance(command, Transfer):
        runs = command.runs
        moved = Moved(1, runs.count, runs.size_bytes)
        return transfer_cycles(loop_machine(machine).transfer, moved)
    return _work_cycles(command, machine)


def _work_cycles(work: Work, machine: TileMachine) -> float:
    if machine.array is not None:
        if work.mnemonic == "tconv":
            return _array_conv_cycles(work, machine.array)
        return work.operations / (machine.array.width * machine.array.height)
    core = machine.core
    assert core is not None  # a machine has one of them
    access = core.chip_access_cycles if core.cache_bytes == 0 else core.hit_cycles
    return core.setup_cycles + work.operations * (core.operation_cycles + 2 * access)


def _array_conv_cycles(work: Work, array: PeArray) -> float:
    r = work.registers
    groups, taps = r[TileRegister.GROUPS], (TileRegister.KERNEL_ROWS, TileRegister.KERNEL_COLUMNS)
    channels, filters, rows, columns = (
        array.pes_over(axis) for axis in ("IC", "OC", "OH", "OW")
    )
    return rates.array_conv_cycles(
        array.setup_cycles, groups, r[TileRegister.OUT_CHANNELS] // groups,
        r[TileRegister.IN_CHANNELS], r[TileRegister.OUT_ROWS], r[TileRegister.OUT_COLUMNS],
        r[taps[0]] * r[taps[1]], channels, filters, rows, columns,
        r.get(TileRegister.TAPS_AT_ONCE, 1),
    )  # fmt: skip
