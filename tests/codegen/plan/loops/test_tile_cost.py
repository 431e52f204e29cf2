"""Room, traffic and time of tile plans: by hand, and against a walk over every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.plan.loops.tile_cases import (
    core,
    layer,
    plans,
    problems,
    setup,
    shared,
    small,
    walked,
)
from tests.examples import examples
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.loops.axes import in_axis, largest_inside
from tvm_npu.codegen.plan.loops.cost import _advances, engine_cycles, iterations, predict_loops
from tvm_npu.codegen.plan.loops.exact.planner import LoopProof, prove
from tvm_npu.codegen.plan.loops.plan import LoopPlan, steps
from tvm_npu.codegen.plan.loops.room import (
    check_loop_plan,
    no_room,
    tile_bytes,
    tile_places,
)
from tvm_npu.codegen.plan.loops.traffic import in_loads, tile_traffic
from tvm_npu.codegen.plan.loops.walked import can_be_walked
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.tiles.machine import SharedMemory

NINTH = layer(512, 512, 28)
"""VGG-16's ninth convolution."""


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_traffic_is_the_sum_over_steps(data: st.DataObject) -> None:
    problem = data.draw(problems())
    plan = data.draw(plans(problem))
    traffic = tile_traffic(problem, plan, loop_machine(small()))
    found = walked(problem, plan)
    for stream, moved in (
        ("in", traffic.inputs), ("weights", traffic.weights), ("out", traffic.outputs),
        ("residual", traffic.residual), ("partial loads", traffic.partial_loads),
        ("partial stores", traffic.partial_stores),
    ):  # fmt: skip
        expected = tuple(found[f"{stream} {what}"] for what in ("transfers", "segments", "bytes"))
        assert (moved.transfers, moved.segments, moved.size_bytes) == expected, stream


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_kinds_of_steps_bring_what_steps_do(data: st.DataObject) -> None:
    """Of every loop that may move on: how many steps there are, and how many tiles come."""
    problem = data.draw(problems())
    plan = data.draw(plans(problem))
    found: Counter[tuple[int, str]] = Counter()
    before: dict[str, object] | None = None
    for step in steps(problem, plan):
        here = {"M": step.filters, "N": step.channels, "R": step.rows, "C": step.columns}
        depth = 0
        if before is not None and before["groups"] == step.groups:
            depth = 1 + min(at for at, loop in enumerate(plan.order) if before[loop] != here[loop])
        found[depth, "steps"] += 1
        found[depth, "inputs"] += step.loads_in
        found[depth, "weights"] += step.loads_weights
        before = {**here, "groups": step.groups}
    depths = sorted({depth for depth, _ in found})
    for depth, kind in zip(depths, _advances(problem, plan), strict=True):
        counted = {what: found[depth, what] for what in ("steps", "inputs", "weights")}
        assert counted == {what: getattr(kind, what) for what in counted}, (plan, depth)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_largest_tile(data: st.DataObject) -> None:
    problem = data.draw(problems())
    for loop, total in (("R", problem.rows), ("C", problem.columns)):
        tile = data.draw(st.integers(1, total))
        assert in_axis(problem, loop, tile).largest == largest_inside(problem, loop, tile)  # type: ignore[arg-type]


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_places_of_sound_plans_do_not_overlap(data: st.DataObject) -> None:
    problem = data.draw(problems())
    plan = data.draw(plans(problem))
    machine = data.draw(st.sampled_from((small(), shared())))
    if check_loop_plan(problem, plan, loop_machine(machine)) is not None:
        return
    sizes, memories = tile_bytes(problem, plan), machine.memories
    if isinstance(memories, SharedMemory):
        limits = [memories.shared_bytes]
    else:
        limits = [memories.input_bytes, memories.weight_bytes, memories.output_bytes]
    used: dict[int, list[tuple[int, int]]] = {memory: [] for memory in range(len(limits))}
    for place in tile_places(problem, plan, loop_machine(machine)):
        for memory, begin, size in (
            *((0, place.inputs(at), sizes.in_bytes) for at in range(place.in_tiles)),
            (0, place.residual_offset, sizes.residual_bytes),
            *((1, place.weights(at), sizes.weight_bytes) for at in range(place.weight_tiles)),
            (2, place.out_offset, sizes.out_bytes),
        ):
            used[memory % len(limits)].append((begin, begin + size))
    for memory, ranges in used.items():
        ranges = sorted(pair for pair in ranges if pair[0] < pair[1])
        assert all(one[1] <= two[0] for one, two in zip(ranges, ranges[1:], strict=False))
        assert all(end <= limits[memory] for _, end in ranges)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_nothing_takes_less_than_its_work_or_its_transfers(data: st.DataObject) -> None:
    """Of machines whose engine and mover work beside each other."""
    problem = data.draw(problems())
    plan = data.draw(plans(problem))
    machine = loop_machine(data.draw(st.sampled_from((core(1 << 20), small(*(1 << 16,) * 3)))))
    if check_loop_plan(problem, plan, machine) is not None:
        return
    said = predict_loops(problem, plan, machine)
    if not machine.interlocked or can_be_walked(problem, machine):
        least = max(said.mac_cycles, said.load_cycles + said.store_cycles)
        assert said.cycles >= least * (1 - 1e-12)


