"""Planners of NMPs for the loops of one engine, so that machines of other kinds can ask them.

The engine is seen as an NMP of one TLE with one TLT: its memories for input, weights and output are
MB0, MB1 and MB2, what moves its tiles the DMA engine. OUT tiles count at accumulator width. The
answer's tiles and schedule become a `LoopPlan`:

  IS, OS   rows, columns, filters, channels
  WS       filters, rows, columns, channels
  grouped  several groups in a step
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Protocol

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.loops.machine import LoopMachine, SplitMemories
from tvm_npu.codegen.plan.loops.plan import Loop, LoopPlan, extent
from tvm_npu.codegen.plan.loops.questions import Measure
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import Cores, Dme, Dram, Mac, Memories, NmpMachine

LARGEST_DATAPATH_BITS = 8192
INPUT_OUTERMOST: tuple[Loop, ...] = ("R", "C", "M", "N")
WEIGHTS_OUTERMOST: tuple[Loop, ...] = ("M", "R", "C", "N")


class NmpPlanner(Protocol):
    @property
    def name(self) -> str: ...

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible: ...


def one_core(machine: LoopMachine, problem: ConvProblem) -> NmpMachine:
    """``machine``, of `SplitMemories`, as an NMP of one core for a layer. What does not matter to a
    plan of one core is as small as an NMP's description lets it be."""
    memories, cost = machine.memories, machine.transfer
    assert isinstance(memories, SplitMemories)
    size = problem.element_bytes
    # An engine that makes less than a MAC a cycle: one lane that works a share of the time.
    bits = min(max(16, 8 * size, prod(machine.pes) * 8 * size // 16 * 16), LARGEST_DATAPATH_BITS)
    slowness = machine.engine.iteration
    rate = min(max(1 / cost.byte, 0.01), 1e6)
    sums = memories.output_bytes * size // problem.accumulator_bytes
    mb0, mb1, mb2 = (
        max(one // 8 * 8, 64) for one in (memories.input_bytes, memories.weight_bytes, sums)
    )
    return NmpMachine(
        name="one-core",
        isa="nmp",
        frequency_mhz=1,
        cores=Cores(
            tles=1, tlts_per_tle=1, instruction_cycles=1, scalar_memory_cycles=0.0,
            semaphore_cycles=0.0, instruction_cache_bytes=1 << 16, instruction_line_bytes=128,
            instruction_miss_cycles=0.0,
        ),
        mac=Mac(
            datapath_bits=bits,
            efficiency=min(max(1 / slowness, 0.001), 1.0) if slowness > 0 else 1.0,
            setup_cycles=0.0, accumulator_bits=63,
        ),
        memories=Memories(
            mb0_bytes=mb0, mb1_bytes=mb1, mb2_bytes=mb2, bias_bytes=machine.bias_bytes, ports=1,
        ),
        dme=Dme(
            setup_cycles=min(cost.start, 1e6), burst_cycles=min(cost.segment, 1e6),
            bytes_per_cycle=rate, queue_depth=16, semaphores=16,
        ),
        dram=Dram(
            base_address=1 << 31, capacity_bytes=1 << 30, burst_bytes=64, cas_cycles=0.0,
            bytes_per_cycle=rate,
        ),
    )  # fmt: skip


def loops_of(problem: ConvProblem, plan: ConvPlan) -> LoopPlan:
    """A plan of the one core by its loops."""
    filters, channels = extent(problem, "M"), extent(problem, "N")
    groups = plan.tile_m // filters if plan.mode == "grouped" else 1
    return LoopPlan(
        tile_m=min(plan.tile_m, filters),
        tile_n=min(plan.tile_n, channels),
        tile_r=min(plan.tile_r, problem.rows),
        tile_c=min(plan.tile_c, problem.columns),
        order=WEIGHTS_OUTERMOST if plan.schedule == "WS" else INPUT_OUTERMOST,
        tile_groups=max(1, min(groups, problem.groups)),
    )


@dataclass(frozen=True)
class LoopFace:
    """What ``make`` makes, as a planner of loops; its plans carry no prediction."""

    name: str
    make: Callable[[], NmpPlanner]
    measure: Measure = "cycles"
    splits_memory: bool = True

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible:
        answer = self.make().plan(problem, one_core(machine, problem))
        return answer if isinstance(answer, Infeasible) else loops_of(problem, answer)
