"""Predictions of grouped, depthwise and small layers agree with the simulator."""

from __future__ import annotations

import random
from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.nmp.plan.plan_reference import conv, dense
from tests.codegen.nmp.plan.test_prediction_simulated import (
    Cascading,
    Given,
    cascaded_graph,
    check_agreement,
    graph_of,
    measured,
)
from tests.codegen.nmp.simulated import simulate
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import output_extent
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.shortlist import shortlist
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Window
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

MOST_ERROR_WITH_WINDOWS = {"nmp-4x8": 0.05, "nmp-4x8-dual": 0.06}
MOST_SMALL_ERROR = {"nmp-4x8": 0.035, "nmp-4x8-dual": 0.1}


def grouped_plan(
    generator: random.Random, problem: ConvProblem, mach: NmpMachine
) -> ConvPlan | None:
    """Some plan whose TLTs have groups of their own and all rows and columns of a TLE's tiles."""
    tlts = mach.cores.tlts_per_tle
    each = problem.filters // problem.groups
    for _ in range(100):
        rows, filters = generator.choice(((1, 4), (2, 2), (1, 3)))
        cut = [generator.choice((1, 1, 2, 3, 4)) for _ in range(3)]
        most = ceil(ceil(problem.groups / filters) / tlts)
        plan = ConvPlan(
            "grouped", "KS&OFM", rows, filters, generator.choice(("OS", "WS", "WS")),  # type: ignore[arg-type]
            each * ceil(most / cut[0]), problem.channels // problem.groups,
            ceil(ceil(problem.rows / rows) / cut[1]), ceil(problem.columns / cut[2]),
            linear_maps=True,
        )  # fmt: skip
        if check_plan(problem, plan, mach) is None:
            return plan
    return None


def simulated_and_predicted(
    problem: ConvProblem, plan: ConvPlan, mach: NmpMachine
) -> tuple[float, float]:
    plan = replace(plan, prediction=predict(problem, plan, mach))
    graph = graph_of(problem)
    program = compile_fixed(graph, mach, Given(plan))
    _, statistics = simulate(program, random_tensors(graph, 1))
    predicted = program.layers[0].predicted_cycles
    assert predicted is not None
    return statistics.layers[0].cycles, predicted


def test_some_tlts_multiply_while_others_load_and_then_store_first() -> None:
    """An int8 layer with a residual: TLTs in two places begin filter part by filter part as their W
    arrives. With one place all wait for IN, which comes last, and take 7 % longer."""
    mach = load_nmp_machine("nmp-4x8")
    problem = conv(64, 32, (14, 14), (3, 3), padding=(1, 1, 1, 1), element_bytes=1,
                   has_residual=True)  # fmt: skip
    one_place = ConvPlan(
        "multicast", "KS", 1, 4, "WS", 2, 32, 14, 14, linear_maps=True, ring_in=True
    )
    two_places = replace(one_place, tile_m=4, tile_r=7, tlt_rows=2)
    times = []
    for plan in (one_place, two_places):
        simulated, predicted = simulated_and_predicted(problem, plan, mach)
        assert predicted == pytest.approx(simulated, rel=0.01)
        times.append(simulated)
    assert times[0] > 1.07 * times[1]
    chosen = planner("exact").plan(problem, mach)
    assert isinstance(chosen, ConvPlan)
    assert replace(chosen, prediction=None, planner="") == two_places


ONE_BUFFER_LAYERS = (
    conv(64, 32, (14, 14), (3, 3), padding=(1, 1, 1, 1), has_residual=True),
    conv(32, 16, (28, 28), (1, 1)),
    conv(128, 64, (14, 14), (1, 1)),
    conv(96, 24, (28, 28), (1, 1)),
    conv(24, 96, (28, 28), (1, 1), has_residual=True),
    conv(48, 16, (14, 14), (3, 3), padding=(1, 1, 1, 1)),
    conv(128, 64, (14, 14), (1, 1), element_bytes=1, has_residual=True),
)