def test_a_core_waits_for_no_rows_that_all_move_on_chip() -> None:
    """The second of two tiles brings none."""
    problem, machine = layer(2, 8, 5), loop_machine(core(1 << 20))
    plan = LoopPlan(2, 8, 4, 5, ("M", "N", "C", "R"), buffers=2, keeps_rows=True)
    said = predict_loops(problem, plan, machine)
    assert in_loads(problem, plan) == 1 and said.cycles > said.mac_cycles
    found = prove(problem, machine)
    assert isinstance(found, LoopProof) and found.value <= said.cycles


def test_time_of_one_buffer_by_hand() -> None:
    problem = layer(8, 8, 4, kernel=1)  # 16 outputs a filter
    plan = LoopPlan(4, 8, 4, 4, ("M", "R", "C", "N"))
    machine = small()
    prediction = predict_loops(problem, plan, loop_machine(machine))
    # IN comes once (512 bytes), two W tiles of 128 bytes, two results of 256; the biases beside the
    # products, for which they do not wait.
    transfers = (10 + 2 + 512 / 4) + 2 * (10 + 2 + 32) + 2 * (10 + 2 + 64)
    engine = 2 * (16 + 16 * 2) + 128 / 16
    assert prediction.cycles == pytest.approx(transfers + engine)
    assert prediction.in_bytes == 512
    assert prediction.weight_bytes == 256 + 32
    assert prediction.out_bytes == 512


def test_residual_tiles_come_beside_products() -> None:
    """A tile's 48 cycles of products hide the biases and 20 cycles of its residual tile's 76."""
    problem = layer(8, 8, 4, kernel=1)
    plan = LoopPlan(4, 8, 4, 4, ("M", "R", "C", "N"))
    machine = loop_machine(small())
    plain, added = (
        predict_loops(replace(problem, has_residual=wanted), plan, machine).cycles
        for wanted in (False, True)
    )
    residual, biases, products = 2 * (10 + 2 + 64), 10 + 2 + 8, 2 * (16 + 16 * 2)
    assert added - plain == pytest.approx(residual - (products - biases))


def test_two_buffers_overlap() -> None:
    problem = layer(16, 16, 8)
    machine = small(16384, 8192, 8192)
    plan = LoopPlan(4, 16, 8, 8, ("R", "C", "M", "N"))
    one = predict_loops(problem, plan, loop_machine(machine))
    two = predict_loops(problem, replace(plan, buffers=2), loop_machine(machine))
    assert max(two.mac_cycles, two.load_cycles + two.store_cycles) < two.cycles < one.cycles


