"""Layers that nothing fits, machines with absurd constants: a sound plan or a clear refusal."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.plan.plan_reference import (
    NMP_PLANNERS,
    conv,
    convs,
    dense,
    machine,
    machines,
)
from tests.examples import examples
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.traffic import least_bias_bytes
from tvm_npu.codegen.plan import plan_all, planner, planner_fault, planner_on
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict

LAYERS = (
    conv(24, 10, (13, 9), (3, 3), padding=(1, 1, 1, 1)),
    conv(16, 12, (12, 12), (1, 1), (2, 2), has_residual=True),
    conv(18, 18, (10, 11), (3, 3), padding=(1, 1, 1, 1), groups=18, element_bytes=1),
    dense(50, 120),
)
ABSURD: dict[str, dict[str, Any]] = {
    "nothing costs anything": {
        "dme.setup_cycles": 0.0, "dme.burst_cycles": 0.0, "dme.bytes_per_cycle": 1e6,
        "dram.cas_cycles": 0.0, "dram.bytes_per_cycle": 1e6, "mac.setup_cycles": 0.0,
        "mac.efficiency": 1.0, "mac.datapath_bits": 8192,
    },
    "everything costs most": {
        "dme.setup_cycles": 1e6, "dme.burst_cycles": 1e6, "dme.bytes_per_cycle": 0.01,
        "dram.cas_cycles": 1e6, "dram.bytes_per_cycle": 0.01, "mac.setup_cycles": 1e6,
        "mac.efficiency": 0.001, "mac.datapath_bits": 16,
    },
    "smallest scratchpads": {
        f"memories.{name}_bytes": 64 for name in ("mb0", "mb1", "mb2", "bias")
    },
    "scratchpads larger than any layer": {
        f"memories.{name}_bytes": 1 << 23 for name in ("mb0", "mb1", "mb2")
    },
    "one core": {"cores.tles": 1, "cores.tlts_per_tle": 1},
    "odd numbers of cores": {"cores.tles": 7, "cores.tlts_per_tle": 5},
    "shortest bursts": {"dram.burst_bytes": 8},
    "bursts of no whole elements": {"dram.burst_bytes": 9},
    "longest bursts": {"dram.burst_bytes": 4096},
}  # fmt: skip


def changed(name: str, changes: dict[str, Any]) -> NmpMachine:
    values = load_nmp_machine(name).model_dump()
    for key, value in changes.items():
        part, _, last = key.partition(".")
        values[part][last] = value
    return nmp_machine_from_dict(values)


@pytest.mark.parametrize("base", ["nmp-4x8", "nmp-4x8-dual"])
@pytest.mark.parametrize("name", NMP_PLANNERS)
@pytest.mark.parametrize("case", ABSURD)
def test_absurd_machines_get_sound_plans(case: str, name: str, base: str) -> None:
    mach = changed(base, ABSURD[case])
    for problem, plan in zip(LAYERS, plan_all(LAYERS, planner(name), mach), strict=True):
        assert isinstance(plan, ConvPlan), plan
        assert plan.prediction is not None
        assert 0 < plan.prediction.cycles < math.inf
        assert check_plan(problem, plan, mach) is None


def too_large(problem: ConvProblem, mach: NmpMachine) -> str | None:
    """The buffer that a layer cannot do without more of, by the rules that users read."""
    memories, size = mach.memories, problem.element_bytes
    if problem.in_tile_rows(1) * problem.in_tile_columns(1) * size > memories.mb0_bytes:
        return "MB0"
    if problem.kernel[0] * problem.kernel[1] * size > memories.mb1_bytes:
        return "MB1"
    if least_bias_bytes(problem.filters // problem.groups, mach) > memories.bias_bytes:
        return "the bias buffer"
    return None


@st.composite
def cramped(draw: st.DrawFn) -> tuple[ConvProblem, NmpMachine]:
    """Windows, kernels and biases about as large as the buffers."""
    kernel = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    problem = conv(
        groups * draw(st.integers(1, 60)), groups * draw(st.integers(1, 3)), (17, 17), kernel,
        dilation=dilation, groups=groups, element_bytes=draw(st.sampled_from((1, 2))),
    )  # fmt: skip
    sizes = st.integers(8, 24).map(lambda n: 8 * n)
    mach = machine(
        draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, 3)),
        (draw(sizes), draw(sizes), draw(sizes), 64),
    )  # fmt: skip
    return problem, mach


@settings(max_examples=examples(150), deadline=None)
@given(
    cramped() | st.tuples(convs(), machines(largest=128)),
    st.sampled_from((*NMP_PLANNERS, "eplanner", "naive")),
)
def test_planners_refuse_just_what_the_rules_refuse(
    layer: tuple[ConvProblem, NmpMachine], name: str
) -> None:
    """What the door lets through is planned; what no plan fits says which buffer is too small."""
    problem, mach = layer
    plan = planner(name).plan(problem, mach)
    wanted = too_large(problem, mach)
    if wanted is None:
        assert isinstance(plan, ConvPlan), plan
        assert check_plan(problem, plan, mach) is None
    else:
        assert isinstance(plan, Infeasible)
        assert plan.buffer == wanted
        assert plan.needed_bytes > plan.available_bytes
        for part in (plan.buffer, str(plan.needed_bytes), str(plan.available_bytes), "raise"):
            assert part in str(plan)


@settings(max_examples=examples(50), deadline=None)
@given(cramped())
def test_more_of_the_buffer_that_is_named_helps(layer: tuple[ConvProblem, NmpMachine]) -> None:
    """Granting what an Infeasible asks for, again and again, ends in a plan."""
    problem, mach = layer
    keys = {"MB0": "mb0_bytes", "MB1": "mb1_bytes", "the bias buffer": "bias_bytes"}
    for _ in range(len(keys) + 1):
        plan = planner("tso").plan(problem, mach)
        if isinstance(plan, ConvPlan):
            return
        values = mach.model_dump()
        values["memories"][keys[plan.buffer]] = -(-plan.needed_bytes // 8) * 8
        mach = nmp_machine_from_dict(values)
    pytest.fail(f"still infeasible: {plan}")


def test_a_planner_of_another_kind_is_refused_with_those_of_this_one() -> None:
    machine = load_nmp_machine("nmp-4x8")
    with pytest.raises(
        PlanningError, match="does not plan machine 'nmp-4x8' of .*; tso, .*exact.* do"
    ):
        planner_on(planner("snowflake"), machine)
    assert planner_fault("exact", machine) is planner_fault("learned", machine) is None


@pytest.mark.parametrize("name", ["", "TSO", "exact ", "fixed", "eplanner2"])
def test_unknown_planners_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(PlanningError, match=f"unknown planner {name!r}; known planners: tso, "):
        planner(name)
