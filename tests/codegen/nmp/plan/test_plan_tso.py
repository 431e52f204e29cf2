"""TSO: equal to a plain search, and every answer fits the machine."""

from __future__ import annotations

import time
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import assume, given, settings

from tests.codegen.nmp.plan import plan_reference as reference
from tests.codegen.nmp.plan.plan_reference import conv, dense, machine
from tests.examples import examples
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule, Split
from tvm_npu.codegen.nmp.plan.tso import closed_form_cycles
from tvm_npu.codegen.plan import TileLimits, plan_all, planner, planner_names
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

FIFTH = conv(192, 80, (73, 73), (3, 3))
"""InceptionV3's fifth convolution."""

FIXED_SPLITS = {"fixed-ks": "KS", "fixed-ks-ofm": "KS&OFM", "fixed-ofm": "OFM"}
FAMILY = ("tso", "tso-noburst", *FIXED_SPLITS, "fixed-is", "fixed-os", "fixed-ws")
FIXED_SCHEDULES = {"fixed-is": "IS", "fixed-os": "OS", "fixed-ws": "WS"}


def answer(
    name: str, problem: ConvProblem, machine: NmpMachine, limits: TileLimits | None = None
) -> ConvPlan:
    plan = planner(name, limits or TileLimits()).plan(problem, machine)
    assert isinstance(plan, ConvPlan), str(plan)
    return plan


def bare(plan: ConvPlan | Infeasible) -> ConvPlan | None:
    return None if isinstance(plan, Infeasible) else replace(plan, prediction=None, planner="")


@pytest.mark.parametrize("name", ["tso", "tso-noburst"])
@settings(max_examples=examples(200), deadline=None)
@given(problem=reference.convs(9), mach=reference.machines(), limits=reference.limits())
def test_equals_brute_force(
    name: str, problem: ConvProblem, mach: NmpMachine, limits: TileLimits
) -> None:
    best = reference.brute_force(problem, mach, limits, by_volume=name == "tso-noburst")
    plan = planner(name, limits).plan(problem, mach)
    assert bare(plan) == best.plan
    if isinstance(plan, ConvPlan):
        assert closed_form_cycles(problem, plan, mach, name == "tso-noburst") == best.time


@pytest.mark.parametrize("name", ["tso", "tso-noburst", "fixed-os", "fixed-ws"])
@settings(max_examples=examples(100), deadline=None)
@given(case=reference.tight_layers())
def test_equals_brute_force_in_tight_memories(
    name: str, case: tuple[ConvProblem, NmpMachine]
) -> None:
    problem, mach = case
    schedules = (FIXED_SCHEDULES[name],) if name in FIXED_SCHEDULES else reference.SCHEDULES
    by_volume = name == "tso-noburst"
    best = reference.brute_force(problem, mach, by_volume=by_volume, schedules=schedules)
    assume(best.plan is not None)
    assert bare(planner(name).plan(problem, mach)) == best.plan


PRUNING = [
    # A wider tile with a smaller T_M, equally many tiles across.
    ("fixed-ws", conv(7, 1, (3, 9), (1, 1)), (64, 64, 64), 16),
    # A wider tile, equally many across, that reads the whole width of the IFM.
    ("tso", conv(1, 1, (3, 7), (3, 1), padding=(0, 2, 0, 2)), (64, 64, 64), 64),
    ("tso", conv(4, 4, (3, 7), (3, 1), padding=(0, 2, 0, 2), groups=4), (64, 64, 64), 64),
    # A higher tile with a smaller T_M, equally many tiles down.
    (
        "fixed-ws",
        conv(6, 1, (4, 4), (2, 3), (1, 3), padding=(1, 1, 1, 1)),
        (64, 64, 64),
        8,
    ),
    # A deeper tile with a smaller T_M, equally many tiles deep.
    (
        "fixed-os",
        conv(13, 4, (3, 5), (2, 1), (2, 2), padding=(0, 2, 0, 2)),
        (112, 64, 64),
        64,
    ),
]


@pytest.mark.parametrize("name, problem, memories, burst_bytes", PRUNING)
def test_pruning_keeps_the_winner(
    name: str, problem: ConvProblem, memories: tuple[int, int, int], burst_bytes: int
) -> None:
    """Layers whose best tile a coarser pruning would pass over."""
    mach = machine(1, 1, (*memories, 64), burst_bytes, 0.0, 0.0, mac_setup=0.0)
    schedules = (FIXED_SCHEDULES[name],) if name in FIXED_SCHEDULES else reference.SCHEDULES
    best = reference.brute_force(problem, mach, schedules=schedules)
    assert bare(planner(name).plan(problem, mach)) == best.plan


