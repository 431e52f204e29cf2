"""A tile machine as planners of loops see it, and what they are asked about a layer on one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.machine import (
    EngineCost,
    LoopMachine,
    SharedMemory,
    SplitMemories,
    TransferCost,
)
from tvm_npu.codegen.plan.loops.plan import LOOPS, Loop, LoopPlan
from tvm_npu.codegen.plan.loops.questions import LoopQuestion
from tvm_npu.codegen.plan.loops.room import check_loop_plan, no_room
from tvm_npu.codegen.plan.loops.space import limited
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.parts.pl330.isa import LARGEST_BURST_BEATS
from tvm_npu.sim.tiles import machine as tiles
from tvm_npu.sim.tiles.machine import ArrayAxis, TileMachine

ARRAY_LOOPS: dict[Loop, ArrayAxis] = {"M": "OC", "N": "IC", "R": "OH", "C": "OW"}
DIVISIONS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2))
"""Parts of a shared memory for input, weights and output that are tried."""


@lru_cache(maxsize=64)
def loop_machine(machine: TileMachine) -> LoopMachine:
    """All that planners of loops may know of ``machine``."""
    memories, array, transfer = machine.memories, machine.array, transfer_cost(machine)
    on_chip: SplitMemories | SharedMemory
    if isinstance(memories, tiles.SharedMemory):
        on_chip = SharedMemory(memories.shared_bytes)
    else:
        on_chip = SplitMemories(
            memories.input_bytes, memories.weight_bytes, memories.output_bytes
        )
    m, n, r, c = (1 if array is None else array.pes_over(ARRAY_LOOPS[loop]) for loop in LOOPS)
    return LoopMachine(
        name=machine.name,
        memories=on_chip,
        bias_bytes=memories.bias_bytes,
        pes=(m, n, r, c),
        macs_per_cycle=machine.macs_per_cycle(1),
        engine=engine_cost(machine),
        transfer=transfer,
        outside_bytes_per_cycle=1 / transfer.byte,
        gathers=True,
        moves_rows=True,
        keeps_tiles=True,
        taps_at_once=1 if array is None else array.taps_at_once,
        interlocked=array is not None and machine.mover is not None,
        waits_between=machine.dmac is not None,
    )


def transfer_cost(machine: TileMachine) -> TransferCost:
    """C, p and t of a machine's mover or DMA controller."""
    mover = machine.mover
    if mover is not None:
        return TransferCost(mover.setup_cycles, mover.segment_cycles, 1 / mover.bytes_per_cycle)
    dmac = machine.dmac
    assert dmac is not None  # a machine has one of them
    # A program: some ten instructions in three lines around its loops. Bursts follow each other as
    # far as the FIFO holds them, and what is loaded arrives with the latency of DDR.
    burst = min(LARGEST_BURST_BEATS * dmac.bus_bytes, dmac.fifo_bytes)
    dram = dmac.burst_cycles + burst / dmac.ddr_bytes_per_cycle
    chip = dmac.burst_cycles + burst / dmac.on_chip_bytes_per_cycle
    in_turn = (dmac.ddr_latency_cycles + dram + chip) / (dmac.fifo_bytes // burst)
    start = dmac.start_cycles + 10 * dmac.instruction_cycles + 3 * dmac.line_cycles
    each = max(dram, chip, 3 * dmac.instruction_cycles, in_turn)
    return TransferCost(start, dmac.jump_cycles, each / burst)


def store_cost(machine: TileMachine) -> TransferCost:
    """`transfer_cost` of what leaves the chip: there is no latency of DDR to wait for."""
    dmac = machine.dmac
    if dmac is None:
        return transfer_cost(machine)
    burst = min(LARGEST_BURST_BEATS * dmac.bus_bytes, dmac.fifo_bytes)
    slowest = min(dmac.ddr_bytes_per_cycle, dmac.on_chip_bytes_per_cycle)
    each = max(dmac.burst_cycles + burst / slowest, 3 * dmac.instruction_cycles)
    return replace(transfer_cost(machine), byte=each / burst)


def engine_cost(machine: TileMachine) -> EngineCost:
    """An array takes a cycle an iteration; a core two operands and a product a MAC. Tiles are taken
    to fit its cache."""
    array = machine.array
    if array is not None:
        return EngineCost(1.0, array.setup_cycles, 1 / (array.width * array.height))
    core = machine.core
    assert core is not None  # a machine has one of them
    access = core.chip_access_cycles if core.cache_bytes == 0 else core.hit_cycles
    byte = 0.0 if core.cache_bytes == 0 else core.chip_miss_cycles / core.line_bytes
    return EngineCost(
        core.mac_cycles + 2 * access, core.setup_cycles, core.operation_cycles + 2 * access,
        2 * access, core.setup_cycles, byte,
    )  # fmt: skip


def loop_questions(
    problem: ConvProblem, machine: TileMachine, limits: TileLimits, splits_memory: bool
) -> Iterator[LoopQuestion[LoopPlan]]:
    """The layer on the machine as it is; a shared memory that has to be split, in `DIVISIONS`."""
    whole = loop_machine(machine)
    realize = partial(realized, problem, whole, limits)
    if not splits_memory or isinstance(whole.memories, SplitMemories):
        yield LoopQuestion(problem, whole, realize)
        return
    for parts in DIVISIONS:
        inputs, weights, outputs = (
            whole.memories.shared_bytes * part // sum(parts) for part in parts
        )
        split = replace(whole, memories=SplitMemories(inputs, weights, outputs))
        yield LoopQuestion(problem, split, realize)


def realized(
    problem: ConvProblem, machine: LoopMachine, limits: TileLimits, plan: LoopPlan
) -> LoopPlan | Infeasible:
    """``plan``, predicted, if it came with a prediction: it was made for ``machine`` as it is.
    Another one keeps its weights, where the order of its loops means it to, by taking all channels
    in a tile if that fits; what does not fit is cut smaller."""
    if plan.prediction is not None:
        return plan
    if plan.order[0] == "M" and plan.order[-1] == "N":
        resident = replace(plan, tile_n=limited(problem, "N", limits))
        if check_loop_plan(problem, resident, machine) is None:
            return replace(resident, prediction=predicted(problem, resident, machine))
    fitting = _halved(problem, plan, machine)
    if fitting is None:
        return no_room(problem, machine)
    return replace(fitting, prediction=predicted(problem, fitting, machine))


def _halved(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> LoopPlan | None:
    """``plan``, or smaller tiles: fewer groups, then half of channels, filters, rows, columns, by
    turns."""
    while check_loop_plan(problem, plan, machine) is not None:
        if plan.tile_groups > 1:
            plan = replace(plan, tile_groups=plan.tile_groups // 2)
            continue
        sizes = {loop: plan.tile(loop) for loop in LOOPS}
        largest = max(("N", "M", "R", "C"), key=lambda loop: sizes[loop])  # type: ignore[index]
        if sizes[largest] == 1:  # type: ignore[index]
            return None
        plan = replace(plan, **{f"tile_{largest.lower()}": sizes[largest] // 2})  # type: ignore[index, arg-type]
    return plan

