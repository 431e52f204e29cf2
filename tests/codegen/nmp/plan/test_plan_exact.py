"""Exact: equal to a plain enumeration, proven, and never slower than another planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, random_tensors
from tests.codegen.nmp.plan import plan_reference as reference
from tests.codegen.nmp.plan import plan_walk
from tests.codegen.nmp.plan.plan_reference import NMP_PLANNERS, conv, dense, machine
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.exact import ExactPlanner, Proof, layer, plan_with_proof, search
from tvm_npu.codegen.nmp.plan.exact import waiting as waiting_module
from tvm_npu.codegen.nmp.plan.exact.space import Facts, space
from tvm_npu.codegen.nmp.plan.exact.waiting import Waiting
from tvm_npu.codegen.plan import (
    NO_LIMITS,
    TileLimits,
    plan_all,
    planner,
)
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, slice_of
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict

ROUNDING = 1e-9
MOST_PLANS = 1500
"""Larger spaces are not enumerated."""


def extents(total: int, slices: int, parts: int) -> range:
    return range(1, ceil(ceil(total / slices) / parts) + 1)


def cut_choices(problem: ConvProblem, mach: NmpMachine, mode: str) -> Iterator[dict[str, Any]]:
    """Every way to cut a layer over TLEs and TLTs, empty slices included."""
    tles, tlts = range(1, mach.cores.tles + 1), range(1, mach.cores.tlts_per_tle + 1)
    one, no = range(1, 2), (False,)
    grouped = mode == "grouped"
    for rows, columns, filters in product(tles, one if grouped else tles, tles):
        if rows * columns * filters > mach.cores.tles:
            continue
        spatial = rows * columns
        split = "KS" if spatial == 1 else "OFM" if filters == 1 else "KS&OFM"
        each = problem.filters // problem.groups
        no_empty_item = slice_of(each, filters, filters - 1)[1]
        no_empty_place = slice_of(problem.rows, rows, rows - 1)[1]
        no_empty_place *= slice_of(problem.columns, columns, columns - 1)[1]
        ring = mach.ring is not None and not grouped
        for tlt_rows, tlt_columns in product(one if grouped else tlts, repeat=2):
            if mach.cores.tlts_per_tle % (tlt_rows * tlt_columns):
                continue
            for ring_in, ring_weights, buffers in product(
                (False, True) if ring and filters > 1 and no_empty_item else no,
                (False, True) if ring and spatial > 1 and no_empty_place else no,
                (1,) if grouped or mach.memories.ports == 1 else (1, 2),
            ):
                yield {
                    "mode": mode, "split": split, "row_slices": rows, "column_slices": columns,
                    "filter_slices": filters, "tlt_rows": tlt_rows, "tlt_columns": tlt_columns,
                    "ring_in": ring_in, "ring_weights": ring_weights, "buffers": buffers,
                }  # fmt: skip


def tilings(
    problem: ConvProblem, mach: NmpMachine, cut: dict[str, Any]
) -> Iterator[tuple[str, bool, range, range, range, range]]:
    """(schedule, keeps_in, and the values of tile_m, tile_n, tile_r, tile_c) of a cut."""
    grouped = cut["mode"] == "grouped"
    each, channels = problem.filters // problem.groups, problem.channels // problem.groups
    items, unit = (problem.groups, each) if grouped else (each, 1)
    runs = mach.cores.tlts_per_tle // (cut["tlt_rows"] * cut["tlt_columns"])
    tile_m = extents(items, cut["filter_slices"], runs)
    tile_m = range(unit, unit * len(tile_m) + 1, unit)
    tile_r = extents(problem.rows, cut["row_slices"], cut["tlt_rows"])
    tile_c = extents(problem.columns, cut["column_slices"], cut["tlt_columns"])
    whole, any_n = range(channels, channels + 1), range(1, channels + 1)
    schedules = (("OS", False, whole), ("WS", False, whole))
    if not grouped:
        schedules = (("OS", False, any_n), ("OS", True, whole), ("WS", False, any_n))  # type: ignore[assignment]
        yield "IS", False, tile_m[-1:], any_n, tile_r, tile_c
    for schedule, keeps_in, tile_n in schedules:
        yield schedule, keeps_in, tile_m, tile_n, tile_r, tile_c


def space_size(problem: ConvProblem, mach: NmpMachine) -> int:
    size = 0
    for mode in modes(problem):
        for cut in cut_choices(problem, mach, mode):
            for _, _, *tiles in tilings(problem, mach, cut):
                size += len(tiles[0]) * len(tiles[1]) * len(tiles[2]) * len(tiles[3])
    return size


def modes(problem: ConvProblem) -> tuple[str, ...]:
    return ("multicast", "grouped") if problem.groups > 1 else ("multicast",)


def all_plans(
    problem: ConvProblem, mach: NmpMachine, limits: TileLimits = NO_LIMITS
) -> Iterator[ConvPlan]:
    """Every plan that fits, with W tiles in one run and, where runs cost no more than boxes,
    linear maps (`test_layouts_never_cost_more` is about the others)."""
    layouts = (True,) if runs_cost_no_more(mach) else (True, False)
    tops = (limits.max_tile_m, limits.max_tile_n, limits.max_tile_r, limits.max_tile_c)
    for mode in modes(problem):
        for cut in cut_choices(problem, mach, mode):
            for schedule, keeps_in, *ranges in tilings(problem, mach, cut):
                for tile in product(*ranges):
                    if any(top and a > top for a, top in zip(tile, tops, strict=True)):
                        continue
                    tile_m, tile_n, tile_r, tile_c = tile
                    plan = ConvPlan(
                        schedule=schedule, keeps_in=keeps_in, tile_m=tile_m, tile_n=tile_n,
                        tile_r=tile_r, tile_c=tile_c, weights="tiles", **cut,
                    )  # type: ignore[arg-type]  # fmt: skip
                    if check_plan(problem, plan, mach) is None:
                        for linear in layouts:
                            yield replace(plan, linear_maps=linear)


def runs_cost_no_more(mach: NmpMachine) -> bool:
    return mach.dme.linear_cycles <= mach.dme.burst_cycles


def cycles(plan: ConvPlan | Infeasible) -> float:
    assert isinstance(plan, ConvPlan) and plan.prediction is not None, str(plan)
    return plan.prediction.cycles


def proven(problem: ConvProblem, mach: NmpMachine, limits: TileLimits = NO_LIMITS) -> Proof:
    proof = plan_with_proof(problem, mach, limits)
    assert isinstance(proof, Proof), str(proof)
    return proof


def check_against_space(
    problem: ConvProblem, mach: NmpMachine, limits: TileLimits = NO_LIMITS
) -> None:
    assume(space_size(problem, mach) <= MOST_PLANS)
    times = [predict(problem, plan, mach).cycles for plan in all_plans(problem, mach, limits)]
    proof = plan_with_proof(problem, mach, limits)
    if not times:
        assert isinstance(proof, Infeasible)
        return
    assert isinstance(proof, Proof)
    assert check_plan(problem, proof.plan, mach) is None
    assert proof.plan.prediction == predict(problem, proof.plan, mach)
    assert proof.bound_cycles == pytest.approx(cycles(proof.plan), rel=ROUNDING)
    assert proof.opened <= proof.classes and proof.evaluated <= 2 * len(times)
    least = cycles(proof.plan)
    if proof.plan.in_by_channels or proof.plan.macs_first:
        # What the search finds gets IN tiles by channels and products first behind it, where that
        # is faster.
        assert least < min(times)
        boxes = replace(proof.plan, in_by_channels=False, macs_first=False)
        least = predict(problem, boxes, mach).cycles
    assert least == pytest.approx(min(times), rel=ROUNDING)


@st.composite
def machines(draw: st.DrawFn) -> NmpMachine:
    """Few cores; memories of a few tiles; bursts of a few elements, which make times that are no
    monotone function of a tile's extents; with and without a ring, which may be the slowest."""
    memories = st.integers(8, 20).map(lambda n: 8 * n) | st.just(4096)
    biases = st.sampled_from((64, 4096))
    tles = draw(st.sampled_from((1, 2, 2, 3, 4)))
    mach = machine(
        tles=tles,
        tlts=draw(st.integers(1, {1: 4, 2: 3}.get(tles, 2))),
        memories=(draw(memories), draw(memories), draw(memories), draw(biases)),
        burst_bytes=draw(st.sampled_from((8, 16, 32))),
        setup_cycles=draw(st.sampled_from((0.0, 1.0, 16.0))),
        burst_cycles=draw(st.sampled_from((0.0, 7.0, 56.0))),
        linear_burst_cycles=draw(st.sampled_from((None, 0.0, 20.0))),
        dme_rate=draw(st.sampled_from((1.5, 8.0))),
        cas_cycles=draw(st.sampled_from((0.0, 14.0, 60.0))),
        dram_rate=draw(st.sampled_from((1.0, 17.0))),
        mac_setup=draw(st.sampled_from((0.0, 8.0))),
    )  # fmt: skip
    return with_extras(
        mach,
        draw(st.sampled_from((1, 2))),
        draw(st.sampled_from((None, 1.0, 16.0))),
        draw(st.sampled_from((0.0, 4.0))),
    )


