"""Single layers on the simulator: the layer that was asked for, the right bits, and what cannot be
measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.plan import plan_reference as reference
from tests.examples import examples
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tune.errors import EmptySpaceError, MeasureError
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine
from tvm_npu.tuning import measure as measuring
from tvm_npu.tuning.measure import LayerMeasure, WrongValuesError, bare
from tvm_npu.tuning.single_layer import random_inputs, single_layer

LAYER = reference.conv(24, 16, (9, 9), (3, 3), padding=(1, 1, 1, 1))
WINDOWS = (
    Window(4, 5, (3, 3), (2, 2), (0, 1)),
    Window(9, 9, (3, 3), (1, 1), (1, 1), has_weights=True),
)


def as_asked(problem: ConvProblem) -> ConvProblem:
    """As the compiler asks it: points have no dilation, and those of a 1x1 map are dense."""
    if problem.kernel == (1, 1):
        problem = replace(problem, dilation=(1, 1))
        maps = (problem.in_rows, problem.in_columns, *problem.padding)
        if maps == (1, 1, 0, 0, 0, 0):
            problem = replace(problem, stride=(1, 1), is_dense=problem.groups == 1)
    return problem


@given(reference.convs().map(as_asked), reference.machines(largest=4096), st.integers(0, 99))
@settings(max_examples=examples(40), deadline=None)
def test_random_plans_of_random_layers_run_to_the_bit(
    problem: ConvProblem, machine: NmpMachine, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    try:
        plan = ConvSpace(problem, machine).sample(generator)
    except EmptySpaceError:
        return
    assert LayerMeasure(problem, machine)(plan) > 0


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_random_plans_of_cascades_run_to_the_bit(name: str, window: Window) -> None:
    problem, machine = replace(LAYER, window=window), load_nmp_machine(name)
    space, measure = ConvSpace(problem, machine), LayerMeasure(problem, machine)
    generator = np.random.default_rng(0)
    plan = space.sample(generator)
    for _ in range(12):
        assert measure(plan) > 0
        plan = space.neighbour(plan, generator)


@pytest.mark.parametrize("element_bytes", [1, 2])
def test_results_spread_over_the_element_type(element_bytes: int) -> None:
    """Zeros or saturated values would hide mistakes."""
    graph = single_layer(replace(LAYER, element_bytes=element_bytes, has_residual=True))
    values = run_fixed(graph, random_inputs(graph))["y"]
    limit = 2 ** (8 * element_bytes - 1)
    assert limit / 16 < values.std() < limit / 1.5
    assert (np.abs(values.astype(int)) >= limit - 1).mean() < 0.3


def test_equal_plans_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_nmp_machine("nmp-4x8")
    measure = LayerMeasure(LAYER, machine)
    plan = planner("exact").plan(LAYER, machine)
    assert isinstance(plan, ConvPlan) and plan.prediction is not None
    cycles = measure(bare(plan))
    assert cycles == pytest.approx(plan.prediction.cycles, rel=0.5)
    monkeypatch.setattr(measuring, "compile_fixed", None)
    assert measure(bare(plan)) == cycles


def test_plans_that_cannot_be_measured() -> None:
    machine = load_nmp_machine("nmp-4x8")
    measure = LayerMeasure(LAYER, machine)
    large = ConvPlan("multicast", "KS", 1, 1, "OS", 3, 16, 9, 9, buffers=2)
    for _ in range(2):
        with pytest.raises(MeasureError, match=r"takes memories.ports = 2"):
            measure(large)


def test_a_plan_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FEWEST_INSTRUCTIONS", 500)
    plan = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 1, 1, 1)
    with pytest.raises(MeasureError, match="still running after"):
        LayerMeasure(LAYER, load_nmp_machine("nmp-4x8"))(plan)


def test_wrong_values_are_no_bad_luck() -> None:
    """Nothing that a tuner may go on after."""
    machine = load_nmp_machine("nmp-4x8")
    measure = LayerMeasure(LAYER, machine)
    measure._expected[0, 3, 2, 1] ^= 1
    plan = planner("tso").plan(LAYER, machine)
    assert isinstance(plan, ConvPlan)
    with pytest.raises(WrongValuesError, match="1 of 1944 elements differ") as caught:
        measure(bare(plan))
    assert not isinstance(caught.value, MeasureError)
