"""Exact: equal to a plain enumeration, proven, and never slower than another planner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import ceil
from typing import Any

import plan_reference as reference
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from plan_reference import conv, dense, machine

from tvm_npu.codegen.plan import NO_LIMITS, TileLimits, plan_all, planner, planner_names
from tvm_npu.codegen.plan import exact_kernel as kernel
from tvm_npu.codegen.plan.cost import predict
from tvm_npu.codegen.plan.exact import (
    ExactPlanner,
    Proof,
    _room,
    _speeds,
    _task,
    cuts,
    plan_with_proof,
)
from tvm_npu.codegen.plan.exact_tables import tables
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible
from tvm_npu.sim.machine import Machine, load_machine

ROUNDING = 1e-9


def space(
    problem: ConvProblem, mach: Machine, limits: TileLimits = NO_LIMITS
) -> Iterator[ConvPlan]:
    """Every plan there is, cuts with empty slices included."""
    filters, channels = problem.filters // problem.groups, problem.channels // problem.groups
    tles = mach.cores.tles
    top_m, top_n, top_r, top_c = (
        1 << 30 if bound is None else bound
        for bound in (limits.max_tile_m, limits.max_tile_n, limits.max_tile_r, limits.max_tile_c)
    )
    for row_slices in range(1, tles + 1):
        for filter_slices in range(1, tles // row_slices + 1):
            rows = -(-problem.rows // row_slices)
            for mode in ("multicast", "grouped") if problem.groups > 1 else ("multicast",):
                grouped = mode == "grouped"
                items = problem.groups if grouped else filters
                each = filters if grouped else 1
                most = ceil(ceil(items / filter_slices) / mach.cores.tlts_per_tle)
                if most * each * 4 > mach.memories.bias_bytes:
                    continue
                for schedule in ("OS", "WS") if grouped else ("IS", "OS", "WS"):
                    for tile_m in (most,) if schedule == "IS" else range(1, most + 1):
                        for tile_n in (channels,) if grouped else range(1, channels + 1):
                            for tile_r in range(1, rows + 1):
                                for tile_c in range(1, problem.columns + 1):
                                    tile = (tile_m * each, tile_n, tile_r, tile_c)
                                    tops = (top_m, top_n, top_r, top_c)
                                    if any(a > b for a, b in zip(tile, tops, strict=True)):
                                        continue
                                    if reference.fits(problem, mach, mode, schedule, tile):
                                        cut: Any = (row_slices, filter_slices)
                                        yield ConvPlan(mode, "KS&OFM", *cut, schedule, *tile)  # type: ignore[arg-type]


def cycles(plan: ConvPlan | Infeasible) -> float:
    assert isinstance(plan, ConvPlan) and plan.prediction is not None, str(plan)
    return plan.prediction.cycles


def proven(problem: ConvProblem, mach: Machine, limits: TileLimits = NO_LIMITS) -> Proof:
    proof = plan_with_proof(problem, mach, limits)
    assert isinstance(proof, Proof), str(proof)
    return proof


def check_against_space(
    problem: ConvProblem, mach: Machine, limits: TileLimits = NO_LIMITS
) -> None:
    times = [predict(problem, plan, mach).cycles for plan in space(problem, mach, limits)]
    proof = plan_with_proof(problem, mach, limits)
    if not times:
        assert isinstance(proof, Infeasible)
        return
    assert isinstance(proof, Proof)
    assert cycles(proof.plan) == pytest.approx(min(times), rel=ROUNDING)
    assert proof.plan.prediction == predict(problem, proof.plan, mach)
    assert proof.bound_cycles <= min(times)
    assert proof.bound_cycles == pytest.approx(cycles(proof.plan), rel=ROUNDING)
    assert proof.candidates <= len(times)  # cuts with empty slices are not searched


@st.composite
def tiny(draw: st.DrawFn) -> tuple[ConvProblem, Machine]:
    """Layers whose whole space can be costed, in memories of a few tiles; bursts of a few
    elements make times that are no monotone function of a tile's extents."""
    memories = st.integers(8, 20).map(lambda n: 8 * n) | st.just(4096)
    mach = machine(
        tles=draw(st.sampled_from((1, 2, 3, 4))),
        tlts=draw(st.integers(1, 3)),
        memories=(draw(memories), draw(memories), draw(memories), 4096),
        burst_bytes=draw(st.sampled_from((8, 16, 32))),
        setup_cycles=draw(st.sampled_from((0.0, 1.0, 16.0))),
        burst_cycles=draw(st.sampled_from((0.0, 7.0, 56.0))),
        linear_burst_cycles=draw(st.sampled_from((None, 0.0, 20.0))),
        dme_rate=draw(st.sampled_from((1.5, 8.0))),
        cas_cycles=draw(st.sampled_from((0.0, 14.0, 60.0))),
        dram_rate=draw(st.sampled_from((1.0, 17.0))),
        mac_setup=draw(st.sampled_from((0.0, 8.0))),
    )
    size = draw(st.sampled_from((1, 2)))
    if draw(st.integers(0, 5)) == 0:
        return dense(draw(st.integers(1, 20)), draw(st.integers(1, 30)), size), mach
    groups = draw(st.sampled_from((1, 1, 2, 3, 5)))
    kernel_size, stride, extent = (
        (draw(st.integers(1, top)), draw(st.integers(1, top))) for top in (3, 2, 4)
    )
    padding: Any = tuple(draw(st.integers(0, 2)) for _ in range(4))
    in_extent: Any = tuple(
        max(1, (extent[a] - 1) * stride[a] + kernel_size[a] - padding[a] - padding[a + 2])
        for a in (0, 1)
    )
    problem = conv(
        groups * draw(st.integers(1, 9 // groups)),
        groups * draw(st.integers(1, 6 // groups)),
        in_extent,
        kernel_size,
        stride,
        padding=padding,
        groups=groups,
        element_bytes=size,
        has_residual=draw(st.booleans()),
    )
    return problem, mach


@settings(max_examples=200, deadline=None)
@given(case=tiny())
def test_equals_the_whole_space(case: tuple[ConvProblem, Machine]) -> None:
    check_against_space(*case)


@st.composite
def vectors(draw: st.DrawFn) -> tuple[ConvProblem, Machine]:
    """Layers over a 1x1 map, with more channels and filters than a tile holds."""
    filters, channels = draw(st.integers(1, 20)), draw(st.integers(1, 90))
    size = draw(st.sampled_from((1, 2)))
    problem = dense(filters, channels, size)
    if draw(st.booleans()):
        groups = draw(st.sampled_from((1, 2, 4)))
        problem = conv(groups * -(-filters // groups), groups * -(-channels // groups), (1, 1),
                       (1, 1), groups=groups, element_bytes=size)  # fmt: skip
    memories = st.integers(8, 24).map(lambda n: 8 * n)
    mach = machine(
        tles=draw(st.integers(1, 2)),
        tlts=draw(st.integers(1, 2)),
        memories=(draw(memories), draw(memories), 4096, 4096),
        burst_bytes=draw(st.sampled_from((8, 16))),
        setup_cycles=draw(st.sampled_from((0.0, 1.0, 16.0))),
        burst_cycles=draw(st.sampled_from((7.0, 56.0))),
        mac_setup=draw(st.sampled_from((0.0, 8.0))),
    )
    return problem, mach


@settings(max_examples=150, deadline=None)
@given(case=vectors())
def test_equals_the_whole_space_of_vectors(case: tuple[ConvProblem, Machine]) -> None:
    check_against_space(*case)


@settings(max_examples=60, deadline=None)
@given(case=tiny(), limits=reference.limits())
def test_equals_the_whole_space_under_limits(
    case: tuple[ConvProblem, Machine], limits: TileLimits
) -> None:
    check_against_space(*case, limits)


@settings(max_examples=60, deadline=None)
@given(case=tiny())
def test_counts_every_plan(case: tuple[ConvProblem, Machine]) -> None:
    problem, mach = case
    proof = plan_with_proof(problem, mach)
    assume(isinstance(proof, Proof))
    assert isinstance(proof, Proof)
    searched = set(cuts(problem, mach))
    plans = [
        plan
        for plan in space(problem, mach)
        if (plan.mode, plan.row_slices, plan.filter_slices) in searched
    ]
    assert proof.candidates == len(plans)
    assert proof.cut <= proof.cells <= proof.candidates
    assert proof.evaluated <= proof.candidates


CLIPPED_AWAY = conv(4, 6, (1, 1), (1, 1), stride=(2, 2), padding=(1, 0, 1, 0))
"""A vector whose only window lies outside it."""


@settings(max_examples=150, deadline=None)
@example(problem=CLIPPED_AWAY, mach=machine(1, 1, (64, 64, 64, 64), burst_bytes=8))
@given(problem=reference.convs(16), mach=reference.machines(2048))
def test_kernel_time_is_the_prediction(problem: ConvProblem, mach: Machine) -> None:
    """To the bit, for the best tile of every cut and mode."""
    room, speeds = _room(problem, mach, NO_LIMITS), _speeds(problem, mach)
    for mode, rows, filters in cuts(problem, mach):
        task = _task(problem, mach, mode, rows, filters)
        time, _, chosen, _ = kernel.search(task, room, speeds, tables(task, speeds), float("inf"))
        schedule, tile_m, *tile = (int(value) for value in chosen)
        if tile_m:
            words: Any = "WS" if schedule == kernel.WS else "OS"
            plan = ConvPlan(mode, "KS", rows, filters, words, tile_m * task.item_filters, *tile)
            assert time == predict(problem, plan, mach).cycles


OTHERS = tuple(name for name in planner_names() if name != "exact")


@settings(max_examples=150, deadline=None)
@given(problem=reference.convs(24), mach=reference.machines(4096), limits=reference.limits())
def test_never_slower_than_another_planner(
    problem: ConvProblem, mach: Machine, limits: TileLimits
) -> None:
    own = planner("exact", limits).plan(problem, mach)
    for name in OTHERS:
        other = planner(name, limits).plan(problem, mach)
        assert isinstance(own, Infeasible) == isinstance(other, Infeasible)
        if isinstance(other, ConvPlan):
            assert cycles(own) <= cycles(other) * (1 + ROUNDING)
            if name == "tso":
                assert cycles(own) <= cycles(other)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), case=reference.tight_layers())
def test_no_plan_nearby_is_faster(data: st.DataObject, case: tuple[ConvProblem, Machine]) -> None:
    """Layers too large to enumerate: random plans, most of them near the winner."""
    problem, mach = case
    proof = plan_with_proof(problem, mach)
    assume(isinstance(proof, Proof))
    assert isinstance(proof, Proof)
    best = proof.plan
    each = problem.filters // problem.groups
    step = st.integers(-2, 2)
    for _ in range(20):
        mode, rows, filters = data.draw(st.sampled_from(list(cuts(problem, mach))))
        items, unit = (problem.groups, each) if mode == "grouped" else (each, 1)
        most = ceil(ceil(items / filters) / mach.cores.tlts_per_tle)
        extents = (
            (best.tile_m // unit, most),
            (best.tile_n, problem.channels // problem.groups),
            (best.tile_r, -(-problem.rows // rows)),
            (best.tile_c, problem.columns),
        )
        tile_m, tile_n, tile_r, tile_c = (
            min(max(1, near + data.draw(step)), top) for near, top in extents
        )
        if mode == "grouped":
            tile_n = problem.channels // problem.groups
        schedule = data.draw(st.sampled_from(("OS", "WS")))
        tile = (tile_m * unit, tile_n, tile_r, tile_c)
        fits = reference.fits(problem, mach, mode, schedule, tile)
        if fits and most * unit * 4 <= mach.memories.bias_bytes:
            plan = ConvPlan(mode, "KS", rows, filters, schedule, *tile)
            assert cycles(best) <= predict(problem, plan, mach).cycles * (1 + ROUNDING)


def test_finds_what_tso_cannot() -> None:
    """More channels a tile where OUT leaves room for fewer filters; cuts beside Algorithm 2's."""
    nmp, tso = machine(linear_burst_cycles=None), planner("tso")
    fifth = conv(192, 80, (73, 73), (3, 3))
    assert cycles(proven(fifth, nmp).plan) < cycles(tso.plan(fifth, nmp))
    six = nmp.with_cores(6)
    square = conv(64, 32, (36, 36), (3, 3), padding=(1, 1, 1, 1))
    found = proven(square, six).plan
    assert (found.row_slices, found.filter_slices) == (3, 2)
    assert cycles(found) < cycles(tso.plan(square, six))


def test_whole_bursts_of_a_vector_are_worth_a_step() -> None:
    """Five filters a tile fit, but four are one burst of OUT: 8 TLTs save more than IN costs."""
    mach = machine(1, 8, (4096, 80, 4096, 4096), burst_bytes=8, setup_cycles=0.0, mac_setup=0.0)
    problem, limits = dense(80, 20), TileLimits(max_tile_m=5)
    found = proven(problem, mach, limits).plan
    assert (found.schedule, found.tile_m, found.tile_n) == ("OS", 4, 8)
    check_against_space(problem, mach, limits)


def test_cuts_have_no_empty_slice() -> None:
    mach = machine(4, 2)
    assert list(cuts(conv(2, 4, (3, 9), (1, 1)), mach)) == [
        ("multicast", 2, 2),
        ("multicast", 3, 1),
        ("multicast", 1, 2),
        ("multicast", 2, 1),
        ("multicast", 1, 1),
    ]


def test_infeasible_is_tsos_answer() -> None:
    mach = machine(4, 2, (64, 512, 64, 64))
    problem = conv(4, 4, (9, 9), (9, 9))
    assert plan_with_proof(problem, mach) == planner("tso").plan(problem, mach)
    assert isinstance(plan_with_proof(problem, mach), Infeasible)


def test_inception_v3_is_planned_in_two_seconds() -> None:
    nmp, problems = load_machine("nmp-4x8"), reference.inception_v3()
    plan_all(problems, ExactPlanner(), nmp)
    begin = time.perf_counter()
    plans = plan_all(problems, ExactPlanner(), nmp)
    assert time.perf_counter() - begin <= 2.0
    for plan, other in zip(plans, plan_all(problems, planner("tso"), nmp), strict=True):
        assert cycles(plan) <= cycles(other)
        assert isinstance(plan, ConvPlan) and plan.planner == "exact"
