"""The planner of least traffic: `exact`'s searches where a byte of the DRAM costs most.

`exact` finds the fastest plan of a machine. Of the same machine with a DRAM that is so slow that
hardly anything else counts, that is the plan that moves least, or nearly so: TLEs with less work
than the slowest move what they like. Of what is found on such a machine, on the machine itself,
and by the search over loops for the largest share of a TLT, the plan that moves least is taken, by
the exact count of `predict`: never more than `exact`'s plan. No proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.nmp.plan.block import BlockProblem
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.exact import ExactPlanner
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.by_loops import ByLoops
from tvm_npu.codegen.plan.loops.exact import ExactLoops
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

Question = ConvProblem | BlockProblem | SumProblem
SLOWER, SLOWER_RANKED = 16.0, 64.0
"""How much slower the DRAM of the other machine is: for questions that `exact` answers with a
proof, and for those of which it ranks plans. The slower it is, the fewer bytes, and the longer a
proof takes: 16 gives within 0.1 % of what 4,096 does for MobileNetV2's layers, in a tenth of the
time."""


@dataclass(frozen=True)
class TrafficPlanner:
    """Least predicted traffic with the DRAM of what `exact`'s searches find; of equals the
    fastest."""

    limits: TileLimits = NO_LIMITS
    name: str = "exact-traffic"
    goal: Literal["bytes"] = "bytes"
    plans_windows: bool = True
    plans_blocks: bool = True
    plans_sums: bool = True

    def plan(self, problem: Question, machine: NmpMachine) -> Any:
        """A ConvPlan, a BlockPlan or Infeasible."""
        found = list(self._answers(problem, machine))
        kind = backend_of(machine)
        plans = [
            replace(one, prediction=kind.predict(problem, one, machine))  # type: ignore[arg-type]
            for one in found
            if not isinstance(one, Infeasible)
        ]
        if not plans:
            return found[0]
        return min(plans, key=lambda one: (one.prediction.moved_bytes, one.prediction.cycles))

    def _answers(self, problem: Question, machine: NmpMachine) -> Iterator[Any]:
        exact = ExactPlanner(self.limits, self.name)
        yield exact.plan(problem, machine)  # type: ignore[call-overload]
        if isinstance(problem, SumProblem):
            return  # their search takes seconds where the DRAM is slower
        is_ranked = isinstance(problem, BlockProblem) or problem.window is not None
        slower = with_slower_dram(machine, SLOWER_RANKED if is_ranked else SLOWER)
        yield exact.plan(problem, slower)  # type: ignore[call-overload]
        if isinstance(problem, ConvProblem) and not is_ranked:
            loops = ExactLoops(self.limits, self.name, "bytes")
            yield ByLoops(loops, self.limits).plan(problem, machine)


def with_slower_dram(machine: NmpMachine, times: float) -> NmpMachine:
    """``machine`` whose DRAM takes ``times`` as long for a byte, and nothing for a burst. No
    description of a machine that is checked: rates of files end somewhere."""
    rate = machine.dram.bytes_per_cycle / times
    dram = machine.dram.model_copy(update={"bytes_per_cycle": rate, "cas_cycles": 0.0})
    return machine.model_copy(update={"dram": dram})
