"""A strategy of the TSO paper as a planner."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

DENSE_PLANNER = "tso"


@dataclass(frozen=True)
class ForConvolutions:
    """The planner ``name`` for convolutions, `DENSE_PLANNER` for fully connected layers.

    The paper's strategies are about convolutions: Algorithm 1 takes the set of convolutions, and
    the fixed ones hold "for all Conv-layers of a model". A fully connected layer has one OFM row,
    of which OFM slicing would give three TLEs of four nothing to do.
    """

    name: str

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        return planner(DENSE_PLANNER if problem.is_dense else self.name).plan(problem, machine)
