"""The cost model: by hand, and against a walk over every tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.plan import plan_reference as reference
from tests.codegen.nmp.plan import plan_walk
from tests.codegen.nmp.plan.plan_reference import NMP_PLANNERS, conv, dense, machine
from tests.codegen.nmp.plan.tile_events import MOST_STEPS, TileEvents
from tests.examples import FILTERED, examples
from tvm_npu.codegen.nmp.plan.by_channels import may_load_by_channels
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import mac_cycles, predict
from tvm_npu.codegen.nmp.plan.traffic import Traffic, in_transfer, out_transfer, weight_transfer
from tvm_npu.codegen.nmp.plan.turns import tle_turns
from tvm_npu.codegen.plan import TileLimits, planner
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict

NMP = machine()
FIFTH = conv(192, 80, (73, 73), (3, 3))

MANY_LEFT_OUT = settings(
    max_examples=examples(200), deadline=None, suppress_health_check=FILTERED
)
"""For tests that leave out many of the machines and layers that are drawn."""


def one_run(bursts: int, size: int) -> Traffic:
    """One 1-D transfer."""
    return Traffic(1, bursts, size, linear_bursts=bursts)


def test_in_tiles() -> None:
    # Full width: 14 x 73 elements of 2 bytes are one piece of 2044 bytes, 16 bursts a channel.
    assert in_transfer(FIFTH, 4, 14, 73, 128) == Traffic(1, 64, 8176)
    # One column less: 14 pieces of 144 bytes, 2 bursts each.
    assert in_transfer(FIFTH, 4, 14, 72, 128) == Traffic(1, 112, 8064)
    assert in_transfer(FIFTH, 4, 0, 73, 128) == Traffic(0, 0, 0)
    assert in_transfer(dense(10, 400), 100, 1, 1, 128) == one_run(2, 200)
    # A padded 3x3 window over a 1x1 map is no vector: a piece a channel.
    padded = conv(8, 16, (1, 1), (3, 3), padding=(1, 1, 1, 1))
    assert in_transfer(padded, 16, 1, 1, 128) == Traffic(1, 16, 32)


def test_weight_tiles() -> None:
    assert weight_transfer(FIFTH, 6, 5, 128) == one_run(6, 540)
    assert weight_transfer(FIFTH, 6, 80, 128) == one_run(68, 8640)
    grouped = conv(32, 32, (8, 8), (3, 3), groups=32)
    assert weight_transfer(grouped, 8, 1, 128) == one_run(2, 144)


def test_out_tiles() -> None:
    assert out_transfer(FIFTH, 4, 12, 71, 128) == Traffic(1, 4 * 14, 4 * 1704)
    assert out_transfer(FIFTH, 4, 12, 70, 128) == Traffic(1, 4 * 12 * 2, 4 * 1680)
    assert out_transfer(dense(10, 400), 10, 1, 1, 128) == one_run(1, 20)


def test_times() -> None:
    assert Traffic(2, 3, 300).engine_cycles(NMP) == 2 * 16 + 3 * 56 + 200
    mixed = Traffic(2, 3, 300, linear_bursts=2)
    assert mixed.engine_cycles(NMP) == 2 * 16 + 56 + 2 * 20 + 200
    assert mixed.engine_cycles(machine(linear_burst_cycles=None)) == 2 * 16 + 3 * 56 + 200
    assert mixed.dram_cycles(NMP) == 3 * 14 + 300 / 17
    assert Traffic(2, 3, 340).dram_cycles(NMP) == 3 * 14 + 20
    # Four engines at the DRAM: 56 cycles of CAS a burst and 4 / 17 a byte; boxes wait anyway.
    short = Traffic(1, 10, 170, linear_bursts=10)
    # They go on while an engine sets up its next transfer, unless all do that in step.
    assert short.engine_cycles(NMP, 4) == 4 * (140 + 10)
    assert short.engine_cycles(NMP, 4, in_step=True) == 16 + 4 * (140 + 10)
    assert short.engine_cycles(NMP) == 16 + 10 * 20 + 170 / 1.5
    assert Traffic(1, 10, 170).engine_cycles(NMP, 4) == 16 + 10 * 56 + 170 / 1.5
    # Equation 7: 5 x 6 x ceil(639 * 9 / 8) at 0.75 of the peak, plus the start.
    assert mac_cycles(FIFTH, 6, 5, 9, 71, NMP) == 30 * 719 / 0.75 + 8 + 60
    assert mac_cycles(dense(10, 400), 10, 100, 1, 1, NMP) == 10 * 13 / 0.75 + 8 + 60
    assert mac_cycles(FIFTH, 0, 5, 9, 71, NMP) == 0


def check_against_walk(problem: ConvProblem, plan: ConvPlan, mach: NmpMachine) -> None:
    counted = predict(problem, plan, mach)
    walked = plan_walk.walk(problem, plan, mach)
    repeats = problem.groups if plan.mode == "multicast" else 1
    inputs, weights, outputs = (
        [tle.total(stream) for tle in walked] for stream in ("inputs", "weights", "outputs")
    )
    assert counted.in_bytes == repeats * sum(tle.bytes for tle in inputs)
    assert counted.weight_bytes == repeats * sum(tle.bytes for tle in weights)
    assert counted.out_bytes == repeats * sum(tle.bytes for tle in outputs)
    moved = [*inputs, *weights, *outputs]
    ring_bytes = repeats * sum(tle.ring_bytes for tle in moved)
    assert counted.ring_bytes == ring_bytes
    dram = repeats * sum(tle.dram_cycles(mach) for tle in moved)
    ring = ring_bytes / mach.ring.bytes_per_cycle if mach.ring else 0.0
    times = [repeats * tle.serial_cycles(mach) for tle in walked]
    events = [TileEvents(tle) for tle in plan_walk.working_tles(problem, plan, mach)]
    short = [problem.window is not None and one.steps <= MOST_STEPS for one in events]
    is_short = all(short)
    times = [
        repeats * one.cycles() if is_one_short else time
        for one, is_one_short, time in zip(events, short, times, strict=True)
    ]
    parts = counted.mac_cycles + counted.load_cycles + counted.store_cycles
    if plan.buffers == 1 or is_short:
        assert counted.cycles == pytest.approx(max(*times, dram, ring), rel=1e-9)
        parts_of_slowest = [
            repeats
            * (
                tle.mac_cycles
                + tle.total("inputs", "weights").engine_cycles(mach, 1)
                + tle.store_cycles(mach)
            )
            for tle, time in zip(walked, times, strict=True)
            if time == pytest.approx(max(times), rel=1e-9)
        ]
        assert any(parts == pytest.approx(one, rel=1e-9) for one in parts_of_slowest)
    else:
        assert max(dram, ring) <= counted.cycles * (1 + 1e-9)


@pytest.mark.parametrize("name", NMP_PLANNERS)
@settings(max_examples=examples(50), deadline=None)
@given(problem=reference.convs(12), mach=reference.machines(2048), limits=reference.limits())
def test_prediction_equals_a_walk(
    name: str, problem: ConvProblem, mach: NmpMachine, limits: TileLimits
) -> None:
    plan = planner(name, limits).plan(problem, mach)
    assume(isinstance(plan, ConvPlan))
    assert isinstance(plan, ConvPlan)
    assert plan.prediction == predict(problem, plan, mach)
    check_against_walk(problem, plan, mach)


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data(), problem=reference.convs(12), mach=reference.machines())
def test_prediction_of_any_plan_equals_a_walk(
    data: st.DataObject, problem: ConvProblem, mach: NmpMachine
) -> None:
    """Also plans that no search would choose: any slices, parts, tiles and ways to share."""
    plan = data.draw(plan_walk.plans(problem, mach))
    if may_load_by_channels(problem, plan):
        plan = replace(plan, in_by_channels=data.draw(st.booleans()))
    check_against_walk(problem, plan, mach)


@MANY_LEFT_OUT
@given(data=st.data(), problem=reference.convs(12), mach=reference.machines())
def test_prediction_with_a_window_equals_a_walk(
    data: st.DataObject, problem: ConvProblem, mach: NmpMachine
) -> None:
    """A pool or a depthwise convolution behind: tiles of what is stored, overlapping below."""
    assume(not problem.is_dense and mach.ring is not None)
    problem = data.draw(plan_walk.windowed(replace(problem, groups=1, has_residual=False)))
    check_against_walk(problem, data.draw(plan_walk.plans(problem, mach)), mach)


@pytest.mark.parametrize("buffers", [1, 2])
def test_a_tlt_of_fewer_rows_waits_for_its_own_stores_alone(buffers: int) -> None:
    """Under WS it has turns without rows between those with some."""
    mach = load_nmp_machine("nmp-4x8-dual")
    problem = conv(16, 4, (8, 8), (3, 3))
    window = Window(3, 3, (2, 2), (2, 2), (0, 0))
    plan = ConvPlan(
        "multicast", "KS", 1, 1, "WS", 2, 4, 1, 3, tlt_rows=2, buffers=buffers,  # type: ignore[arg-type]
    )  # fmt: skip
    check_against_walk(replace(problem, window=window), plan, mach)


def test_turns_stay_in_the_order_of_the_loops() -> None:
    """The last row sees as much padding as the first one: they are alike, with others between."""
    mach = reference.machine(tles=1, tlts=2, memories=(64, 64, 64, 64), burst_bytes=8,
                             setup_cycles=0.0, burst_cycles=0.0, linear_burst_cycles=None,
                             cas_cycles=0.0, dram_rate=1.0, mac_setup=0.0)  # fmt: skip
    problem = conv(1, 1, (3, 3), (1, 1), padding=(1, 0, 1, 0), element_bytes=1)
    windowed = replace(problem, window=Window(3, 3, (1, 1), (2, 1), (0, 0)))
    plan = ConvPlan("multicast", "KS&OFM", 1, 1, "WS", 1, 1, 1, 1, tlt_columns=2)
    (turns,) = tle_turns(windowed, plan, mach)
    assert [tiles[0].real for tiles, number in turns.rows for _ in range(number)] == [0, 1, 0]
    check_against_walk(windowed, plan, mach)


@settings(MANY_LEFT_OUT, max_examples=examples(300))
@given(data=st.data(), problem=reference.convs(9), mach=reference.machines())
def test_overlap_hides_no_more_than_there_is(
    data: st.DataObject, problem: ConvProblem, mach: NmpMachine
) -> None:
    """With two buffers a TLE takes no less than its MAC unit or its engine works, and no more
    than one after the other."""
    assume(mach.memories.ports == 2)
    plan = replace(data.draw(plan_walk.plans(problem, mach)), buffers=2)
    assume(plan.mode == "multicast")
    busy, after_another = 0.0, 0.0
    for tle in plan_walk.walk(problem, plan, mach):
        finish = sum(step.finish_cycles for step in tle.steps)
        dma = tle.dma_cycles(mach, tle.rivals)
        busy = max(busy, dma, tle.mac_cycles + finish)
        # Step by step, the DRAM may bound more of the transfers than it does all together.
        moved = tle.biases.engine_cycles(mach, tle.rivals, in_step=True)
        for step in tle.steps:
            moved += step.load_cycles(mach, tle.rivals)
            moved += step.outputs.engine_cycles(mach, tle.rivals, in_step=True)
        after_another = max(after_another, moved + tle.mac_cycles + finish)
    found = predict(problem, plan, mach)
    assert found.cycles >= problem.groups * busy * (1 - 1e-9)
    if found.bound != "ring":
        assert found.cycles <= problem.groups * after_another * (1 + 1e-9)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), mach=reference.machines())
def test_overlap_of_equal_tiles_equals_a_walk(data: st.DataObject, mach: NmpMachine) -> None:
    """Where all tiles are alike the closed form is exact."""
    mach = nmp_machine_from_dict(
        mach.model_dump() | {"memories": mach.memories.model_dump() | {"ports": 2}}
    )
    small = st.integers(1, 3)
    tile_m, tile_n, tile_r, tile_c = (data.draw(small) for _ in range(4))
    rows, columns = tile_r * data.draw(small), tile_c * data.draw(small)
    kernel = (data.draw(small), data.draw(small))
    problem = conv(
        tile_m * data.draw(small) * mach.cores.tlts_per_tle,
        tile_n * data.draw(small),
        (rows + kernel[0] - 1, columns + kernel[1] - 1),
        kernel,
        has_residual=data.draw(st.booleans()),
    )
    schedule: Any = data.draw(st.sampled_from(("OS", "WS")))
    keeps_in = schedule == "OS" and tile_n == problem.channels and data.draw(st.booleans())
    plan = ConvPlan(
        "multicast", "KS", 1, 1, schedule, tile_m, tile_n, tile_r, tile_c,
        keeps_in=keeps_in, buffers=2, in_by_channels=data.draw(st.booleans()),
    )  # fmt: skip
    walked = plan_walk.walk(problem, plan, mach)
    assert len(walked) == 1
    dram = sum(walked[0].total(s).dram_cycles(mach) for s in ("inputs", "weights", "outputs"))
    expected = max(walked[0].overlapped_cycles(mach), dram)
    assert predict(problem, plan, mach).cycles == pytest.approx(expected, rel=1e-9)


def test_dram_bounds_all_tles() -> None:
    """A DRAM slower than one engine sets the time, however many TLEs there are."""
    slow = machine(4, 2, (1024, 1024, 1024, 4096), burst_cycles=0.0, dme_rate=8.0, dram_rate=0.5)
    problem = conv(32, 16, (20, 20), (1, 1))
    plan = planner("tso").plan(problem, slow)
    assert isinstance(plan, ConvPlan) and plan.prediction is not None
    p = plan.prediction
    assert p.cycles > p.mac_cycles + p.load_cycles + p.store_cycles
    assert p.cycles >= (p.in_bytes + p.weight_bytes + p.out_bytes) / 0.5
