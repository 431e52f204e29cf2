"""The order of a layer's commands, and what they take.

With one buffer a step's tiles come, are worked on and go. With two, the tiles of the next step come
before the work of this one: they go to the other places, so that the transfers run beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tvm_npu.codegen.plan.loops.cost import transfer_cycles
from tvm_npu.codegen.plan.loops.traffic import Moved
from tvm_npu.codegen.tiles.emit.commands import Command, Transfer, Work
from tvm_npu.codegen.tiles.plan.loop_machine import store_cost, transfer_cost
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


def estimated_cycles(
    steps: Iterable[StepCommands], buffers: int, machine: TileMachine, element_bytes: int
) -> float:
    """Time of steps without convolutions under a DMA controller: with one buffer the sum of all,
    with two transfers run beside the work of another step. Its channels bring tiles and take others
    away at once, as far as the memories allow."""
    total = work = 0.0
    left_over = Moves()
    for step in steps:
        arrive, leave = moves(step.loads, machine), moves(step.stores, machine)
        own = sum(_work_cycles(one, machine, element_bytes) for one in (*step.loads, *step.work))
        inside = moves(step.work, machine)
        if buffers == 1:
            total += arrive.cycles + inside.cycles + own + leave.cycles
            continue
        together = max(arrive.cycles, left_over.cycles, arrive.busy + left_over.busy)
        total += max(together, work)
        work, left_over = own + inside.cycles, leave
    return total + work + left_over.cycles


@dataclass(frozen=True)
class Moves:
    """Transfers of one kind, one after another, and how long they keep the memory outside busy."""

    cycles: float = 0.0
    busy: float = 0.0


def moves(commands: Iterable[Command], machine: TileMachine) -> Moves:
    """Those of ``commands`` that are transfers."""
    cycles = busy = 0.0
    for command in commands:
        if not isinstance(command, Transfer):
            continue
        runs = command.runs
        moved = Moved(1, runs.count, runs.size_bytes)
        cost = transfer_cost(machine) if command.to_chip else store_cost(machine)
        cycles += transfer_cycles(cost, moved)
        busy += transfer_cycles(replace(store_cost(machine), start=0.0), moved)
    return Moves(cycles, busy)


def command_cycles(command: Command, machine: TileMachine, element_bytes: int) -> float:
    """Once it runs."""
    if isinstance(command, Transfer):
        return moves((command,), machine).cycles
    return _work_cycles(command, machine, element_bytes)


def _work_cycles(work: Command, machine: TileMachine, element_bytes: int) -> float:
    if isinstance(work, Transfer):
        return 0.0
    if machine.array is not None:
        if work.mnemonic == "tconv":
            return _array_conv_cycles(work, machine.array)
        pes = machine.array.width * machine.array.height
        return rates.array_element_cycles(work.operations, pes)
    core = machine.core
    assert core is not None  # a machine has one of them
    accesses = rates.core_operand_cycles(
        core.cache_bytes, core.line_bytes, core.hit_cycles, core.chip_miss_cycles,
        core.chip_access_cycles, 2 * work.operations, work.operations * element_bytes, 1,
    )  # fmt: skip
    return core.setup_cycles + work.operations * core.operation_cycles + accesses


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
