"""Tile plans that are drawn and changed are sound, and survive being written down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.plan.loops import tile_cases as cases
from tests.examples import examples
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.plan import LOOPS, LoopPlan, trips
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.codegen.tiles.tune.tile_features import FEATURE_NAMES
from tvm_npu.codegen.tiles.tune.tile_room import excess_of, fill_shares
from tvm_npu.codegen.tiles.tune.tile_space import TileSpace
from tvm_npu.codegen.tune.errors import EmptySpaceError
from tvm_npu.codegen.tune.extents import drawn_extent, moved_extent
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.sim.tiles.machine import TileMachine

MACHINES = (cases.small(), cases.shared(), cases.setup("a"))
SEEDS = st.integers(0, 2**31)
LAYER = cases.layer(64, 32, 14)


def walk(space: TileSpace, seed: int, length: int) -> Iterator[LoopPlan]:
    generator = np.random.default_rng(seed)
    plan = space.sample(generator)
    for _ in range(length):
        yield plan
        plan = space.neighbour(plan, generator)


@given(cases.problems(), st.sampled_from(MACHINES), SEEDS)
@settings(max_examples=examples(80), deadline=None)
def test_drawn_plans_are_sound_and_round_trip(
    problem: ConvProblem, machine: TileMachine, seed: int
) -> None:
    space = TileSpace(problem, machine)
    try:
        plans = list(walk(space, seed, 4))
    except EmptySpaceError:
        smallest = LoopPlan(1, 1, 1, 1, buffers=1)
        assert check_loop_plan(problem, smallest, loop_machine(machine)) is not None
        return
    for plan in plans:
        assert check_loop_plan(problem, plan, loop_machine(machine)) is None
        assert space.decode(json.loads(json.dumps(space.encode(plan)))) == plan
        assert all(0 < share <= 1 for share in fill_shares(problem, plan, machine))
    features = space.features(plans)
    assert features.shape == (4, len(FEATURE_NAMES)) and np.isfinite(features).all()
    assert space.features([]).shape == (0, len(FEATURE_NAMES))


@given(st.data(), st.sampled_from(MACHINES))
@settings(max_examples=examples(150), deadline=None)
def test_what_fits_is_what_the_checker_says(data: st.DataObject, machine: TileMachine) -> None:
    problem = data.draw(cases.problems())
    plan = data.draw(cases.plans(problem))
    fits = check_loop_plan(problem, plan, loop_machine(machine)) is None
    assert (excess_of(problem, plan, machine) is None) == fits


def test_a_space_holds_every_choice() -> None:
    space = TileSpace(cases.layer(64, 64, 28), cases.small(8192, 4096, 8192))
    space = replace(space, layer=replace(space.layer, filters=16))
    drawn = list(walk(space, 1, 1500))
    many = [p for p in drawn if all(trips(space.layer, p, loop) > 1 for loop in LOOPS)]
    assert {plan.order[-1] for plan in many} == set(LOOPS)
    assert len({plan.order for plan in many}) > 12
    assert {plan.buffers for plan in drawn} == {1, 2}
    assert len({plan.tile_r for plan in drawn}) > 8, "not even divisions alone"
    assert all(
        trips(space.layer, plan, one) == 1 or trips(space.layer, plan, other) > 1
        for plan in drawn
        for one, other in zip(plan.order, plan.order[1:], strict=False)
    ), "loops of one trip stand outside"


def test_several_groups_take_whole_groups() -> None:
    space = TileSpace(cases.layer(32, 16, 7, groups=8), cases.setup("a"))
    drawn = list(walk(space, 3, 200))
    assert len({plan.tile_groups for plan in drawn}) > 3
    assert all((p.tile_m, p.tile_n) == (4, 2) for p in drawn if p.tile_groups > 1)
    assert {plan.tile_m for plan in drawn if plan.tile_groups == 1} > {4}


def test_a_neighbour_is_another_plan_and_drawing_deterministic() -> None:
    space = TileSpace(LAYER, cases.setup("a"))
    plans = list(walk(space, 5, 200))
    assert all(one != other for one, other in zip(plans, plans[1:], strict=False))
    assert plans == list(walk(space, 5, 200))
    assert len(np.unique(space.features(list(set(plans))), axis=0)) == len(set(plans))


def test_features_hold_the_prediction() -> None:
    space = TileSpace(LAYER, cases.setup("a"))
    plans = list(walk(space, 0, 8))
    column = space.features(plans)[:, FEATURE_NAMES.index("predicted_cycles")]
    times = [predicted(LAYER, plan, loop_machine(space.machine)).cycles for plan in plans]
    assert 2.0**column == pytest.approx(times, rel=1e-4)


def test_nothing_fits() -> None:
    space = TileSpace(cases.layer(8, 8, 9, kernel=7), cases.small(64, 64, 64))
    with pytest.raises(EmptySpaceError, match=r"a layer of 8 filters.*machine 'small': none fits"):
        space.sample(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tile_m": "3"}, "tile_m is '3'"),
        ({"tile_m": True}, "tile_m is True"),
        ({"tile_n": 33}, "tile_n is 33; it must be an integer from 1 to 32"),
        ({"tile_r": 0}, "tile_r is 0; it must be an integer from 1 to 14"),
        ({"order": "MNRR"}, "order is M N R R; it must be each of M, N, R, C once"),
        ({"order": 4}, "order is 4"),
        ({"buffers": 3}, "buffers is 3"),
        ({"tile_groups": 2}, "tile_groups is 2; it must be an integer from 1 to 1"),
        ({"schedule": "OS"}, "schedule is 'OS'"),
    ],
)
def test_columns_that_are_no_plan(change: dict[str, object], message: str) -> None:
    space = TileSpace(LAYER, cases.setup("a"))
    columns = space.encode(LoopPlan(4, 4, 4, 4))
    with pytest.raises(ValueError, match=message):
        space.decode({**columns, **change})
    del columns["order"]
    with pytest.raises(ValueError, match="order is missing"):
        space.decode(columns)


def test_the_space_of_a_tile_machine() -> None:
    space = space_of(LAYER, cases.setup("a"))
    assert space.kind == "tiles-conv" and isinstance(space, TileSpace)
    assert space.problem["accumulator_bytes"] == 4


@given(st.integers(1, 300), st.integers(1, 300), SEEDS)
def test_extents_stay_on_their_axis(top: int, extent: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    assert 1 <= drawn_extent(top, generator) <= top
    assert 1 <= moved_extent(extent, top, generator) <= top