def with_extras(
    mach: NmpMachine, ports: int, ring_rate: float | None, hop: float = 4.0
) -> NmpMachine:
    values = mach.model_dump()
    values["memories"]["ports"] = ports
    ring = {"bytes_per_cycle": ring_rate, "hop_cycles": hop}
    values["ring"] = None if ring_rate is None else ring
    return nmp_machine_from_dict(values)


@st.composite
def layers(draw: st.DrawFn) -> ConvProblem:
    size = draw(st.sampled_from((1, 2)))
    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    kernel_size, stride, dilation = (
        (draw(st.integers(1, top)), draw(st.integers(1, top))) for top in (3, 2, 2)
    )
    extent = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    padding: Any = (0, 0, 0, 0)
    if draw(st.booleans()):
        padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    in_extent: Any = tuple(
        max(
            1 + dilation[a] * (kernel_size[a] - 1) - padding[a] - padding[a + 2],
            (extent[a] - 1) * stride[a] + dilation[a] * (kernel_size[a] - 1) + 1
            - padding[a] - padding[a + 2],
            1,
        )
        for a in (0, 1)
    )  # fmt: skip
    return conv(
        groups * draw(st.integers(1, 8 // groups)),
        groups * draw(st.integers(1, 6 // groups)),
        in_extent,
        kernel_size,
        stride,
        dilation,
        padding,
        groups,
        size,
        draw(st.booleans()),
    )


def vectors() -> st.SearchStrategy[ConvProblem]:
    """Layers over a 1x1 map, with more channels and filters than a tile holds."""
    counts = st.integers(1, 12)
    sizes = st.sampled_from((1, 2))
    grouped = st.builds(
        lambda groups, filters, channels, size: conv(
            groups * filters, groups * channels, (1, 1), (1, 1), groups=groups, element_bytes=size
        ),
        st.sampled_from((1, 2, 4)), st.integers(1, 4), st.integers(1, 12), sizes,
    )  # fmt: skip
    return st.builds(dense, counts, st.integers(1, 40), sizes) | grouped


@settings(max_examples=examples(80), deadline=None, suppress_health_check=FILTERED)
@given(problem=layers(), mach=machines())
@example(  # one place: OS loads no more than WS
    problem=replace(conv(4, 2, (1, 1), (1, 1), groups=2), element_bytes=1),
    mach=machine(
        1, 2, (64, 64, 4096, 64), burst_bytes=8, setup_cycles=0.0, burst_cycles=0.0,
        linear_burst_cycles=None, cas_cycles=0.0, dram_rate=1.0, mac_setup=0.0, ring=None,
    ),
)  # fmt: skip
def test_equals_the_whole_space(problem: ConvProblem, mach: NmpMachine) -> None:
    check_against_space(problem, mach)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=FILTERED)
@given(problem=vectors(), mach=machines())
def test_equals_the_whole_space_of_vectors(problem: ConvProblem, mach: NmpMachine) -> None:
    check_against_space(problem, mach)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=FILTERED)
@given(problem=layers(), mach=machines(), limits=reference.limits())
def test_equals_the_whole_space_under_limits(
    problem: ConvProblem, mach: NmpMachine, limits: TileLimits
) -> None:
    check_against_space(problem, mach, limits)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=FILTERED)
@given(problem=layers(), mach=machines())
@example(  # two buffers; the last row tile is like the first one
    problem=ConvProblem(
        filters=6, channels=4, groups=1, rows=4, columns=3, in_rows=4, in_columns=2, kernel=(1, 1),
        stride=(2, 1), dilation=(2, 2), padding=(1, 0, 2, 1), element_bytes=1,
    ),
    mach=with_extras(
        machine(
            1, 4, (152, 4096, 64, 4096), burst_bytes=16, setup_cycles=1.0, burst_cycles=56.0,
            linear_burst_cycles=None, dme_rate=1.5, cas_cycles=0.0, dram_rate=1.0, mac_setup=8.0,
        ),
        ports=2, ring_rate=1.0,
    ),
)  # fmt: skip
def test_the_search_times_plans_as_predictions_do(problem: ConvProblem, mach: NmpMachine) -> None:
    """Of every spread, schedule and number of buffers the fastest."""
    for part in layer.parts_of(problem, mach, NO_LIMITS, uses_ring=True):
        for number, bound in enumerate(part.bounds()):
            found = part.fastest(np.array([number]), np.array([bound]), inf)
            if found.chosen[search.TILE_M]:
                plan = part.plan(found.chosen)
                note(str(plan))
                assert predict(problem, plan, mach).cycles == pytest.approx(found.cycles, rel=1e-9)


def test_channels_that_come_by_themselves_are_faster_than_the_space() -> None:
    """Tiles of one column of two are boxes, whose bursts wait."""
    mach = machine(1, 1, (4096, 64, 4096, 64), burst_bytes=8, setup_cycles=0.0, burst_cycles=7.0,
                   linear_burst_cycles=0.0, dme_rate=1.5, cas_cycles=0.0, dram_rate=1.0,
                   mac_setup=0.0)  # fmt: skip
    problem = ConvProblem(
        filters=1, channels=1, groups=1, rows=1, columns=2, in_rows=1, in_columns=2,
        kernel=(1, 1), stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), element_bytes=1,
    )  # fmt: skip
    limits = TileLimits(max_tile_c=1)
    assert proven(problem, mach, limits).plan.in_by_channels
    check_against_space(problem, mach, limits)