@pytest.mark.parametrize("tles", [1, 2, 4])
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_equals_brute_force_on_larger_layers(tles: int, groups: int) -> None:
    mach = machine(tles, 2, (1024, 512, 1024, 256), burst_bytes=32)
    problem = conv(24, 16, (17, 19), (3, 3), stride=(1, 2), padding=(1, 0, 1, 2), groups=groups)
    for name in ("tso", "tso-noburst"):
        best = reference.brute_force(problem, mach, by_volume=name == "tso-noburst")
        assert bare(answer(name, problem, mach)) == best.plan


@pytest.mark.parametrize("name", [*FIXED_SPLITS, *FIXED_SCHEDULES])
@settings(max_examples=examples(80), deadline=None)
@given(problem=reference.convs(7), mach=reference.machines())
def test_fixed_planners_equal_restricted_brute_force(
    name: str, problem: ConvProblem, mach: NmpMachine
) -> None:
    splits: tuple[str, ...] = reference.SPLITS
    schedules: tuple[str, ...] = reference.SCHEDULES
    if name in FIXED_SPLITS:
        splits = (FIXED_SPLITS[name],)
    else:
        schedules = (FIXED_SCHEDULES[name],)
    best = reference.brute_force(problem, mach, splits=splits, schedules=schedules)
    if best.plan is None:  # the restriction is lifted, first for schedules, then for splits
        best = reference.brute_force(problem, mach, splits=splits)
    if best.plan is None:
        best = reference.brute_force(problem, mach)
    assert bare(planner(name).plan(problem, mach)) == best.plan


