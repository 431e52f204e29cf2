"""Planners of NMPs on a tile machine.

The tile machine is seen as an NMP of one TLE with one TLT: its memories for input, weights and
output are MB0, MB1 and MB2 (a shared memory is divided, in several ways), its mover the DMA engine.
OUT tiles count at accumulator width. The answer's tiles and schedule become a `TilePlan`:

  IS, OS   rows, columns, filters, channels
  WS       filters, rows, columns, channels, with all channels in a tile where that fits
  grouped  several groups in a step

A tile that does not fit behind the residual tile is halved until it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.cost import engine_cost, predicted, transfer_cost
from tvm_npu.codegen.plan.loops.eplanner import tile_machine
from tvm_npu.codegen.plan.loops.plan import LOOPS, TilePlan, extent
from tvm_npu.codegen.plan.loops.room import check_tile_plan, no_room
from tvm_npu.codegen.plan.loops.space import limited
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.nmp.machine import Cores, Dme, Dram, Mac, Memories, NmpMachine
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

DIVISIONS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2))
"""Parts of a shared memory for input, weights and output that are tried."""
LARGEST_DATAPATH_BITS = 8192


class NmpPlanner(Protocol):
    @property
    def name(self) -> str: ...

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible: ...


def nmp_machines(machine: TileMachine, problem: ConvProblem) -> Iterator[NmpMachine]:
    """The tile machine as NMPs of one core, one for each way to divide its memory."""
    memories = machine.memories
    if isinstance(memories, SharedMemory):
        sizes = [
            tuple(memories.shared_bytes * part // sum(parts) for part in parts)
            for parts in DIVISIONS
        ]
    else:
        sizes = [(memories.input_bytes, memories.weight_bytes, memories.output_bytes)]
    size = problem.element_bytes
    # A core makes less than a MAC a cycle: one lane that works a share of the time.
    lanes = machine.macs_per_cycle(size) if machine.array is not None else 1.0
    bits = min(max(16, 8 * size, int(lanes) * 8 * size // 16 * 16), LARGEST_DATAPATH_BITS)
    slowness = engine_cost(machine).iteration
    efficiency = min(max(1 / slowness, 0.001), 1.0) if slowness > 0 else 1.0
    cost = transfer_cost(machine)
    rate = min(max(1 / cost.byte, 0.01), 1e6)
    for inputs, weights, outputs in sizes:
        sums = outputs * size // problem.accumulator_bytes
        mb0, mb1, mb2 = (max(one // 8 * 8, 64) for one in (inputs, weights, sums))
        yield NmpMachine(
            name=f"{machine.name[:60]}-nmp",
            isa="nmp",
            frequency_mhz=machine.frequency_mhz,
            cores=Cores(
                tles=1, tlts_per_tle=1, instruction_cycles=1, scalar_memory_cycles=0.0,
                semaphore_cycles=0.0, instruction_cache_bytes=1 << 16, instruction_line_bytes=128,
                instruction_miss_cycles=0.0,
            ),
            mac=Mac(
                datapath_bits=bits, efficiency=efficiency, setup_cycles=0.0, accumulator_bits=63,
            ),
            memories=Memories(
                mb0_bytes=mb0, mb1_bytes=mb1, mb2_bytes=mb2,
                bias_bytes=memories.bias_bytes, ports=1,
            ),
            dme=Dme(
                setup_cycles=min(cost.start, 1e6), burst_cycles=min(cost.segment, 1e6),
                bytes_per_cycle=rate, queue_depth=16, semaphores=16,
            ),
            dram=Dram(
                base_address=machine.dram.base_address,
                capacity_bytes=machine.dram.capacity_bytes,
                burst_bytes=64, cas_cycles=0.0, bytes_per_cycle=rate,
            ),
        )  # fmt: skip


def tile_plan(
    problem: ConvProblem, plan: ConvPlan, machine: TileMachine, limits: TileLimits = NO_LIMITS
) -> TilePlan | None:
    """A plan of the one core as a `TilePlan` that fits ``machine``."""
    order = ("M", "R", "C", "N") if plan.schedule == "WS" else ("R", "C", "M", "N")
    filters, channels = extent(problem, "M"), extent(problem, "N")
    groups = plan.tile_m // filters if plan.mode == "grouped" else 1
    made = TilePlan(
        tile_m=min(plan.tile_m, filters),
        tile_n=min(plan.tile_n, channels),
        tile_r=min(plan.tile_r, problem.rows),
        tile_c=min(plan.tile_c, problem.columns),
        order=order,  # type: ignore[arg-type]
        tile_groups=max(1, min(groups, problem.groups)),
    )
    if plan.schedule == "WS":
        resident = replace(made, tile_n=limited(problem, "N", limits))
        if check_tile_plan(problem, resident, machine) is None:
            return resident
    return _halved(problem, made, machine)


def _halved(problem: ConvProblem, plan: TilePlan, machine: TileMachine) -> TilePlan | None:
    """``plan``, or smaller tiles: fewer groups, then half of channels, filters, rows, columns, by
    turns."""
    while check_tile_plan(problem, plan, machine) is not None:
        if plan.tile_groups > 1:
            plan = replace(plan, tile_groups=plan.tile_groups // 2)
            continue
        sizes = {loop: plan.tile(loop) for loop in LOOPS}
        largest = max(("N", "M", "R", "C"), key=lambda loop: sizes[loop])  # type: ignore[index]
        if sizes[largest] == 1:  # type: ignore[index]
            return None
        plan = replace(plan, **{f"tile_{largest.lower()}": sizes[largest] // 2})  # type: ignore[index, arg-type]
    return plan


@dataclass(frozen=True)
class OnTiles:
    """``planner``, which plans NMPs, for a tile machine; of several divisions of a shared memory
    the one whose plan is predicted to be the fastest."""

    planner: NmpPlanner
    limits: TileLimits = NO_LIMITS

    @property
    def name(self) -> str:
        return self.planner.name

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> TilePlan | Infeasible:
        tiled = tile_machine(machine, self.name)
        best: TilePlan | None = None
        refused: Infeasible | None = None
        for view in nmp_machines(tiled, problem):
            answer = self.planner.plan(problem, view)
            if isinstance(answer, Infeasible):
                refused = answer
                continue
            plan = tile_plan(problem, answer, tiled, self.limits)
            if plan is None:
                continue
            prediction = predicted(problem, plan, tiled)
            if best is None or best.prediction is None or (
                prediction.cycles < best.prediction.cycles
            ):  # fmt: skip
                best = replace(plan, prediction=prediction, planner=self.name)
        if best is not None:
            return best
        return refused if refused is not None else no_room(problem, tiled)