def test_one_burst_less_decides_between_ragged_cuts() -> None:
    """Under OS a W tile's bursts depend on filters and channels together: 8 + 5 channels of six
    filters are one burst less than 7 + 6."""
    mach = with_extras(machine(1, 1, (152, 136, 120, 64), burst_bytes=32, setup_cycles=16.0,
                               burst_cycles=14.0, linear_burst_cycles=None, dme_rate=1.0,
                               cas_cycles=0.0, mac_setup=0.0),
                       1, 16.0)  # fmt: skip
    problem = dense(6, 13)
    found = proven(problem, mach).plan
    times = [predict(problem, plan, mach).cycles for plan in all_plans(problem, mach)]
    assert cycles(found) == min(times) == pytest.approx(577 + 1 / 3)
    assert (found.schedule, found.tile_m, found.tile_n) == ("IS", 6, 8)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), problem=reference.convs(12), mach=reference.machines(2048))
def test_layouts_never_cost_more(
    data: st.DataObject, problem: ConvProblem, mach: NmpMachine
) -> None:
    """W tiles in one run and linear maps, which is all that `exact` searches."""
    mach = with_extras(mach, data.draw(st.sampled_from((1, 2))), 16.0)
    plan = data.draw(plan_walk.plans(problem, mach))
    best = replace(plan, weights="tiles")
    if runs_cost_no_more(mach):
        best = replace(best, linear_maps=True)
    time = predict(problem, best, mach).cycles
    assert time <= predict(problem, plan, mach).cycles * (1 + ROUNDING)