def test_the_best_plans_of_every_spread_with_one_buffer() -> None:
    """Places and filter parts over TLTs, with and without the ring, of one step and many: TLEs want
    the DRAM together, and TLTs that begin first store first. Times err little where plans are good,
    so that the chosen one is hardly slower than any other."""
    mach = load_nmp_machine("nmp-4x8")
    errors, chosen = [], []
    for problem in ONE_BUFFER_LAYERS:
        plans = shortlist(problem, mach, 8, slack=0.2)
        assert not isinstance(plans, Infeasible)
        pairs = [simulated_and_predicted(problem, plan, mach) for plan in plans]
        errors += [abs(predicted / simulated - 1) for simulated, predicted in pairs]
        assert pairs[0][0] <= 1.02 * min(simulated for simulated, _ in pairs)
        chosen.append(errors[-len(pairs)])
    assert np.mean(errors) <= 0.03, errors
    assert np.mean(chosen) <= 0.02, chosen


@pytest.mark.parametrize("depthwise", [False, True])
def test_tlts_that_share_nothing_work_while_others_load(depthwise: bool) -> None:
    """Random grouped layers under random plans, of one round and of many."""
    mach = load_nmp_machine("nmp-4x8")
    generator = random.Random(7)
    pairs = []
    while len(pairs) < 30:
        groups, kernel = generator.choice((4, 8, 16, 32, 64)), generator.choice((3, 5, 7))
        each = 1 if depthwise else generator.choice((2, 4, 8))
        extent = generator.choice((14, 19, 28))
        problem = conv(
            groups * each, groups * each, (extent, extent), (kernel, kernel),
            padding=(kernel // 2,) * 4, groups=groups,
        )  # fmt: skip
        plan = grouped_plan(generator, problem, mach)
        if plan is not None:
            program = compile_fixed(graph_of(problem), mach, Given(
                replace(plan, prediction=predict(problem, plan, mach))))  # fmt: skip
            _, statistics = simulate(program, random_tensors(graph_of(problem), 1))
            cycles = program.layers[0].predicted_cycles
            assert cycles is not None
            pairs.append((cycles, statistics.layers[0].cycles))
    check_agreement(pairs, 0.04)


def test_a_grouped_layer_of_few_rounds() -> None:
    """Four groups on four TLEs: the one TLT of each has nobody to hide behind."""
    mach = load_nmp_machine("nmp-4x8")
    problem = conv(24, 36, (13, 13), (5, 5), padding=(2, 2, 2, 2), groups=4)
    for rows, filters, tile_r in ((1, 4, 13), (2, 2, 7), (1, 4, 5)):
        plan = ConvPlan("grouped", "KS&OFM", rows, filters, "WS", 6, 9, tile_r, 13)
        assert check_plan(problem, plan, mach) is None
        real = measured(graph_of(problem), mach, plan)
        assert predict(problem, plan, mach).cycles == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize("machine", ["nmp-4x8", "nmp-4x8-dual"])
def test_tlts_without_a_place_load_no_biases(machine: str) -> None:
    """One place, eight TLTs along the columns: seven have filters and nothing to add to."""
    mach = load_nmp_machine(machine)
    problem = dense(200, 8)
    plan = ConvPlan("multicast", "KS", 1, 4, "WS", 50, 8, 1, 1, tlt_columns=8)
    plan = replace(plan, prediction=predict(problem, plan, mach))
    program = compile_fixed(graph_of(problem), mach, Given(plan))
    _, statistics = simulate(program, random_tensors(graph_of(problem), 1))
    assert program.layers[0].predicted_cycles == pytest.approx(statistics.layers[0].cycles, rel=0.1)


@pytest.mark.parametrize("machine", ["nmp-4x8", "nmp-4x8-dual"])
def test_most_code_comes_beside_loads(machine: str) -> None:
    """Layers of 3 to 8 lines of code that take 2 to 8 us."""
    mach = load_nmp_machine(machine)
    errors = []
    for problem in (
        conv(8, 16, (8, 8), (3, 3)),
        conv(20, 16, (8, 8), (1, 1)),
        conv(32, 16, (5, 5), (5, 5), padding=(2, 2, 2, 2)),
        conv(16, 16, (13, 13), (5, 5)),
        conv(20, 3, (10, 10), (3, 3), padding=(1, 1, 1, 1)),
        conv(64, 16, (17, 17), (1, 1), stride=(2, 2)),
    ):
        program = compile_fixed(graph_of(problem), mach, "exact")
        _, statistics = simulate(program, random_tensors(graph_of(problem), 1))
        predicted = program.layers[0].predicted_cycles
        assert predicted is not None
        errors.append(abs(predicted / statistics.layers[0].cycles - 1))
    assert np.mean(errors) <= MOST_SMALL_ERROR[machine], errors


@pytest.mark.parametrize("machine", ["nmp-4x8", "nmp-4x8-dual"])
def test_layers_of_few_steps_are_walked(machine: str) -> None:
    """LeNet's and others, which the closed forms miss by 5.7 % on average."""
    mach = load_nmp_machine(machine)
    errors = []
    for problem in (
        conv(20, 1, (28, 28), (5, 5)),
        conv(50, 20, (12, 12), (5, 5)),
        dense(10, 500),
        dense(100, 64),
        conv(32, 16, (9, 9), (1, 1)),
        conv(24, 8, (11, 11), (3, 3)),
    ):
        plan = planner("tso").plan(problem, mach)
        assert isinstance(plan, ConvPlan)
        simulated, predicted = simulated_and_predicted(problem, plan, mach)
        errors.append(predicted / simulated - 1)
    assert np.mean(np.abs(errors)) <= 0.025 and max(map(abs, errors)) <= 0.05, errors


def error_with_window(problem: ConvProblem, window: Window, mach: NmpMachine) -> float:
    """Of the prediction for the plan of `exact`, with what a layer's start takes."""
    plan = planner("exact").plan(replace(problem, window=window), mach)
    assert isinstance(plan, ConvPlan) and plan.prediction is not None
    graph = cascaded_graph(problem, window)
    program = compile_fixed(graph, mach, Cascading(plan))
    _, statistics = simulate(program, random_tensors(graph, 1))
    assert len(statistics.layers) == 1 and program.layers[0].predicted_cycles is not None
    start = program.layers[0].predicted_cycles - 1  # for `Cascading` the plan itself takes 1
    return (plan.prediction.cycles + start) / statistics.layers[0].cycles - 1


def window_behind(
    problem: ConvProblem, extent: int, stride: int, padding: int, has_weights: bool
) -> Window:
    rows = output_extent(problem.rows, extent, stride, 1, 2 * padding)
    return Window(rows, rows, (extent, extent), (stride, stride), (padding, padding), has_weights)


@pytest.mark.parametrize("machine", ["nmp-4x8", "nmp-4x8-dual"])
def test_some_tlts_are_behind_the_window_while_others_multiply(machine: str) -> None:
    """LeNet's first convolution with its pool, then random layers with pools and depthwise
    convolutions behind, of 1 to 11 us."""
    mach = load_nmp_machine(machine)
    lenet = conv(20, 1, (28, 28), (5, 5))
    assert abs(error_with_window(lenet, window_behind(lenet, 2, 2, 0, False), mach)) <= 0.04
    generator = random.Random(5)
    errors = []
    for _ in range(14):
        kernel, channels = generator.choice((1, 3, 5)), generator.choice((1, 3, 4, 8, 16))
        filters, extent = (
            generator.choice((6, 8, 16, 20, 32)),
            generator.choice((8, 10, 14, 20, 24)),
        )
        problem = conv(
            filters, channels, (extent, extent), (kernel, kernel), padding=(kernel // 2,) * 4
        )
        has_weights = generator.random() < 0.3
        size = 3 if has_weights else generator.choice((2, 3))
        stride = generator.choice((1, 2)) if has_weights else generator.choice((2, size))
        window = window_behind(problem, size, stride, int(has_weights), has_weights)
        errors.append(abs(error_with_window(problem, window, mach)))
    assert np.mean(errors) <= MOST_ERROR_WITH_WINDOWS[machine], errors


def test_all_tlts_wait_where_several_load_what_they_share() -> None:
    """IN over the ring, in a part from each TLE: no TLT asks for W of the next step before all are
    through with this one."""
    mach = load_nmp_machine("nmp-4x8")
    head = conv(1280, 320, (7, 7), (1, 1))
    assert abs(error_with_window(head, window_behind(head, 7, 7, 0, False), mach)) <= 0.02
