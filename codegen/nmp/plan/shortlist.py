"""The best plans of a layer by the cost model, not only the best one: for those who know more than
the cost model does.

Neighbouring tiles of one spread cost nearly the same and err alike, so the list has one plan a
family (a spread over TLEs and TLTs, a schedule, ring, buffers): its fastest, proven as `exact`
proves its own, which is the first of the list.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from tvm_npu.codegen.nmp.plan import exact, exact_bounds
from tvm_npu.codegen.nmp.plan import exact_search as search
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.exact_space import Facts, space
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
    best = exact.ExactPlanner(limits).plan(problem, machine)
    if isinstance(best, Infeasible) or problem.window is not None:
        return best if isinstance(best, Infeasible) else (best,)
    assert best.prediction is not None
    found = [best, *_families(problem, machine, limits, best.prediction.cycles * (1 + slack))]
    tso = TsoPlanner(limits=limits).plan(problem, machine)
    if not isinstance(tso, Infeasible) and _predicted(tso) < best.prediction.cycles * (1 + slack):
        found.append(tso)
    unique = {replace(plan, prediction=None, planner=""): plan for plan in reversed(found)}
    plans = sorted(reversed(unique.values()), key=_predicted)
    if plans[0] is not best:  # a tie
        plans.remove(best)
        plans.insert(0, best)
    return tuple(replace(plan, planner=best.planner) for plan in plans[:count])


def _predicted(plan: ConvPlan) -> float:
    assert plan.prediction is not None
    return plan.prediction.cycles


def _families(
    problem: ConvProblem, machine: NmpMachine, limits: TileLimits, most_cycles: float
) -> list[ConvPlan]:
    """The fastest plan below ``most_cycles`` of every family that has one."""
    room, speeds = exact._room(machine, limits), exact._speeds(machine)
    cores = machine.cores
    facts = Facts(cores.tles, cores.tlts_per_tle, machine.ring is not None, machine.memories.ports)
    modes: tuple[exact.Mode, ...] = ("multicast",)
    if problem.groups > 1:
        modes = ("multicast", "grouped")
    layouts = (True, False) if speeds.linear_burst > speeds.burst else (True,)
    found = []
    for mode, linear in product(modes, layouts):
        spreads = space(facts, mode == "grouped")
        task = exact._task(problem, machine, mode, linear)
        tables = exact._tables(task, spreads, facts)
        layer = (task, room, speeds, *tables, spreads.families)
        queue, bounds, _, _ = exact_bounds.bound_classes(*(*layer, most_cycles))
        for family in np.unique(queue[:, 0]):
            own = queue[:, 0] == family
            order = np.argsort(bounds[own], kind="stable")
            _, _, chosen, _ = search.open_classes(
                *(*layer, queue[own][order], bounds[own][order], most_cycles)
            )
            if chosen[search.TILE_M]:
                plan = exact._plan(task, mode, linear, spreads, chosen)
                found.append(exact.plainest(problem, plan, machine))
    return found