EXACT = ("exact", "exact-dma")
OTHERS = tuple(name for name in NMP_PLANNERS if name not in EXACT)


@settings(max_examples=examples(150), deadline=None)
@given(problem=reference.convs(24), mach=reference.machines(4096), limits=reference.limits(),
       ports=st.sampled_from((1, 2)), ring=st.sampled_from((None, 1.0, 16.0)))  # fmt: skip
def test_never_slower_than_another_planner(
    problem: ConvProblem, mach: NmpMachine, limits: TileLimits, ports: int, ring: float | None
) -> None:
    mach = with_extras(mach, ports, ring)
    own = planner("exact", limits).plan(problem, mach)
    plain = planner("exact-dma", limits).plan(problem, mach)
    assert isinstance(own, Infeasible) == isinstance(plain, Infeasible)
    for name in OTHERS:
        other = planner(name, limits).plan(problem, mach)
        assert isinstance(own, Infeasible) == isinstance(other, Infeasible)
        if isinstance(other, ConvPlan):
            assert cycles(own) <= cycles(plain) * (1 + ROUNDING)
            assert cycles(plain) <= cycles(other) * (1 + ROUNDING)
            if name == "tso":
                assert max(cycles(own), cycles(plain)) <= cycles(other)


def test_a_plan_without_the_ring_may_gain_more_by_products_first() -> None:
    """Both searches try `macs_first` on the plan that they have found: only the one without the
    ring gains by it here, and is slower before."""
    layer = conv(5, 7, (3, 50), (2, 2), (1, 3), element_bytes=1, has_residual=True)
    mach = with_extras(machine(3, 1, (488, 144, 88, 64), burst_bytes=128, setup_cycles=0.0,
                               burst_cycles=0.0, linear_burst_cycles=None, dme_rate=8.0,
                               mac_setup=0.0), 2, 1.0)  # fmt: skip
    own, plain = (planner(name, NO_LIMITS).plan(layer, mach) for name in EXACT)
    assert isinstance(own, ConvPlan) and isinstance(plain, ConvPlan)
    assert cycles(own) <= cycles(plain)
    assert plain.macs_first and own == replace(plain, planner="exact")
    without = predict(layer, replace(plain, macs_first=False), mach).cycles
    assert without > cycles(proven(layer, mach).plan) > cycles(plain)


