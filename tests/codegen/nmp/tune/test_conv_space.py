"""Plans that are drawn and changed are sound, and survive being written down."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.plan import plan_reference as reference
from tests.examples import examples
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.tune.conv_columns import plan_of
from tvm_npu.codegen.nmp.tune.conv_features import FEATURE_NAMES
from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.tune.columns import problem_columns, problem_of
from tvm_npu.codegen.tune.errors import EmptySpaceError
from tvm_npu.codegen.tune.space import machine_fingerprint, space_of
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

SEEDS = st.integers(0, 2**31)
LAYER = reference.conv(64, 32, (14, 14), (3, 3), padding=(1, 1, 1, 1))


@given(reference.convs(), reference.machines(), SEEDS)
@settings(max_examples=examples(60), deadline=None)
def test_drawn_plans_are_sound_and_round_trip(
    problem: ConvProblem, machine: NmpMachine, seed: int
) -> None:
    space, generator = ConvSpace(problem, machine), np.random.default_rng(seed)
    try:
        plan = space.sample(generator)
    except EmptySpaceError:
        return
    for _ in range(4):
        assert check_plan(problem, plan, machine) is None
        written = json.loads(json.dumps(space.encode(plan)))
        assert space.decode(written) == plan
        features = space.features([plan, plan])
        assert features.shape == (2, len(FEATURE_NAMES)) and np.isfinite(features).all()
        changed = space.neighbour(plan, generator)
        plan = changed


WINDOWS = (
    None,
    Window(7, 7, (3, 3), (2, 2), (1, 1)),
    Window(14, 14, (3, 3), (1, 1), (1, 1), has_weights=True),
)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_a_space_holds_every_choice(name: str, window: Window | None) -> None:
    problem, machine = replace(LAYER, window=window), load_nmp_machine(name)
    space, generator = ConvSpace(problem, machine), np.random.default_rng(1)
    drawn = [space.sample(generator) for _ in range(400)]
    assert all(check_plan(problem, plan, machine) is None for plan in drawn)
    assert {plan.schedule for plan in drawn} == {"IS", "OS", "WS"}
    assert {plan.split for plan in drawn} == {"KS", "KS&OFM", "OFM"}
    assert {plan.buffers for plan in drawn} == ({1, 2} if "dual" in name else {1})
    for choice in ("keeps_in", "ring_in", "ring_weights", "linear_maps"):
        assert {getattr(plan, choice) for plan in drawn} == {False, True}, choice
    # Extents that are no even division are in the space, too.
    extents = {plan.tile_r for plan in drawn}
    for _ in range(400):
        drawn[0] = space.neighbour(drawn[0], generator)
        extents.add(drawn[0].tile_r)
    assert extents > {1, 2}


def test_a_neighbour_is_another_plan() -> None:
    space, generator = ConvSpace(LAYER, load_nmp_machine("nmp-4x8")), np.random.default_rng(0)
    plan = space.sample(generator)
    for _ in range(200):
        other = space.neighbour(plan, generator)
        assert other != plan
        plan = other


def test_drawing_is_deterministic() -> None:
    space = ConvSpace(LAYER, load_nmp_machine("nmp-4x8"))
    one, two = (
        [space.sample(generator) for _ in range(20)]
        for generator in (np.random.default_rng(5), np.random.default_rng(5))
    )
    assert one == two


def test_nothing_fits() -> None:
    tiny = reference.machine(memories=(64, 64, 64, 64))
    space = ConvSpace(reference.conv(8, 8, (9, 9), (7, 7)), tiny)
    with pytest.raises(EmptySpaceError, match=r"2000 random plans of a layer of 8 filters.*'test'"):
        space.sample(np.random.default_rng(0))


def test_features_tell_plans_apart() -> None:
    space, generator = ConvSpace(LAYER, load_nmp_machine("nmp-4x8-dual")), np.random.default_rng(2)
    plans = list({space.sample(generator) for _ in range(200)})
    assert len(np.unique(space.features(plans), axis=0)) == len(plans)


@given(reference.convs(), st.sampled_from(WINDOWS))
def test_problems_round_trip(problem: ConvProblem, window: Window | None) -> None:
    problem = replace(problem, window=window)
    assert problem_of(json.loads(json.dumps(problem_columns(problem)))) == problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tile_m": "3"}, "tile_m is '3'"),
        ({"tile_m": True}, "tile_m is True"),
        ({"schedule": "XS"}, "schedule is 'XS'.*'IS', 'OS' or 'WS'"),
        ({"colour": 1}, "colour is 1"),
        ({"tile_n": None}, "tile_n is None"),
        ({"tile_n": 33}, "tile_n is 33; it must be at most 32"),
        ({"row_slices": 9}, "row_slices"),
        ({"buffers": 2}, "ports of a memory"),
    ],
)
def test_columns_that_are_no_plan(change: dict[str, object], message: str) -> None:
    space = ConvSpace(LAYER, load_nmp_machine("nmp-4x8"))
    columns = space.encode(ConvPlan("multicast", "KS", 1, 1, "OS", 1, 4, 4, 4))
    with pytest.raises(ValueError, match=message):
        space.decode({**columns, **change})
    del columns["tile_c"]
    with pytest.raises(ValueError, match="tile_c is missing"):
        plan_of(columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filters": "64"}, "filters of the layer is '64'"),
        ({"kernel_rows": 1.5}, "kernel_rows of the layer is 1.5"),
        ({"sides": 3}, "sides is nothing that a layer has"),
        ({"is_dense": 0}, "is_dense of the layer is 0"),
        ({"window_rows": 3}, "of the layer is missing"),
    ],
)
def test_columns_that_are_no_layer(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        problem_of({**problem_columns(LAYER), **change})


def test_a_fingerprint_is_of_what_runs_depend_on() -> None:
    machine = load_nmp_machine("nmp-4x8")
    values = machine.model_dump()
    renamed = machine_from_dict({**values, "name": "mine", "description": "the same"})
    slower = machine_from_dict({**values, "dram": {**values["dram"], "cas_cycles": 15.0}})
    assert machine_fingerprint(renamed) == machine_fingerprint(machine)
    assert machine_fingerprint(slower) != machine_fingerprint(machine)


@pytest.mark.parametrize("name", ["nmp-4x8", "setup-a", "snowflake-1cc"])
def test_a_kind_that_is_tunable_has_a_space(name: str) -> None:
    machine = load_machine(name)
    if backend_of(machine).is_tunable:
        assert space_of(LAYER, machine).kind == f"{machine.isa}-conv"
        return
    with pytest.raises(PlanningError, match=f"{name}' of isa '{machine.isa}' cannot be tuned"):
        space_of(LAYER, machine)
