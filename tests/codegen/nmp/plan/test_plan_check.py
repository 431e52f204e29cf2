"""The checker: every planner's plans pass, and each way to break one is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, random_tensors
from tests.codegen.nmp.plan import plan_reference as reference
from tests.codegen.nmp.plan import plan_walk
from tests.codegen.nmp.plan.plan_reference import NMP_PLANNERS, conv, dense, machine
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan import check
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.plan import TileLimits, planner
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict

NMP = load_nmp_machine("nmp-4x8")
LAYER = conv(24, 12, (9, 10), (3, 3), padding=(1, 1, 1, 1))
GROUPED = conv(24, 12, (9, 10), (3, 3), padding=(1, 1, 1, 1), groups=12)
SMALL = machine(4, 2, (1024, 512, 256, 64))
PLAN = ConvPlan("multicast", "KS&OFM", 2, 2, "OS", 3, 5, 2, 5)
WHOLE_GROUPS = ConvPlan("grouped", "KS&OFM", 2, 2, "WS", 4, 1, 2, 5)


def fault(problem: ConvProblem, plan: ConvPlan, mach: NmpMachine) -> str:
    found = check_plan(problem, plan, mach)
    assert isinstance(found, PlanFault)
    return str(found)


@pytest.mark.parametrize("name", NMP_PLANNERS)
@settings(max_examples=examples(80), deadline=None)
@given(problem=reference.convs(20), mach=reference.machines(4096), limits=reference.limits())
def test_every_planner_passes(
    name: str, problem: ConvProblem, mach: NmpMachine, limits: TileLimits
) -> None:
    plan = planner(name, limits).plan(problem, mach)
    assume(isinstance(plan, ConvPlan))
    assert isinstance(plan, ConvPlan)
    assert check_plan(problem, plan, mach) is None


@pytest.mark.parametrize("name", NMP_PLANNERS)
def test_inception_v3_passes(name: str) -> None:
    for problem in dict.fromkeys(reference.inception_v3()):
        plan = planner(name).plan(problem, NMP)
        assert isinstance(plan, ConvPlan)
        assert check_plan(problem, plan, NMP) is None


def products(problem: ConvProblem, plan: ConvPlan, mach: NmpMachine) -> dict[tuple[int, ...], int]:
    """How often each (filter, channel of its group, row, column) is accumulated, tile by tile, by
    a plain walk over all cores."""
    each, channels = problem.filters // problem.groups, problem.channels // problem.groups
    done: dict[tuple[int, ...], int] = {}
    for tle in range(plan.row_slices * plan.column_slices * plan.filter_slices):
        own = plan_walk.Tle(problem, plan, mach, tle)
        if not own.has_work:
            continue
        for tlt in own.tlts:
            for turn in product(*(range(turns) for turns in own.turns)):
                rows, columns, items = own.tiles(turn, tlt)
                filters = [item * own.each + f for item in items for f in range(own.each)]
                if not own.grouped:
                    filters = [g * each + f for g in range(problem.groups) for f in filters]
                for n in range(0, channels, plan.tile_n):
                    for one in product(
                        filters, range(channels)[n : n + plan.tile_n], rows, columns
                    ):
                        done[one] = done.get(one, 0) + 1
    return done


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), problem=reference.convs(4))
def test_accepted_plans_make_every_product_once(data: st.DataObject, problem: ConvProblem) -> None:
    """Arbitrary plans: what the checker accepts is right by a walk over every product."""
    tlts = data.draw(st.sampled_from((1, 2, 3, 4, 8)))
    mach = machine(6, tlts, (1 << 16,) * 4, ports=2)
    plan = data.draw(plan_walk.plans(problem, mach))
    assert check_plan(problem, plan, mach) is None
    done = products(problem, plan, mach)
    channels = problem.channels // problem.groups
    assert len(done) == problem.filters * channels * problem.rows * problem.columns
    assert set(done.values()) == {1}


def with_ports(mach: NmpMachine, ports: int) -> NmpMachine:
    values = mach.model_dump()
    return nmp_machine_from_dict(values | {"memories": values["memories"] | {"ports": ports}})


class Given:
    """A planner that draws any plan that the checker accepts."""

    name = "given"

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        plan = self.data.draw(plan_walk.plans(problem, machine))
        assume(check_plan(problem, plan, machine) is None)
        return plan


@settings(max_examples=examples(80), suppress_health_check=FILTERED)
@given(data=st.data(), fixed=convolutions(2), seed=SEEDS)
def test_accepted_plans_run_to_the_bit(data: st.DataObject, fixed: Any, seed: int) -> None:
    """Emitted and simulated: the whole space that `exact` searches can be run."""
    assume(all(extent for shape in fixed.shapes.values() for extent in shape))
    tles, tlts = data.draw(st.integers(1, 6)), data.draw(st.sampled_from((1, 2, 3, 4, 8)))
    memory = st.sampled_from((256, 2048, 8192))
    mach = small_machine(tles, tlts, data.draw(memory), data.draw(memory), data.draw(memory))
    mach = with_ports(mach, data.draw(st.sampled_from((1, 2))))
    inputs = random_tensors(fixed, seed)
    program = compile_fixed(fixed, mach, Given(data))
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(program, inputs, timing=False)
    for name in fixed.outputs:
        np.testing.assert_array_equal(outputs[name], expected[name][0])


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), problem=reference.convs(12), mach=reference.machines())
def test_tiles_that_do_not_fit_are_caught(
    data: st.DataObject, problem: ConvProblem, mach: NmpMachine
) -> None:
    """A tile grown along any axis passes exactly while it fits by the reference's Equation 2."""
    names = [name for name in NMP_PLANNERS if not name.startswith("exact")]
    plan = planner(data.draw(st.sampled_from(names))).plan(problem, mach)
    assume(isinstance(plan, ConvPlan))
    assert isinstance(plan, ConvPlan)
    axis = data.draw(st.sampled_from(("tile_m", "tile_n", "tile_r", "tile_c")))
    each = problem.filters // problem.groups
    step = each if plan.mode == "grouped" and axis == "tile_m" else 1
    grown = replace(plan, **{axis: getattr(plan, axis) + step * data.draw(st.integers(1, 6))})
    grouped = plan.mode == "grouped"
    items = problem.groups if grouped else each
    most = -(-items // plan.filter_slices)
    most = -(-most // mach.cores.tlts_per_tle) * (each if grouped else 1)
    within = (
        grown.tile_m <= (plan.tile_m if plan.schedule == "IS" else most)
        and grown.tile_n <= problem.channels // problem.groups
        and grown.tile_r <= -(-problem.rows // plan.row_slices)
        and grown.tile_c <= problem.columns
    )
    tile = (grown.tile_m, grown.tile_n, grown.tile_r, grown.tile_c)
    fits = reference.fits(problem, mach, plan.mode, plan.schedule, tile)
    assert (check_plan(problem, grown, mach) is None) == (within and fits)


BROKEN: list[tuple[ConvProblem, ConvPlan, dict[str, Any], str]] = [
    (LAYER, PLAN, {"row_slices": 3}, "row_slices * filter_slices is 6; it must be at most 4 TLEs"),
    (LAYER, PLAN, {"filter_slices": 0}, "filter_slices is 0; it must be an integer of at least 1"),
    (LAYER, PLAN, {"split": "KS"}, "row_slices under KS is 2; it must be 1"),
    (LAYER, PLAN, {"split": "OFM"}, "filter_slices under OFM is 2; it must be 1"),
    (LAYER, PLAN, {"split": "IFM"}, "split is IFM; it must be KS, KS&OFM or OFM"),
    (LAYER, PLAN, {"mode": "ring"}, "mode is ring; it must be multicast or grouped"),
    (
        LAYER,
        PLAN,
        {"schedule": "RS"},
        "schedule of a multicast plan is RS; it must be IS or OS or WS",
    ),
    (LAYER, PLAN, {"tile_m": 0}, "tile_m is 0; it must be an integer of at least 1"),
    (LAYER, PLAN, {"tile_m": 7}, "tile_m is 7; it must be at most 6"),
    (LAYER, PLAN, {"tile_n": 13}, "tile_n is 13; it must be at most 12"),
    (LAYER, PLAN, {"tile_r": 6}, "tile_r is 6; it must be at most 5"),
    (LAYER, PLAN, {"tile_c": 11}, "tile_c is 11; it must be at most 10"),
    (LAYER, PLAN, {"tile_c": 2.5}, "tile_c is 2.5; it must be an integer of at least 1"),
    # 5 channels x 7 x 12 IN elements
    (
        LAYER,
        PLAN,
        {"tile_r": 5, "tile_c": 10, "tile_n": 7},
        "IN tile in MB0, bytes is 1176; it must be at most 1024",
    ),
    (
        LAYER,
        PLAN,
        {"tile_m": 6, "tile_n": 5},
        "W tile in MB1, bytes is 540; it must be at most 512",
    ),
    # WS holds all 12 channels, whatever tile_n says.
    (
        LAYER,
        PLAN,
        {"schedule": "WS"},
        "W tile in MB1, bytes is 648; it must be at most 512",
    ),
    (
        LAYER,
        PLAN,
        {"tile_m": 5, "tile_n": 4, "tile_r": 5, "tile_c": 6},
        "OUT tile in MB2, bytes is 300; it must be at most 256",
    ),
    (
        LAYER,
        PLAN,
        {"schedule": "IS"},
        "tile_m under IS is 3; it must be all 6 filters of a TLT",
    ),
    (
        GROUPED,
        WHOLE_GROUPS,
        {"tile_m": 3},
        "tile_m of a grouped plan is 3; it must be a multiple of the 2 filters of a group",
    ),
    (
        GROUPED,
        WHOLE_GROUPS,
        {"schedule": "IS"},
        "schedule of a grouped plan is IS; it must be OS or WS",
    ),
    (GROUPED, WHOLE_GROUPS, {"tile_n": 2}, "tile_n is 2; it must be at most 1"),
]


@pytest.mark.parametrize("problem, plan, change, message", BROKEN)
def test_faults_name_the_thing_the_value_and_the_limit(
    problem: ConvProblem, plan: ConvPlan, change: dict[str, Any], message: str
) -> None:
    assert check_plan(problem, plan, SMALL) is None
    assert fault(problem, replace(plan, **change), SMALL) == message


DUAL = machine(4, 4, (1024, 512, 256, 64), ports=2)
RINGS = replace(PLAN, ring_in=True, ring_weights=True)
SPLIT = ConvPlan(
    "multicast", "KS&OFM", 1, 2, "OS", 3, 5, 2, 3, column_slices=2, tlt_rows=2, tlt_columns=2
)
WIDE: list[tuple[ConvPlan, dict[str, Any], str]] = [
    (SPLIT, {"column_slices": 0}, "column_slices is 0; it must be an integer of at least 1"),
    (
        SPLIT,
        {"row_slices": 2},
        "row_slices * column_slices * filter_slices is 8; it must be at most 4 TLEs",
    ),
    (SPLIT, {"split": "KS"}, "column_slices under KS is 2; it must be 1"),
    (SPLIT, {"tlt_rows": 0}, "tlt_rows is 0; it must be an integer of at least 1"),
    (
        SPLIT,
        {"tlt_rows": 3},
        "tlt_rows * tlt_columns is 6; it must be a divisor of 4 TLTs of a TLE",
    ),
    (SPLIT, {"tile_r": 6}, "tile_r is 6; it must be at most 5"),
    (SPLIT, {"tile_c": 4}, "tile_c is 4; it must be at most 3"),
    (SPLIT, {"tile_m": 13}, "tile_m is 13; it must be at most 12"),
    (SPLIT, {"keeps_in": 1}, "keeps_in is 1; it must be True or False"),
    (SPLIT, {"keeps_in": True}, "tile_n with keeps_in is 5; it must be all 12 channels"),
    (
        SPLIT,
        {"keeps_in": True, "tile_n": 12, "schedule": "WS", "tile_m": 2},
        "schedule with keeps_in is WS; it must be OS",
    ),
    (SPLIT, {"weights": "rows"}, "weights is rows; it must be filters or tiles"),
    (SPLIT, {"buffers": 3}, "buffers is 3; it must be 1 or 2"),
    (SPLIT, {"buffers": 2, "tile_n": 12, "tile_r": 4},
     "two IN tiles in MB0, bytes is 1440; it must be at most 1024"),
    (
        SPLIT,
        {"buffers": 2, "tile_n": 10},
        "two W tiles in MB1, bytes is 1080; it must be at most 512",
    ),
    (SPLIT, {"buffers": 2, "tile_n": 1, "tile_m": 12, "tile_r": 2, "tile_c": 3},
     "two OUT tiles in MB2, bytes is 288; it must be at most 256"),
    (SPLIT, {"ring_weights": True, "filter_slices": 1, "column_slices": 1,
               "row_slices": 4},
     "row_slices with ring_weights is 4; it must be so few that none of 9 is empty"),
    (SPLIT, {"ring_in": True, "filter_slices": 1},
     "filter_slices with ring_in is 1; it must be more than 1 TLE to share with"),
    (SPLIT, {"ring_weights": True, "column_slices": 1},
     "row_slices * column_slices with ring_weights is 1; it must be more than 1 TLE to share with"),
]  # fmt: skip


@pytest.mark.parametrize("plan, change, message", WIDE)
def test_faults_of_the_wider_space(plan: ConvPlan, change: dict[str, Any], message: str) -> None:
    assert check_plan(LAYER, plan, DUAL) is None
    assert fault(LAYER, replace(plan, **change), DUAL) == message


def test_what_the_machine_lacks() -> None:
    alone = machine(4, 2, (1024, 512, 256, 64), ring=None)
    assert check_plan(LAYER, RINGS, SMALL) is None
    expected = "ring of test is None; it must be there for ring_in"
    assert fault(LAYER, RINGS, alone) == expected
    expected = "ring of test is None; it must be there for ring_weights"
    assert fault(LAYER, replace(RINGS, ring_in=False), alone) == expected
    expected = "ports of a memory of test, with buffers = 2 is 1; it must be 2"
    assert fault(LAYER, replace(PLAN, buffers=2), SMALL) == expected


@pytest.mark.parametrize(
    "change", [{"tlt_rows": 2}, {"tlt_columns": 2}, {"ring_in": True}, {"keeps_in": True}]
)
def test_grouped_plans_are_plain(change: dict[str, Any]) -> None:
    name, value = next(iter(change.items()))
    plain = getattr(WHOLE_GROUPS, name)
    expected = f"{name} of a grouped plan is {value}; it must be {plain}"
    assert fault(GROUPED, replace(WHOLE_GROUPS, **change), SMALL) == expected


def test_what_is_loaded_once_needs_one_place() -> None:
    """Two buffers, but one filter tile under WS, one place of kept IN, one OUT tile."""
    problem = conv(8, 4, (6, 6), (3, 3))
    plan = ConvPlan("multicast", "KS", 1, 1, "WS", 2, 4, 2, 4, buffers=2)
    bytes_of = {"IN": 4 * 4 * 6 * 2, "W": 2 * 4 * 9 * 2, "OUT": 2 * 2 * 4 * 2}
    two_in = machine(
        1, 4, (2 * bytes_of["IN"], bytes_of["W"] + 8, 2 * bytes_of["OUT"], 64), ports=2
    )
    assert check_plan(problem, plan, two_in) is None
    halved = replace(plan, tile_m=1)  # two filter tiles of half the size
    assert check_plan(problem, halved, two_in) is None
    kept = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 4, 4, 4, keeps_in=True, buffers=2)
    one_in = machine(1, 4, (4 * 6 * 6 * 2, 160, 64, 64), ports=2)
    assert check_plan(problem, kept, one_in) is None
    expected = "two IN tiles in MB0, bytes is 384; it must be at most 288"
    assert fault(problem, replace(kept, tile_r=2), one_in) == expected
    added = replace(problem, has_residual=True)
    expected = "IN and residual tiles in MB0, bytes is 320; it must be at most 288"
    assert fault(added, kept, one_in) == expected
    expected = "IN and residual tiles in MB0, bytes is 320; it must be at most 288"
    assert fault(added, replace(kept, buffers=1), one_in) == expected


POOLED = replace(LAYER, window=Window(4, 5, (3, 3), (2, 2), (0, 1)))
BEHIND = ConvPlan("multicast", "KS&OFM", 2, 2, "OS", 3, 5, 1, 2)
DEPTHWISE = Window(9, 10, (3, 3), (1, 1), (1, 1), has_weights=True)


def test_windows_behind_a_convolution() -> None:
    """OUT tiles of 1 x 2 take 3 x 5 of the OFM, which takes 5 x 7 of the IFM."""
    assert check_plan(POOLED, BEHIND, SMALL) is None
    for plan, change, message in (
        (BEHIND, {"tile_r": 3}, "tile_r is 3; it must be at most 2"),
        (BEHIND, {"tile_c": 6}, "tile_c is 6; it must be at most 5"),
        (
            BEHIND,
            {"tile_r": 2, "tile_c": 5, "tile_n": 4},
            "OUT and OFM tiles in MB2, bytes is 360; it must be at most 256",
        ),
        (
            BEHIND,
            {"tile_c": 5, "tile_n": 10},
            "IN tile in MB0, bytes is 1200; it must be at most 1024",
        ),
    ):
        assert fault(POOLED, replace(plan, **change), SMALL) == message
    expected = "OFM tile under a window in MB0, bytes is 280; it must be at most 272"
    lean = machine(4, 2, (272, 512, 512, 64))
    assert fault(POOLED, replace(BEHIND, tile_m=4, tile_r=2, tile_c=3, tile_n=1), lean) == expected
    bare = machine(4, 2, (1024, 512, 256, 64), ring=None)
    assert fault(POOLED, BEHIND, bare) == "ring of test is None; it must be there for a window"


def test_what_stands_in_front_of_a_window() -> None:
    for change, message in (
        ({"has_residual": True}, "a residual with a window is True; it must be False"),
        ({"groups": 2}, "groups with a window is 2; it must be 1"),
        (
            {"window": Window(6, 5, (3, 3), (2, 2), (0, 1))},
            "OFM rows under window 5 is (10, 9); it must be at least one",
        ),
    ):
        assert fault(replace(POOLED, **change), BEHIND, SMALL) == message  # type: ignore[arg-type]
    grouped = replace(GROUPED, window=DEPTHWISE)
    expected = "mode with a window is grouped; it must be multicast"
    assert fault(grouped, WHOLE_GROUPS, SMALL) == expected


def test_kernels_and_biases_of_a_window_need_room() -> None:
    """The six filters of a TLT: 108 bytes of kernels behind W, as many biases again."""
    problem = replace(LAYER, window=DEPTHWISE)
    plan = replace(BEHIND, tile_c=1)
    assert check_plan(problem, plan, SMALL) is None
    tight = machine(4, 2, (1024, 376, 256, 64))
    expected = "W tiles and kernels of the window in MB1, bytes is 378; it must be at most 376"
    assert fault(problem, plan, tight) == expected
    many = replace(problem, filters=36)
    expected = "biases of both layers, bytes is 72; it must be at most 64"
    assert fault(many, plan, SMALL) == expected


def test_a_wrong_rotation_is_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a shared tile that leave some of it to nobody."""
    assert check_plan(LAYER, RINGS, SMALL) is None
    monkeypatch.setattr(check, "run_size", lambda extent, sharing: extent // sharing)
    expected = "channels of an IN tile over TLEs: end of the parts is 4; it must be 5"
    assert fault(LAYER, RINGS, SMALL) == expected


@settings(max_examples=examples(40), deadline=None)
@given(problem=reference.convs(20), mach=reference.machines(4096))
def test_no_grouped_plan_of_one_group(problem: ConvProblem, mach: NmpMachine) -> None:
    one = replace(problem, groups=1)
    plan = ConvPlan("grouped", "KS", 1, 1, "OS", one.filters, one.channels, 1, 1)
    found = fault(one, plan, mach)
    assert found.startswith("mode of a layer with groups = 1 is grouped; it must be multicast")
    with pytest.raises(PlanningError, match="groups = 1 is grouped"):
        predict(one, plan, mach)


def test_grouped_plans_take_all_channels_of_a_group() -> None:
    problem = conv(24, 24, (9, 10), (3, 3), groups=12)
    plan = ConvPlan("grouped", "KS", 1, 1, "WS", 2, 1, 1, 1)
    assert fault(problem, plan, NMP) == "tile_n of a grouped plan is 1; it must be 2"
    assert check_plan(problem, replace(plan, tile_n=2), NMP) is None


def test_residual_and_biases_need_room() -> None:
    roomy = machine(1, 1, (64, 512, 4096, 64))
    point = conv(9, 2, (4, 4), (1, 1))
    plan = ConvPlan("multicast", "KS", 1, 1, "WS", 9, 2, 4, 4)
    assert check_plan(point, plan, roomy) is None
    added = replace(point, has_residual=True)
    expected = "residual tile in MB0, bytes is 288; it must be at most 64"
    assert fault(added, plan, roomy) == expected
    wide = dense(17, 2)
    plan = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 1, 1, 1)
    assert fault(wide, plan, roomy) == "biases of one TLT, bytes is 68; it must be at most 64"


def test_uneven_filters_are_refused() -> None:
    uneven = replace(GROUPED, filters=25)
    expected = "filters is 25; it must be a positive multiple of 12 groups"
    assert fault(uneven, WHOLE_GROUPS, SMALL) == expected


DEALS = [
    ("slice_of", lambda t, s, i: (i * (t // s), t // s), "rows over TLEs: end of the parts is 8"),
    ("slice_of", lambda t, s, i: (0, t), "rows over TLEs: first in two parts is 0"),
    ("share", lambda t, p, i: (i * (t // p) + (p > 1), t // p), "filters over TLTs: first in no"),
    (
        "share",
        lambda t, p, i: (i * (t // p), t // p + (i < p - 1)),
        "filters over TLTs: first in two",
    ),
]


@pytest.mark.parametrize("name, deal, message", DEALS)
def test_a_wrong_deal_is_no_partition(
    name: str, deal: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements that no core or two cores compute, were slices or runs dealt wrongly."""
    monkeypatch.setattr(check, name, deal)
    assert fault(LAYER, replace(PLAN, tile_m=1, tile_r=1), SMALL).startswith(message)


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_wrong_in_extent_is_caught(extra: int, monkeypatch: pytest.MonkeyPatch) -> None:
    true = ConvProblem.in_tile_columns
    monkeypatch.setattr(ConvProblem, "in_tile_columns", lambda p, c: true(p, c) + extra)
    expected = f"IN tile under OUT columns 0 to 5: extent is {7 + extra}; it must be 7"
    assert fault(LAYER, PLAN, SMALL) == expected
