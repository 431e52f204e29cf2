"""Plans that load less of the input, or of the weights: computed to the bit, with the bytes and
about the time that they predict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.plan.loops.tile_cases import layer, setup, small
from tests.codegen.tiles.tile_cases import Given
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.loops.cost import predict_loops
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tiles.ir.run import random_layer
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.runtime.session import Session


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize(
    ("problem", "plan"),
    [
        # The second tile has 8 rows, the first, behind 3 of padding, 5: channels must not move
        # onto rows of others that have not moved yet.
        (layer(4, 6, 12, kernel=5, padding=3), LoopPlan(4, 6, 4, 12, ("M", "N", "C", "R"))),
        (layer(4, 6, 12, kernel=7, stride=2), LoopPlan(4, 3, 5, 12, ("N", "C", "M", "R"))),
        (layer(4, 6, 12, has_residual=True), LoopPlan(2, 6, 5, 7, ("N", "C", "R", "M"))),
        (layer(6, 6, 12, groups=3), LoopPlan(2, 2, 3, 12, ("M", "N", "C", "R"), tile_groups=2)),
    ],
)
def test_kept_rows_run_as_predicted(problem: ConvProblem, plan: LoopPlan, buffers: int) -> None:
    plain = replace(plan, buffers=buffers)  # type: ignore[arg-type]
    _check(problem, plain, replace(plain, keeps_rows=True))


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize(
    ("problem", "plan"),
    [
        (layer(6, 9, 12), LoopPlan(4, 4, 5, 7, ("R", "C", "M", "N"), resident="IN")),
        (layer(6, 9, 12), LoopPlan(2, 3, 4, 12, ("C", "R", "M", "N"), resident="IN")),
        (layer(6, 9, 12), LoopPlan(4, 4, 5, 7, ("M", "R", "C", "N"), resident="W")),
        (layer(6, 9, 12), LoopPlan(6, 2, 3, 12, ("M", "R", "N", "C"), resident="W")),
        (
            layer(6, 9, 12, has_residual=True),
            LoopPlan(3, 2, 5, 7, ("M", "R", "C", "N"), resident="W"),
        ),
        (layer(8, 8, 12, groups=2), LoopPlan(2, 3, 5, 7, ("M", "C", "R", "N"), resident="W")),
        (layer(8, 8, 12, groups=2), LoopPlan(2, 3, 5, 7, ("C", "R", "M", "N"), resident="IN")),
    ],
)
def test_resident_tiles_run_as_predicted(
    problem: ConvProblem, plan: LoopPlan, buffers: int
) -> None:
    """Those of groups, too, behind each other."""
    plan = replace(plan, buffers=buffers)  # type: ignore[arg-type]
    _check(problem, replace(plan, resident=""), plan)


@pytest.mark.parametrize("buffers", [1, 2])
def test_places_of_padding_alone_end_what_is_resident(buffers: int) -> None:
    """Tiles of the place before come again behind them, each to its own bytes."""
    problem = replace(layer(4, 3, 8, kernel=1), in_columns=4, padding=(0, 0, 0, 4))
    order = ("R", "M", "N", "C")
    plan = LoopPlan(1, 1, 8, 4, order, resident="IN", buffers=buffers)  # type: ignore[arg-type]
    fixed = random_layer(problem, 1, seed=3)
    tensors = random_tensors(fixed, 4)
    expected = run_fixed(fixed, {name: value[None] for name, value in tensors.items()})
    session = Session(compile_fixed(fixed, small(384 * buffers, 4096, 4096), Given(plan)))
    (found,) = session.run_fixed([tensors[name][None] for name in fixed.inputs])
    np.testing.assert_array_equal(found, expected["y"])


@pytest.mark.parametrize("tile", [(5, 7), (1, 6), (6, 1), (2, 2)])
def test_touched_values_run_as_predicted(tile: tuple[int, int]) -> None:
    """Maps that end at the last touched value, and behind it."""
    problem = layer(4, 6, 7, kernel=1, stride=3, padding=0)
    plan = LoopPlan(4, 6, *tile)
    _check(problem, plan, replace(plan, touched_only=True))
    wider = replace(problem, in_rows=problem.in_rows + 1, in_columns=problem.in_columns + 2)
    _check(wider, plan, replace(plan, touched_only=True))


@pytest.mark.parametrize("groups", [1, 8])
def test_taps_at_once_run_as_predicted(groups: int) -> None:
    """Few channels in a tile: a first layer's, and a depthwise one's."""
    problem = layer(24, 3 if groups == 1 else 8, 20, kernel=5, groups=groups)
    machine = setup("a-taps")
    one, several = (
        planner("exact").plan(problem, where).prediction for where in (setup("a"), machine)
    )
    assert several.mac_cycles < one.mac_cycles / 3
    plan = planner("exact").plan(problem, machine)
    fixed = random_layer(problem, 1, seed=5)
    tensors = random_tensors(fixed, 6)
    session = Session(compile_fixed(fixed, machine, Given(plan)))
    (found,) = session.run_fixed([tensors[name][None] for name in fixed.inputs])
    expected = run_fixed(fixed, {name: value[None] for name, value in tensors.items()})
    np.testing.assert_array_equal(found, expected["y"])
    assert session.statistics is not None
    assert session.statistics.busy_cycles("mac")[0] == pytest.approx(several.mac_cycles, rel=0.01)


def _check(problem: ConvProblem, plain: LoopPlan, less: LoopPlan) -> None:
    machine = setup("a")
    said, more = (predict_loops(problem, one, loop_machine(machine)) for one in (less, plain))
    assert said.in_bytes + said.weight_bytes < more.in_bytes + more.weight_bytes
    fixed = random_layer(problem, 1, seed=3)
    tensors = random_tensors(fixed, 4)
    expected = run_fixed(fixed, {name: value[None] for name, value in tensors.items()})
    session = Session(compile_fixed(fixed, machine, Given(less)))
    (found,) = session.run_fixed([tensors[name][None] for name in fixed.inputs])
    np.testing.assert_array_equal(found, expected["y"])
    statistics = session.statistics
    assert statistics is not None
    loaded = statistics.loaded_bytes
    assert loaded["in"] + loaded.get("residual", 0) == said.in_bytes
    assert loaded["weight"] + loaded["bias"] == said.weight_bytes
    # With two buffers predictions take tiles of one kind to be equally large; these are not.
    assert statistics.cycles == pytest.approx(said.cycles, rel=0.02 if less.buffers == 1 else 0.06)


def test_the_first_layer_of_resnet_moves_every_value_once() -> None:
    """With its padding in the input, as other mappers see it."""
    problem = layer(64, 3, 112, kernel=7, stride=2, padding=0)
    plan = planner("exact-traffic").plan(problem, setup("a"))
    said = plan.prediction
    elements = 3 * 229 * 229 + 64 * 3 * 49 + 64 + 64 * 112 * 112
    assert said.in_bytes + said.weight_bytes + said.out_bytes == 4 * elements
    assert plan.keeps_rows
