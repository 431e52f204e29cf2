"""The planner: its plan with a proof, and the fastest plan of every family."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_search import plan_block
from tvm_npu.codegen.nmp.plan.cascade import plan_cascade
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.exact import bounds, search
from tvm_npu.codegen.nmp.plan.exact.layer import parts_of, plainest
from tvm_npu.codegen.nmp.plan.sum_search import plan_sum, with_room
from tvm_npu.codegen.nmp.plan.tso import TsoPlanner
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

SLACK = 0.25
"""Plans of the whole of a sum up to so much above the fastest one are looked at: a sum loads and
stores less."""


@dataclass(frozen=True)
class Proof:
    """A plan and why none is faster.

    ``bound_cycles`` is a lower bound on every plan of the space: the least of the plan's own time
    and of the bounds of all that was not opened, so it equals the plan's time. ``classes`` of
    tiles were bounded, ``opened`` of them searched, and ``evaluated`` plans timed.
    """

    plan: ConvPlan
    bound_cycles: float
    classes: int
    opened: int
    evaluated: int


@dataclass(frozen=True)
class ExactPlanner:
    """Proven least predicted time over every spread, mode, schedule and tile of a convolution; for
    one with a window behind it, what `plan_cascade` finds, for a block, what `plan_block` does."""

    limits: TileLimits = NO_LIMITS
    name: str = "exact"
    uses_ring: bool = True
    cascades: bool = True

    @property
    def plans_windows(self) -> bool:
        """A window takes its input over the ring of its TLE."""
        return self.uses_ring and self.cascades

    @property
    def plans_blocks(self) -> bool:
        """What a block passes on goes over rings, too."""
        return self.plans_windows

    @property
    def plans_sums(self) -> bool:
        """What waits for a second convolution goes over the ring of its TLE."""
        return self.plans_windows

    @overload
    def plan(
        self, problem: ConvProblem | SumProblem, machine: NmpMachine
    ) -> ConvPlan | Infeasible: ...

    @overload
    def plan(self, problem: BlockProblem, machine: NmpMachine) -> BlockPlan | Infeasible: ...

    def plan(
        self, problem: ConvProblem | BlockProblem | SumProblem, machine: NmpMachine
    ) -> ConvPlan | BlockPlan | Infeasible:
        if isinstance(problem, SumProblem):
            return self._plan_sum(problem, machine)
        if isinstance(problem, BlockProblem):
            return plan_block(problem, machine, self.limits, self.name)
        if problem.window is not None:
            return plan_cascade(problem, machine, self.limits, self.name, self.uses_ring)
        return self._plan_layer(problem, machine)

    def _plan_layer(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        """The search finds one plan, and tries on it what is no part of the space; the fastest plan
        without the ring may gain more by that."""
        first = TsoPlanner(limits=self.limits).plan(problem, machine)
        if isinstance(first, Infeasible):
            return first
        rings = (True, False) if self.uses_ring and machine.ring is not None else (False,)
        proofs = [
            _search(problem, machine, self.limits, self.name, uses_ring, first)
            for uses_ring in rings
        ]
        return min((proof.plan for proof in proofs), key=predicted_cycles)

    def _plan_sum(self, problem: SumProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        whole = with_room(problem)
        if problem.second.is_dense or machine.ring is None:
            return plan_sum(problem, machine, self.name, ())
        best = plan_with_proof(whole, machine, self.limits, self.name)
        if isinstance(best, Infeasible):
            return best
        most_cycles = best.bound_cycles * (1 + SLACK)
        families = fastest_by_family(whole, machine, self.limits, most_cycles)
        return plan_sum(problem, machine, self.name, (best.plan, *families))


def plan_with_proof(
    problem: ConvProblem,
    machine: NmpMachine,
    limits: TileLimits = NO_LIMITS,
    name: str = "exact",
    uses_ring: bool = True,
) -> Proof | Infeasible:
    """The fastest plan with the numbers of its search. Infeasible exactly when TSO finds nothing:
    a tile of one filter, channel and place fits, or none does, under any spread and schedule, and
    biases fit best where the filters are spread over all TLEs."""
    first = TsoPlanner(limits=limits).plan(problem, machine)
    if isinstance(first, Infeasible):
        return first
    return _search(problem, machine, limits, name, uses_ring, first)


def _search(
    problem: ConvProblem,
    machine: NmpMachine,
    limits: TileLimits,
    name: str,
    uses_ring: bool,
    first: ConvPlan,
) -> Proof:
    """What is faster than ``first``, or that with the proof that nothing is."""
    plan, first_cycles = first, predicted_cycles(first)
    best = first_cycles * (1 + bounds.SLACK)  # so that a tie is found as well
    bound = first_cycles
    totals = [0, 0, 0]
    found: ConvPlan | None = None
    for part in parts_of(problem, machine, limits, uses_ring):
        bounds_each = part.bounds()
        (numbers,) = np.nonzero(bounds_each < best)
        bound = min(bound, bounds_each[bounds_each >= best].min(initial=math.inf))
        best, least, chosen, counts = part.fastest(numbers, bounds_each[numbers], best)
        bound = min(bound, least)
        totals = [total + int(count) for total, count in zip(totals, counts, strict=True)]
        if chosen[search.TILE_M]:
            found = part.plan(chosen)
    if found is not None:
        found = plainest(problem, found, machine)
        if predicted_cycles(found) <= first_cycles:
            plan = found
    plan = replace(plan, planner=name)
    return Proof(plan, min(bound, predicted_cycles(plan)), *totals)


def predicted_cycles(plan: ConvPlan) -> float:
    """Of a plan that has its prediction."""
    assert plan.prediction is not None
    return plan.prediction.cycles


def fastest_by_family(
    problem: ConvProblem, machine: NmpMachine, limits: TileLimits, most_cycles: float
) -> list[ConvPlan]:
    """The fastest plan below ``most_cycles`` of every family (a spread over TLEs and TLTs, a
    schedule, ring, buffers) that has one, for a problem without a window."""
    found = []
    for part in parts_of(problem, machine, limits, uses_ring=True):
        bounds_each = part.bounds()
        for number in np.flatnonzero(bounds_each < most_cycles):
            own = slice(number, number + 1)
            fastest = part.fastest(np.array([number]), bounds_each[own], most_cycles)
            if fastest.chosen[search.TILE_M]:
                found.append(plainest(problem, part.plan(fastest.chosen), machine))
    return found