@pytest.mark.parametrize(("total", "tile", "pes"), [(10, 3, 2), (7, 7, 4), (5, 1, 16), (12, 5, 5)])
def test_iterations(total: int, tile: int, pes: int) -> None:
    parts = [min(tile, total - begin) for begin in range(0, total, tile)]
    assert iterations(total, tile, pes) == sum(-(-part // pes) for part in parts)


def sound(**changes: Any) -> LoopPlan:
    return replace(LoopPlan(64, 32, 14, 28, ("R", "C", "M", "N")), **changes)


@pytest.mark.parametrize(
    ("plan", "problem", "message"),
    [
        (sound(tile_m=513), NINTH, "tile_m is 513; it must be an integer from 1 to 512"),
        (sound(tile_n=0), NINTH, "tile_n is 0; it must be an integer from 1 to 512"),
        (sound(tile_r=2.5), NINTH, "tile_r is 2.5; it must be an integer from 1 to 28"),
        (sound(order=("M", "N", "R", "R")), NINTH, "order is M N R R; it must be each of M, N, R"),
        (sound(buffers=3), NINTH, "buffers is 3; it must be 1 or 2"),
        (sound(tile_groups=2), NINTH, "tile_groups is 2; it must be an integer from 1 to 1"),
        (
            sound(tile_groups=2, tile_m=8, tile_n=4),
            layer(32, 32, 28, groups=4),
            "tile_n with tile_groups > 1 is 4; it must be 8",
        ),
        (
            sound(tile_n=512),
            NINTH,
            r"IN tile \(one\) in the input memory, bytes is 860160; it must be at most 262144",
        ),
        (
            sound(tile_m=128),
            NINTH,
            r"W tile \(one\) in the weight memory, bytes is 147456; it must be at most 131072",
        ),
        (
            sound(tile_m=512, tile_n=1),
            NINTH,
            r"OUT tile of accumulators \(one\) in the output memory, bytes is 802816; it must be "
            "at most 262144",
        ),
        (
            sound(buffers=2),
            NINTH,
            r"W tile \(one in each of 2 buffers\) in the weight memory, bytes is 73728; it must "
            "be at most 65536",
        ),
        (
            sound(tile_n=128),
            replace(NINTH, has_residual=True),
            r"IN and residual tile \(one\) in the input memory, bytes is 315392",
        ),
        (
            sound(keeps_rows=True, tile_c=14, order=("R", "C", "M", "N")),
            NINTH,
            "loops over IN tiles inside of R is C N; it must be none to keep rows",
        ),
        (
            sound(touched_only=True),
            NINTH,
            r"kernel, stride and padding with touched_only is \(\(3, 3\), \(1, 1\), \(1, 1, 1",
        ),
        (
            sound(touched_only=True, keeps_rows=True, order=("N", "C", "R", "M")),
            layer(64, 32, 28, kernel=1, stride=2, padding=0),
            "keeps_rows with touched_only is True; it must be False",
        ),
        (sound(resident="OUT"), NINTH, "resident is OUT; it must be 'IN', 'W' or ''"),
        (
            sound(resident="W", keeps_rows=True, order=("N", "C", "R", "M")),
            NINTH,
            "keeps_rows with resident tiles is True; it must be False",
        ),
        (
            sound(resident="W"),
            NINTH,
            r"resident W tile \(one\) in the weight memory, bytes is 1179648; it must be at most",
        ),
        (
            sound(resident="IN"),
            NINTH,
            r"resident IN tile \(one\) in the input memory, bytes is 860160; it must be at most",
        ),
        (sound(), layer(512, 512, 28, groups=3), "filters is 512; it must be a positive multiple"),
    ],
)  # fmt: skip
def test_faults_name_thing_value_and_limit(
    plan: LoopPlan, problem: ConvProblem, message: str
) -> None:
    with pytest.raises(PlanningError, match=message):
        predict_loops(problem, plan, loop_machine(setup("a")))


def test_resident_tiles_are_those_of_machines_that_keep_them() -> None:
    """Kinds from elsewhere may know one tile of each tensor."""
    problem = layer(4, 3, 2)
    machine = replace(loop_machine(small(320, 192, 192)), keeps_tiles=False)
    fault = check_loop_plan(problem, LoopPlan(2, 1, 2, 2, resident="W"), machine)
    assert "tiles that stay on small is one of each kind; it must be all of one" in str(fault)
    found = prove(problem, machine)
    assert isinstance(found, LoopProof) and not found.plan.resident


def test_rows_are_kept_by_machines_that_move_them() -> None:
    plan = LoopPlan(2, 4, 2, 4, ("M", "N", "C", "R"), keeps_rows=True)
    machine = loop_machine(small())
    problem = layer(4, 8, 4)
    assert check_loop_plan(problem, plan, machine) is None
    fault = check_loop_plan(problem, plan, replace(machine, moves_rows=False))
    assert "rows that small moves is none; it must be some for keeps_rows" in str(fault)


def test_machines_that_gather_take_what_windows_touch() -> None:
    plan = LoopPlan(4, 8, 3, 3, touched_only=True)
    machine = loop_machine(small())
    problem = layer(4, 8, 3, kernel=1, stride=2, padding=0)
    assert check_loop_plan(problem, plan, machine) is None
    inputs = tile_traffic(problem, plan, machine).inputs
    assert (inputs.transfers, inputs.segments, inputs.size_bytes) == (8, 9 * 8, 9 * 8 * 4)
    fault = check_loop_plan(problem, plan, replace(machine, gathers=False))
    assert "elements apart that small loads is none; it must be some" in str(fault)


def test_kept_rows_by_hand() -> None:
    """Three tiles of 2 rows under 3 x 3 kernels: 3 + 4 + 3 rows of the 6; each but the first has
    two of the tile before. W comes for every tile, as IN does for both filters."""
    problem = layer(2, 5, 6)
    plan = LoopPlan(1, 5, 2, 6, ("N", "C", "M", "R"))
    machine = loop_machine(small())
    plain, kept = (
        predict_loops(problem, replace(plan, keeps_rows=keeps), machine) for keeps in (False, True)
    )
    row = 6 * 5 * 4
    assert plain.in_bytes == 2 * 10 * row
    assert kept.in_bytes == 2 * 6 * row
    assert tile_traffic(problem, replace(plan, keeps_rows=True), machine).inputs.transfers == 22
    elements = 2 * 4 * 6 * 5
    assert kept.mac_cycles - plain.mac_cycles == pytest.approx(elements / 16)
    core = replace(machine, engine=replace(machine.engine, finish=3.0, byte=0.5))
    kept_time, plain_time = (
        engine_cycles(problem, replace(plan, keeps_rows=keeps), core) for keeps in (True, False)
    )
    moves, byte_cycles = 2 * 2 * 5, 2 * 4 * 0.5  # of both filters; an element is read and written
    assert kept_time - plain_time == pytest.approx(elements * (1 / 16 + byte_cycles) + 3 * moves)


def test_taps_at_once_by_hand() -> None:
    """3 channels on 4 PEs leave room for no second tap, 2 do: 9 taps in 5 passes, in each of two
    tiles of channels; 4 outputs on 4 PEs over filters."""
    machine = loop_machine(small(taps_at_once=3))
    problem = layer(4, 4, 2)
    plan = LoopPlan(4, 2, 2, 2, taps_at_once=2)
    assert check_loop_plan(problem, plan, machine) is None
    one, two = (
        engine_cycles(problem, replace(plan, taps_at_once=taps), machine) for taps in (1, 2)
    )
    assert one - two == 2 * 4 * (9 - 5)
    for tile, taps, most in ((3, 2, 1), (1, 4, 3), (2, 0, 2)):
        fault = check_loop_plan(problem, replace(plan, tile_n=tile, taps_at_once=taps), machine)
        assert f"taps_at_once is {taps}; it must be an integer from 1 to {most}" in str(fault)


def test_biases_of_a_tile_must_fit() -> None:
    plan = LoopPlan(17, 1, 1, 1)
    fault = check_loop_plan(layer(20, 2, 2, kernel=1), plan, loop_machine(small()))
    assert fault is not None
    assert "biases of a tile (one) in the bias memory, bytes is 68; it must be at most 64" in str(
        fault
    )


def test_no_room_has_numbers() -> None:
    huge = layer(4, 4, 4, kernel=31)
    answer = no_room(huge, loop_machine(small()))
    assert isinstance(answer, Infeasible)
    assert (answer.buffer, answer.available_bytes) == ("weight memory", 512)
    assert answer.needed_bytes == 31 * 31 * 4 + 4  # to the next multiple of 8
