"""IN tiles that are no whole rows as 1-D transfers, one for each channel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.nmp.plan.plan_reference import conv
from tests.codegen.nmp.plan.test_prediction_simulated import Given, graph_of
from tests.codegen.nmp.simulated import simulate
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.nmp.plan.by_channels import both_ways, may_load_by_channels
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.rows_apart import with_rows_apart
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import load_nmp_machine
from tvm_npu.sim.statistics import LayerStatistics

POINT = conv(64, 48, (14, 56), (1, 1))
STRIDED = conv(64, 96, (56, 56), (1, 1), stride=(2, 2))
"""Read in rows apart."""
KERNEL = conv(64, 16, (20, 40), (3, 3))
PLAN = ConvPlan(
    "multicast", "KS", 1, 4, "OS", 2, 8, 4, 28, ring_in=True, weights="tiles", linear_maps=True
)
CASES: dict[str, tuple[ConvProblem, ConvPlan]] = {
    "half rows": (POINT, PLAN),
    "all rows": (POINT, replace(PLAN, tile_r=14, tile_n=4)),
    "rows apart": (STRIDED, PLAN),
    "all rows apart": (STRIDED, replace(PLAN, tile_r=28, tile_n=1)),
    "places of TLTs": (POINT, replace(PLAN, tlt_rows=2, tlt_columns=2, tile_m=4, tile_c=14)),
    "kernel": (KERNEL, replace(PLAN, tile_c=19, tile_n=6)),
    "ragged": (STRIDED, replace(PLAN, tile_r=3, tile_c=23, tile_n=7)),
}


def asked_of(problem: ConvProblem) -> ConvProblem:
    return problem if problem.stride == (1, 1) else with_rows_apart(problem)


def run(problem: ConvProblem, plan: ConvPlan, name: str) -> tuple[LayerStatistics, float]:
    """To the bit; what was simulated, and the predicted cycles."""
    machine = load_nmp_machine(name)
    graph, asked = graph_of(problem), asked_of(problem)
    if asked is not problem:
        (layer,) = graph.layers
        graph = replace(graph, layers=(replace(layer, reads_rows_apart=True),))  # type: ignore[call-arg]
    assert check_plan(asked, plan, machine) is None
    plan = replace(plan, prediction=predict(asked, plan, machine))
    program = compile_fixed(graph, machine, Given(plan))
    inputs = random_tensors(graph, 1)
    outputs, statistics = simulate(program, inputs)
    expected = run_fixed(graph, {name: value[None] for name, value in inputs.items()})
    np.testing.assert_array_equal(outputs["y"], expected["y"][0])
    return statistics.layers[0], program.layers[0].predicted_cycles or 0.0


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2])
def test_the_same_bytes_in_less_time(size: int, case: str, buffers: int) -> None:
    problem, plan = CASES[case]
    problem = replace(problem, element_bytes=size)
    plan = replace(plan, buffers=buffers)  # type: ignore[arg-type]
    name = "nmp-4x8" if buffers == 1 else "nmp-4x8-dual"
    assert may_load_by_channels(asked_of(problem), plan)
    box, _ = run(problem, plan, name)
    layer, _ = run(problem, replace(plan, in_by_channels=True), name)
    assert layer.moved_bytes == box.moved_bytes
    assert layer.cycles < box.cycles


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_exact_takes_them_for_a_strided_layer(name: str) -> None:
    """Of ResNet-50: 256 channels of a map of 56 x 56, of which every other row is read."""
    problem = conv(128, 256, (56, 56), (1, 1), stride=(2, 2))
    machine, asked = load_nmp_machine(name), with_rows_apart(problem)
    plan = planner("exact").plan(asked, machine)
    assert isinstance(plan, ConvPlan) and plan.in_by_channels
    layer, found = run(problem, plan, name)
    assert found == pytest.approx(layer.cycles, rel=0.05)
    boxes = predict(asked, replace(plan, in_by_channels=False), machine)
    assert found < 0.85 * boxes.cycles


@pytest.mark.parametrize(
    ("problem", "plan", "may"),
    [
        (POINT, replace(PLAN, tile_c=56), False),
        (POINT, replace(PLAN, tile_c=56, linear_maps=False), True),
        (conv(8, 8, (8, 8), (3, 3), padding=(1, 1, 1, 1)), replace(PLAN, tile_c=4), False),
        (conv(8, 8, (8, 8), (1, 1), groups=8), replace(PLAN, mode="grouped", tile_c=4), False),
        (with_rows_apart(STRIDED), PLAN, True),
    ],
)
def test_where_it_may_help(problem: ConvProblem, plan: Any, may: bool) -> None:
    assert may_load_by_channels(problem, plan) == may
    ways = list(both_ways(problem, (plan,)))
    assert [one.in_by_channels for one in ways] == [False, True][: 1 + may]


def test_padding_is_read_as_a_box() -> None:
    problem = conv(8, 8, (8, 8), (3, 3), padding=(1, 1, 1, 1))
    plan = replace(PLAN, tile_m=1, tile_c=4, tile_r=4, in_by_channels=True)
    found = check_plan(problem, plan, load_nmp_machine("nmp-4x8"))
    assert found is not None and "padding with in_by_channels" in str(found)
