"""Every planner's plan of layers that nobody chose, compiled and simulated."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.plan.plan_cases import MACHINES, Given, problem_of
from tests.codegen.snowflake.snowflake_cases import machine, near_and_far, outcome
from tests.examples import examples
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.plan.registry import planner, planner_names
from tvm_npu.codegen.snowflake.plan.check import plan_fault
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(36), phases=[Phase.explicit, Phase.generate])
NAMES = planner_names(machine("snowflake-1cc"))


def test_planners_of_the_machine() -> None:
    own = {"snowflake", "exact", "exact-dma", "exact-traffic"}
    assert own | {"eplanner", "double-buffer", "naive", "tso"} <= set(NAMES)


@RANDOM
@given(near_and_far(), MACHINES, st.integers(0, 1 << 30))
def test_every_planners_plan_runs(fixed: FixedGraph, on: SnowflakeMachine, seed: int) -> None:
    problem = problem_of(fixed, on)
    done = set()
    for name in NAMES:
        plan = planner(name).plan(problem, on)
        if isinstance(plan, Infeasible):
            continue
        assert plan_fault(problem, plan, on) is None
        choices = (plan.mode, plan.tile_m, plan.tile_r, plan.tile_c, plan.stays)
        if choices in done:
            continue
        done.add(choices)
        found = outcome(fixed, on, Given(plan), seed)
        assert (found.wrong, found.hazards) == (0, ()), (name, plan)