def test_what_the_dram_needs_bounds_plans_too() -> None:
    """Where it needs longer than any TLE: a classifier whose weights pass by once."""
    values = load_nmp_machine("nmp-4x8-dual").model_dump()
    values["dram"]["bytes_per_cycle"] = 2.0
    proof = proven(dense(1000, 1280), nmp_machine_from_dict(values))
    assert proof.plan.prediction is not None and proof.plan.prediction.bound == "dram"
    assert proof.bound_cycles == pytest.approx(cycles(proof.plan), rel=ROUNDING)
    assert proof.evaluated < 1000


def test_the_search_goes_on_with_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits outgrows its arrays."""
    problem, mach = conv(16, 16, (28, 28), (1, 1)), load_nmp_machine("nmp-4x8")
    before, grown = proven(problem, mach), []

    def with_room(waiting: Waiting, room: int) -> Waiting:
        grown.append(room)
        return waiting_module.with_room(waiting, room)

    monkeypatch.setattr(layer, "_ROOM", 1)
    monkeypatch.setattr(layer, "with_room", with_room)
    assert proven(problem, mach) == before and before.opened > 1
    assert grown


@settings(max_examples=examples(150), deadline=None, suppress_health_check=FILTERED)
@given(data=st.data(), case=reference.tight_layers(), ports=st.sampled_from((1, 2)))
def test_no_random_plan_is_faster(
    data: st.DataObject, case: tuple[ConvProblem, NmpMachine], ports: int
) -> None:
    """Layers too large to enumerate: random plans, and such with some of the winner's fields."""
    problem, mach = case[0], with_extras(case[1].with_cores(4, 4), ports, 16.0)
    proof = plan_with_proof(problem, mach)
    assume(isinstance(proof, Proof))
    assert isinstance(proof, Proof)
    assert check_plan(problem, proof.plan, mach) is None
    tiles = ("tile_m", "tile_n", "tile_r", "tile_c")
    for _ in range(20):
        plan = data.draw(plan_walk.plans(problem, mach))
        if data.draw(st.booleans()):
            near = {
                name: max(1, getattr(proof.plan, name) + data.draw(st.integers(-2, 2)))
                for name in tiles
            }
            plan = replace(proof.plan, **near)
        if check_plan(problem, plan, mach) is None:
            time = predict(problem, plan, mach).cycles
            assert cycles(proof.plan) <= time * (1 + ROUNDING)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("machine_name", ("nmp-4x8", "nmp-4x8-dual", "nmp-4x8-int8"))
def test_plans_of_inception_v3(name: str, machine_name: str) -> None:
    """Sound, no slower than TSO's, named, the same again, and DMA alone where that is asked."""
    mach, problems = load_nmp_machine(machine_name), reference.inception_v3()
    tso = plan_all(problems, planner("tso"), mach)
    plans = plan_all(problems, planner(name), mach)
    for plan, other in zip(plans, tso, strict=True):
        assert isinstance(plan, ConvPlan) and plan.planner == name
        assert cycles(plan) <= cycles(other)
        if name == "exact-dma":
            assert not plan.ring_in and not plan.ring_weights
    for problem, plan in dict(zip(problems, plans, strict=True)).items():
        assert check_plan(problem, plan, mach) is None  # type: ignore[arg-type]
    assert plan_all(problems[:8], planner(name), mach) == plans[:8]