@pytest.mark.parametrize("name", FAMILY)
@settings(max_examples=examples(60), deadline=None)
@given(problem=reference.convs(24), mach=reference.machines(4096), limits=reference.limits())
def test_every_plan_fits(
    name: str, problem: ConvProblem, mach: NmpMachine, limits: TileLimits
) -> None:
    plan = planner(name, limits).plan(problem, mach)
    if isinstance(plan, Infeasible):
        assert plan.needed_bytes > plan.available_bytes
        return
    filters_each = problem.filters // problem.groups
    channels = problem.channels // problem.groups
    tile = (plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c)
    assert reference.fits(problem, mach, plan.mode, plan.schedule, tile)
    tops = (limits.max_tile_m, limits.max_tile_n, limits.max_tile_r, limits.max_tile_c)
    for extent, top in zip(tile, tops, strict=True):
        assert 1 <= extent <= (top or extent)
    assert plan.tile_c <= problem.columns
    assert plan.tile_r <= -(-problem.rows // plan.row_slices)
    cut = (plan.row_slices, plan.filter_slices)
    assert reference.slices(plan.split, mach.cores.tles) == cut
    assert cut[0] * cut[1] == mach.cores.tles
    if plan.mode == "grouped":
        assert problem.groups > 1 and plan.schedule in ("OS", "WS")
        assert plan.tile_n == channels and plan.tile_m % filters_each == 0
        most = ceil(ceil(problem.groups / plan.filter_slices) / mach.cores.tlts_per_tle)
        most *= filters_each
    else:
        assert plan.tile_n <= channels
        most = ceil(ceil(filters_each / plan.filter_slices) / mach.cores.tlts_per_tle)
        assert plan.schedule != "IS" or plan.tile_m == most
    assert plan.tile_m <= most
    assert most * 4 <= mach.memories.bias_bytes
    assert plan.planner == name and plan.prediction is not None
    assert plan.prediction.cycles > 0


@settings(max_examples=examples(60), deadline=None)
@given(problem=reference.convs(5), mach=reference.machines(64))
def test_infeasible_exactly_when_nothing_fits(problem: ConvProblem, mach: NmpMachine) -> None:
    plan = planner("tso").plan(problem, mach)
    nothing = reference.brute_force(problem, mach).plan is None
    assert isinstance(plan, Infeasible) == nothing


def in_tile(plan: ConvPlan) -> tuple[int, int, int]:
    rows, columns = FIFTH.in_tile_rows(plan.tile_r), FIFTH.in_tile_columns(plan.tile_c)
    return plan.tile_n, rows, columns


def test_the_papers_example() -> None:
    """Section VI: IN tiles of 14x4x73 with bursts, of 16x11x20 by volume."""
    nmp = load_nmp_machine("nmp-4x8")
    burst, volume = answer("tso", FIFTH, nmp), answer("tso-noburst", FIFTH, nmp)
    assert in_tile(burst) == (14, 4, 73) and in_tile(volume) == (16, 11, 20)
    assert burst.prediction is not None and volume.prediction is not None
    assert burst.prediction.cycles < volume.prediction.cycles


ESTIMATES = [
    # IS: 9 places of 6 channel tiles; 70 bursts a full IN tile (Section VI); W of one TLT's 24
    # filters: 2 bursts of 14 channels, 2 of the last 10; 8 TLTs store 24 x 3 bursts a place.
    ("OFM", "IS", (24, 14, 2, 71), 9 * (12 + 8), 9 * (400 + 24 * 12 + 8 * 24 * 3),
     9 * (80 * 4 * 73 + 24 * 80 * 9 + 8 * 24 * 142), 9 * 24 * 80 * 160, 9 * 6),
    # OS: two filter tiles, and IN again for each.
    ("OFM", "OS", (12, 14, 2, 71), 2 * 9 * (12 + 8), 2 * 9 * (400 + 12 * 12 + 8 * 12 * 3),
     2 * 9 * (80 * 4 * 73 + 12 * 80 * 9 + 8 * 12 * 142), 2 * 9 * 12 * 80 * 160, 2 * 9 * 6),
    # WS: as OS, but W once, in a piece of 12 x 1440 bytes.
    ("OFM", "WS", (12, 14, 2, 71), 2 * (9 * (6 + 8) + 1), 2 * (9 * (400 + 8 * 12 * 3) + 135),
     2 * (9 * (80 * 4 * 73 + 8 * 12 * 142) + 12 * 80 * 9), 2 * 9 * 12 * 80 * 160, 2 * 9 * 6),
]  # fmt: skip


@pytest.mark.parametrize(
    "split, schedule, tile, transfers, bursts, elements, units, steps", ESTIMATES
)
def test_estimate_by_hand(
    split: Split, schedule: Schedule, tile: tuple[int, int, int, int], transfers: int,
    bursts: int, elements: int, units: int, steps: int,
) -> None:  # fmt: skip
    """Equations 3, 4 and 5 for InceptionV3's fifth convolution: OFM slices of 18 rows."""
    nmp = machine(setup_cycles=16.0, cas_cycles=14.0, dme_rate=2.0, mac_setup=8.0)
    plan = ConvPlan("multicast", split, 4, 1, schedule, *tile)
    time = elements * 2 / 2.0 + units / 0.75 + steps * 8.0 + transfers * 16.0
    assert closed_form_cycles(FIFTH, plan, nmp, by_volume=True) == pytest.approx(time)
    time += bursts * 14.0
    assert closed_form_cycles(FIFTH, plan, nmp) == pytest.approx(time)


def test_os_has_at_least_two_tiles_of_filters() -> None:
    """With all filters of a TLT in one tile OS would be IS."""
    nmp = load_nmp_machine("nmp-4x8")
    for problem in dict.fromkeys(reference.inception_v3()):
        plan = answer("fixed-os", problem, nmp)
        each = ceil(problem.filters / plan.filter_slices)
        per_tlt = ceil(each / nmp.cores.tlts_per_tle)
        assert plan.schedule == "OS" and plan.tile_m <= ceil(per_tlt / 2)


@pytest.mark.parametrize("tles", [1, 2, 3, 4, 6])
def test_more_tles_are_not_slower(tles: int) -> None:
    nmp = load_nmp_machine("nmp-4x8")
    plan = answer("tso", FIFTH, nmp.with_cores(tles))
    alone = answer("tso", FIFTH, nmp.with_cores(1))
    assert plan.row_slices * plan.filter_slices == tles
    assert plan.prediction is not None and alone.prediction is not None
    assert plan.prediction.cycles <= alone.prediction.cycles / tles * 1.25


def test_fewer_rows_and_filters_than_tles() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    problem = conv(2, 300, (2, 9), (1, 1))
    for name, split in FIXED_SPLITS.items():
        plan = answer(name, problem, nmp)
        assert plan.split == split
        assert plan.prediction is not None and plan.prediction.out_bytes == 2 * 2 * 9 * 2


def test_fixed_strategies_are_never_faster_by_closed_form() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    for problem in dict.fromkeys(reference.inception_v3()):
        best = closed_form_cycles(problem, answer("tso", problem, nmp), nmp)
        for name in (*FIXED_SPLITS, *FIXED_SCHEDULES, "tso-noburst"):
            plan = answer(name, problem, nmp)
            assert closed_form_cycles(problem, plan, nmp) >= best
            if name in FIXED_SPLITS:
                assert plan.split == FIXED_SPLITS[name]


def test_ws_falls_back_where_one_filter_does_not_fit() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    deep = conv(512, 512, (7, 7), (3, 3), padding=(1, 1, 1, 1))
    assert 512 * 9 * 2 > nmp.memories.mb1_bytes
    assert answer("fixed-ws", deep, nmp).schedule != "WS"
    assert answer("fixed-ws", FIFTH, nmp).schedule == "WS"


def test_depthwise_goes_to_whole_groups() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    problem = conv(96, 96, (112, 112), (3, 3), (2, 2), padding=(1, 1, 1, 1), groups=96)
    for name in planner_names(nmp):
        assert answer(name, problem, nmp).mode == "grouped"


def test_few_wide_groups_run_one_after_another() -> None:
    """Two groups cannot feed four TLEs of eight TLTs."""
    nmp = load_nmp_machine("nmp-4x8")
    problem = conv(256, 96, (27, 27), (5, 5), padding=(2, 2, 2, 2), groups=2)
    assert answer("tso", problem, nmp).mode == "multicast"


INFEASIBLE = [
    (
        conv(4, 4, (9, 9), (9, 9)),
        (64, 512, 64, 64),
        "smallest IN tile (one channel of a window of 9x9): 162 bytes of MB0 needed, 64 "
        "available; use a smaller or less dilated kernel, or raise memories.mb0_bytes",
    ),
    (
        conv(4, 4, (9, 9), (3, 3), dilation=(4, 4)),
        (64, 512, 64, 64),
        "smallest IN tile (one channel of a window of 9x9): 162 bytes of MB0 needed, 64 "
        "available; use a smaller or less dilated kernel, or raise memories.mb0_bytes",
    ),
    (
        conv(4, 4, (9, 9), (9, 9)),
        (512, 64, 64, 64),
        "smallest W tile (one channel of a filter of 9x9): 162 bytes of MB1 needed, 64 "
        "available; use a smaller kernel, or raise memories.mb1_bytes",
    ),
    (
        dense(130, 4),
        (512, 512, 512, 64),
        "biases of the 17 filters of one TLT (130 filters in all): 68 bytes of the bias buffer "
        "needed, 64 available; use more TLEs or TLTs, or raise memories.bias_bytes",
    ),
]


@pytest.mark.parametrize("problem, memories, message", INFEASIBLE)
def test_infeasible_says_what_and_how_much(
    problem: ConvProblem, memories: tuple[int, int, int, int], message: str
) -> None:
    mach = machine(4, 2, memories)
    for name in planner_names(mach):
        plan = planner(name).plan(problem, mach)
        assert isinstance(plan, Infeasible)
        assert str(plan) == message


def test_limits_force_small_tiles() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    limits = TileLimits(max_tile_m=2, max_tile_n=3, max_tile_r=4, max_tile_c=5)
    plan = answer("tso", FIFTH, nmp, limits)
    assert plan.tile_m <= 2 and plan.tile_n <= 3 and plan.tile_r <= 4 and plan.tile_c <= 5
    with pytest.raises(PlanningError, match="max_tile_r = 0; a tile limit must be >= 1"):
        TileLimits(max_tile_r=0)


def test_unknown_planner_names_the_known_ones() -> None:
    with pytest.raises(PlanningError) as caught:
        planner("tos")
    assert "unknown planner 'tos'" in str(caught.value)
    for name in planner_names():
        assert name in str(caught.value)
        assert planner(name).name == name


def test_equal_layers_are_planned_once() -> None:
    asked = []

    class Counting:
        name = "counting"

        def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
            asked.append(problem)
            return planner("tso").plan(problem, machine)

    problems = reference.inception_v3()
    plans = plan_all(problems, Counting(), load_nmp_machine("nmp-4x8"))
    assert len(problems) == 94 and len(plans) == 94
    assert len(asked) == len(set(problems)) == 43
    by_problem = dict(zip(problems, plans, strict=True))
    assert [by_problem[problem] for problem in problems] == list(plans)


def test_inception_v3_is_planned_in_half_a_second() -> None:
    nmp, problems, tso = load_nmp_machine("nmp-4x8"), reference.inception_v3(), planner("tso")
    plan_all(problems, tso, nmp)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        plan_all(problems, tso, nmp)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) <= 0.5
