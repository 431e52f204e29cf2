"""The planner of least traffic on NMPs: of no layer more than `exact`, and what it says is what the
simulator moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, random_tensors
from tests.codegen.nmp.simulated import simulate
from tests.codegen.nmp.test_blocks import blocks
from tests.codegen.nmp.test_sums import sums
from tests.codegen.nmp.test_twin_blocks import fires
from tests.codegen.nmp.test_wide_plans import machines
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import Generated, generate
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine


def generated(fixed: FixedGraph, machine: NmpMachine, name: str) -> Generated:
    try:
        return generate(fixed, machine, planner(name))
    except PlanningError:
        assume(False)
        raise


def touches_input(problem: ConvProblem | BlockProblem | SumProblem) -> bool:
    """Every place of the OFM sees some of the IFM. A tile that sees none loads a row all the same,
    which predictions leave out."""
    if isinstance(problem, SumProblem):
        return touches_input(problem.first) and touches_input(problem.second)
    conv = problem.head if isinstance(problem, BlockProblem) else problem
    spans = conv.in_tile_rows(1), conv.in_tile_columns(1)
    return all(edge < spans[axis % 2] for axis, edge in enumerate(conv.padding))


def all_have_work(problem: ConvProblem | SumProblem, plan: ConvPlan) -> bool:
    """No slice is empty. A TLE without rows that takes IN tiles over the ring loads its weights all
    the same, which predictions leave out."""
    conv = problem.second if isinstance(problem, SumProblem) else problem
    most = conv.out_rows, conv.out_columns, conv.filters
    slices = plan.row_slices, plan.column_slices, plan.filter_slices
    return all(one <= limit for one, limit in zip(slices, most, strict=True))


def by_question(fixed: FixedGraph, made: Generated, seed: int) -> dict[Any, int]:
    """Bytes that each layer with MACs moves in a run of the simulator, to the bit: what its plan
    says."""
    images = random_tensors(fixed, seed)
    outputs, statistics = simulate(made.program(), images)
    wanted = run_fixed(fixed, {name: one[None] for name, one in images.items()})
    for name in fixed.outputs:
        np.testing.assert_array_equal(outputs[name], wanted[name][0])
    found = {}
    for planned, layer in zip(made.planned.layers, statistics.layers, strict=True):
        if isinstance(planned.plan, ConvPlan | BlockPlan):
            assert planned.plan.prediction is not None
            said = planned.plan.prediction.moved_bytes
            if isinstance(planned.plan, BlockPlan):
                # Where TLTs have unequal shares of the last filters, all count as the largest.
                assert said >= layer.moved_bytes or not touches_input(planned.problem)
            elif touches_input(planned.problem) and all_have_work(planned.problem, planned.plan):
                assert said == layer.moved_bytes
            found[planned.problem] = layer.moved_bytes
    return found


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(max_examples=examples(15), deadline=None, suppress_health_check=FILTERED)
def test_it_moves_what_it_says_and_no_more_than_exact(
    element_bytes: int, ports: int, data: st.DataObject
) -> None:
    machine = data.draw(machines(ports))
    kinds = {
        "layer": convolutions(element_bytes),
        "block": blocks(element_bytes, with_window=False),
        "block behind a window": blocks(element_bytes, with_window=True),
        "fire module": fires(element_bytes, with_pool=False),
        "sum": sums(element_bytes),
    }
    fixed = data.draw(kinds[data.draw(st.sampled_from(sorted(kinds)))])
    made, exact = (generated(fixed, machine, name) for name in ("exact-traffic", "exact"))
    seed = data.draw(SEEDS)
    moved, most = by_question(fixed, made, seed), by_question(fixed, exact, seed)
    for problem in moved.keys() & most.keys():
        assert moved[problem] <= most[problem]