def test_uses_what_the_machine_has() -> None:
    """On the layers of a network, each wire and buffer is worth something somewhere."""
    problems = reference.inception_v3()
    dual = load_nmp_machine("nmp-4x8-dual")
    plans = [plan for plan in plan_all(problems, ExactPlanner(), dual)]
    assert all(isinstance(plan, ConvPlan) for plan in plans)
    for name, value in (
        ("ring_in", True), ("ring_weights", True), ("buffers", 2), ("weights", "tiles"),
        ("linear_maps", True),
    ):  # fmt: skip
        assert any(getattr(plan, name) == value for plan in plans), name


def test_finds_what_tso_cannot() -> None:
    """Cuts beside Algorithm 2's, and TLTs that share filters instead of rows."""
    nmp, tso = load_nmp_machine("nmp-4x8"), planner("tso")
    fifth = conv(192, 80, (73, 73), (3, 3))
    found = proven(fifth, nmp).plan
    assert cycles(found) < 0.9 * cycles(tso.plan(fifth, nmp))
    assert found.ring_in or found.ring_weights
    few = conv(4, 16, (56, 56), (3, 3), padding=(1, 1, 1, 1))
    found = proven(few, nmp).plan
    assert found.tlt_rows * found.tlt_columns > 1
    assert cycles(found) < cycles(tso.plan(few, nmp))


def test_plain_layouts_where_they_cost_nothing() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    for problem in dict.fromkeys(reference.inception_v3()):
        plan = proven(problem, nmp).plan
        for plain in ({"weights": "filters"}, {"linear_maps": False}):
            other = replace(plan, **plain)  # type: ignore[arg-type]
            if other != plan:
                assert predict(problem, other, nmp).cycles > cycles(plan)


def test_spaces_differ_by_what_the_machine_has() -> None:
    plain = space(Facts(4, 8, ring=False, ports=1), False).families
    assert len(plain) == 13 * 10 * 3  # cuts of 4 TLEs, grids of 8 TLTs, schedules
    assert len(space(Facts(4, 8, ring=False, ports=2), False).families) == 2 * len(plain)
    assert len(space(Facts(4, 8, ring=True, ports=1), False).families) == 29 * 10 * 3
    assert len(space(Facts(4, 8, ring=True, ports=2), True).families) == 8
    assert len({tuple(row) for row in plain}) == len(plain)


def test_windows_come_over_the_ring() -> None:
    assert ExactPlanner().plans_windows
    assert not ExactPlanner(uses_ring=False).plans_windows


def test_infeasible_is_tsos_answer() -> None:
    mach = machine(4, 2, (64, 512, 64, 64))
    problem = conv(4, 4, (9, 9), (9, 9))
    for name in EXACT:
        assert planner(name).plan(problem, mach) == planner("tso").plan(problem, mach)
    assert isinstance(plan_with_proof(problem, mach), Infeasible)


@st.composite
def small_machines(draw: st.DrawFn) -> NmpMachine:
    memory = st.sampled_from((256, 512, 2048, 8192))
    mach = small_machine(
        draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 3, 4, 8))),
        draw(memory), draw(memory), draw(memory), queue_depth=draw(st.sampled_from((1, 2, 16))),
    )  # fmt: skip
    return with_extras(mach, draw(st.sampled_from((1, 2))), draw(st.sampled_from((None, 16.0))))


@pytest.mark.parametrize("element_bytes", [1, 2])
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data(), mach=small_machines(), name=st.sampled_from(EXACT), seed=SEEDS,
       limits=reference.limits())  # fmt: skip
def test_every_plan_runs_to_the_bit(
    element_bytes: int, data: st.DataObject, mach: NmpMachine, name: str, seed: int,
    limits: TileLimits,
) -> None:  # fmt: skip
    """Emitted and simulated."""
    fixed = data.draw(convolutions(element_bytes))
    inputs = random_tensors(fixed, seed)
    try:
        note(generate(fixed, mach, name, limits).listing())
        program = compile_fixed(fixed, mach, name, limits)
    except PlanningError as error:
        assert isinstance(error.infeasible, Infeasible)
        reject()
    expected = run_fixed(fixed, {key: value[None] for key, value in inputs.items()})
    outputs, _ = simulate(program, inputs, timing=data.draw(st.booleans()))
    np.testing.assert_array_equal(outputs["y"], expected["y"][0])
