"""The best plans of a layer by the cost model, not only the best one: for those who know more than
the cost model does.

Neighbouring tiles of one spread cost nearly the same and err alike, so the list has one plan a
family (a spread over TLEs and TLTs, a schedule, ring, buffers): its fastest, proven as `exact`
proves its own, which is the first of the list.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.exact import ExactPlanner, fastest_by_family, predicted_cycles
from tvm_npu.codegen.nmp.plan.tso import TsoPlanner
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

SLACK = 0.15
"""Plans of a predicted time above that of the best by more than this share are left out."""


def shortlist(
    problem: ConvProblem,
    machine: NmpMachine,
    count: int,
    limits: TileLimits = NO_LIMITS,
    slack: float = SLACK,
) -> tuple[ConvPlan, ...] | Infeasible:
    """At most ``count`` plans with their predictions, the fastest first: that of `exact`, then the
    fastest of every other family within ``slack``. `tso`'s plan takes part, too. A problem with a
    window has one plan, that of `exact`."""
    best = ExactPlanner(limits).plan(problem, machine)
    if isinstance(best, Infeasible) or problem.window is not None:
        return best if isinstance(best, Infeasible) else (best,)
    most_cycles = predicted_cycles(best) * (1 + slack)
    found = [best, *fastest_by_family(problem, machine, limits, most_cycles)]
    tso = TsoPlanner(limits=limits).plan(problem, machine)
    if not isinstance(tso, Infeasible) and predicted_cycles(tso) < most_cycles:
        found.append(tso)
    unique = {replace(plan, prediction=None, planner=""): plan for plan in reversed(found)}
    plans = sorted(reversed(unique.values()), key=predicted_cycles)
    if plans[0] is not best:  # a tie
        plans.remove(best)
        plans.insert(0, best)
    return tuple(replace(plan, planner=best.planner) for plan in plans[:count])
