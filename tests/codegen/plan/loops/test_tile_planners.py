"""Planners of tile machines: sound plans, the rules that they claim, proofs against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.plan.loops.tile_cases import core, layer, plans, problems, setup, shared, small
from tests.examples import examples
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan import TileLimits, planner, planner_names
from tvm_npu.codegen.plan.loops import double_buffer
from tvm_npu.codegen.plan.loops import eplanner_model as model
from tvm_npu.codegen.plan.loops.baselines import SmartShuttle
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.eplanner import (
    EPlanner,
    eliminated,
    initial_factors,
    pruned_space,
    tilings_above,
)
from tvm_npu.codegen.plan.loops.exact import LoopProof, prove
from tvm_npu.codegen.plan.loops.plan import LOOPS, RESIDENTS, LoopPlan, extent
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.loops.space import candidate_sizes, tilings
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import load_nmp_machine
from tvm_npu.sim.tiles.machine import TileMachine

LAYERS = (
    layer(512, 512, 28),
    layer(64, 3, 112, stride=2),
    layer(256, 64, 56, kernel=1),
    layer(1000, 4096, 1, kernel=1, is_dense=True),
    layer(96, 96, 28, groups=96),
    layer(64, 32, 28, groups=4),
    layer(64, 64, 28, has_residual=True),
    layer(7, 5, 13, kernel=5, stride=3),
)


@pytest.mark.parametrize("name", planner_names(setup("a")))
@pytest.mark.parametrize(
    "machine",
    [setup("a"), shared(1 << 18), load_machine("zynq-7020")],
    ids=["split", "shared", "core"],
)
def test_every_planner_answers_every_layer_on_tile_machines(
    name: str, machine: TileMachine
) -> None:
    if machine.name == "small":  # as large a bias memory as the set-ups have
        memories = machine.memories.model_copy(update={"bias_bytes": 131072})
        machine = machine.model_copy(update={"memories": memories})
    for problem in LAYERS:
        plan = planner(name).plan(problem, machine)
        assert isinstance(plan, LoopPlan), plan
        assert check_loop_plan(problem, plan, loop_machine(machine)) is None
        assert plan.planner == name
        assert plan.prediction == predicted(problem, plan, loop_machine(machine))


TILE_PLANNERS = (
    "eplanner", "zhang", "ma", "smartshuttle", "double-buffer", "naive", "exact-traffic",
)  # fmt: skip


@pytest.mark.parametrize("name", TILE_PLANNERS)
def test_planners_of_tile_machines_answer_on_an_nmp(name: str) -> None:
    machine = load_nmp_machine("nmp-4x8")
    for problem in LAYERS:
        asked = replace(problem, element_bytes=2, accumulator_bytes=8)
        plan = planner(name).plan(asked, machine)
        assert isinstance(plan, ConvPlan), plan
        assert check_plan(asked, plan, machine) is None
        assert plan.planner == name
        assert plan.prediction is not None


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_no_plan_beats_the_exact_ones(data: st.DataObject) -> None:
    problem = data.draw(problems())
    machine = data.draw(st.sampled_from((small(), small(256, 256, 256), shared(2048), core())))
    view = loop_machine(machine)
    fastest, least = prove(problem, view), prove(problem, view, "bytes")
    if isinstance(fastest, Infeasible) or isinstance(least, Infeasible):
        assert check_loop_plan(problem, LoopPlan(1, 1, 1, 1), view) is not None
        return
    assert check_loop_plan(problem, fastest.plan, view) is None
    said = predicted(problem, fastest.plan, view)
    assert said.cycles == pytest.approx(fastest.value, rel=1e-12)
    for _ in range(20):
        other = data.draw(plans(problem))
        if check_loop_plan(problem, other, view) is None:
            prediction = predicted(problem, other, view)
            assert prediction.cycles >= fastest.value * (1 - 1e-12)
            assert _bytes(prediction) >= _bytes(predicted(problem, least.plan, view))


def _bytes(prediction: object) -> int:
    return sum(getattr(prediction, name) for name in ("in_bytes", "weight_bytes", "out_bytes"))


MEMORIES = (320, 192, 192)


@pytest.mark.parametrize(
    ("problem", "most_taps", "memories"),
    [
        (layer(5, 4, 4, kernel=3), 1, MEMORIES),
        (layer(3, 6, 5, kernel=2, stride=2, padding=0), 1, MEMORIES),
        (layer(4, 3, 4, has_residual=True), 1, MEMORIES),
        (layer(6, 6, 3, groups=3), 1, MEMORIES),
        (layer(9, 11, 1, kernel=1, is_dense=True), 1, MEMORIES),
        (layer(2, 2, 5, stride=2), 1, MEMORIES),  # least bytes with rows kept
        # and with what windows touch alone
        (layer(5, 10, 2, kernel=1, stride=2, padding=0, columns=1, in_columns=1), 1, MEMORIES),
        (layer(2, 2, 3, kernel=1, stride=4, padding=0), 1, MEMORIES),  # and in least time
        (layer(3, 2, 3), 4, MEMORIES),
        (layer(4, 3, 2), 1, MEMORIES),  # least time with resident IN tiles
        (layer(1, 4, 4, kernel=2, padding=0), 1, MEMORIES),  # and W tiles
        (layer(3, 2, 2), 1, (64, 64, 64)),  # least bytes with resident IN tiles
        (layer(1, 2, 4, kernel=2, padding=0), 1, (64, 64, 128)),  # and W tiles
    ],
)
def test_exact_equals_brute_force(
    problem: ConvProblem, most_taps: int, memories: tuple[int, int, int]
) -> None:
    """Over every size of every loop, every order, every number of groups and buffers; also with
    rows kept, with only what windows touch, with resident tiles, and with several taps at once."""
    machine = loop_machine(small(*memories, taps_at_once=most_taps))
    best_taps = 1
    best_time, best_bytes = float("inf"), 1 << 60
    sizes = (range(1, extent(problem, loop) + 1) for loop in LOOPS)
    orders = list(permutations(LOOPS))
    for tile in product(*sizes):
        for groups in range(1, problem.groups + 1):
            for buffers in (1, 2):
                plan = LoopPlan(*tile, tile_groups=groups, buffers=buffers)  # type: ignore[arg-type]
                for order in orders:
                    ordered = replace(plan, order=order)
                    for other in (
                        replace(ordered, keeps_rows=True), replace(ordered, touched_only=True),
                        *(
                            replace(ordered, resident=one, taps_at_once=taps)
                            for one in RESIDENTS
                            for taps in range(1, most_taps + 1)
                        ),
                    ):  # fmt: skip
                        if check_loop_plan(problem, other, machine) is not None:
                            continue
                        found = predicted(problem, other, machine)
                        best_bytes = min(best_bytes, _bytes(found))
                        if found.cycles < best_time:
                            best_time, best_taps = found.cycles, other.taps_at_once
    fastest, least = prove(problem, machine), prove(problem, machine, "bytes")
    assert isinstance(fastest, LoopProof)
    assert isinstance(least, LoopProof)
    assert fastest.value == pytest.approx(best_time, rel=1e-12)
    assert predicted(problem, fastest.plan, machine).cycles == pytest.approx(best_time, rel=1e-12)
    assert (best_taps > 1) == (most_taps > 1)
    assert _bytes(predicted(problem, least.plan, machine)) == best_bytes


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_arrays_of_tilings_fit_as_the_checker_says(data: st.DataObject) -> None:
    problem = data.draw(problems())
    machine = data.draw(st.sampled_from((small(), shared(2048))))
    buffers = data.draw(st.sampled_from((1, 2)))
    sizes = {loop: candidate_sizes(problem, loop) for loop in LOOPS}
    found = tilings(problem, loop_machine(machine), sizes, buffers)
    fitting = {tuple(int(found.sizes(loop)[at]) for loop in LOOPS) for at in range(len(found))}
    for tile in product(*(sizes[loop] for loop in LOOPS)):
        plan = LoopPlan(*tile, buffers=buffers)
        assert (tile in fitting) == (check_loop_plan(problem, plan, loop_machine(machine)) is None)


def test_reload_factors() -> None:
    """Equations 6.2 to 6.5, by hand."""
    assert model.reload_factors("IS", 4, 3, 2, 1) == (1, 2, 4)
    assert model.reload_factors("WS", 4, 3, 2, 1) == (4, 1, 4)
    assert model.reload_factors("OS", 4, 3, 2, 1) == (4, 2, 0)
    problem = layer(8, 6, 10)
    moved = model.access_bytes(problem, model.reload_factors("IS", 4, 3, 2, 1))
    assert moved == 4 * (6 * 100 + 8 * 6 * 9 * 2 + 8 * 100 * 5)


def test_utilization_and_performance() -> None:
    """Equations 6.6 to 6.12: 24 filters on 16 rows of PEs use three quarters of them."""
    machine = loop_machine(setup("a"))
    assert model.pe_utilization(machine, 24, 16, 5, 7) == pytest.approx(0.75)
    problem = layer(64, 64, 28)
    assert model.performance(problem, machine, 0.75, 1.0) == 192
    moved = problem.macs  # a byte a MAC
    assert model.performance(problem, machine, 1.0, moved) == pytest.approx(58.8)
    assert model.metric(problem, machine, 1.0, moved) == pytest.approx(58.8 / moved)


def test_the_three_prunings() -> None:
    problem, machine = LAYERS[0], loop_machine(setup("a"))
    initial = initial_factors(problem, machine)
    assert initial == {"M": 16, "N": 16, "R": 1, "C": 28}
    bound = eliminated(problem, machine, initial)
    # 28 rows of 16 channels fit, and 512 x 16 filters or 512 channels of 16 do not fit 128 KiB.
    assert bound == {"M": 16, "N": 16, "R": 28, "C": 28}
    found = pruned_space(problem, machine)
    assert found is not None
    assert 0 < len(found) < len(tilings_above(problem, machine, initial))
    assert model.interchanged("OS", {"M": 4, "N": 3, "R": 2, "C": 1}) == ("C", "R", "M", "N")
    assert model.interchanged("WS", {"M": 4, "N": 3, "R": 2, "C": 1}) == ("N", "M", "R", "C")


def test_eplanner_takes_the_best_metric() -> None:
    problem, machine = LAYERS[0], loop_machine(setup("a"))
    tiles = pruned_space(problem, machine)
    assert tiles is not None
    plan = EPlanner().plan(problem, machine)
    assert isinstance(plan, LoopPlan)

    def value(m: int, n: int, r: int, c: int, flow: model.Dataflow) -> float:
        trips = (-(-512 // m), -(-512 // n), -(-28 // r), -(-28 // c))
        moved = model.access_bytes(problem, model.reload_factors(flow, *trips))
        used = model.pe_utilization(machine, m, n, r, c)
        return float(model.metric(problem, machine, used, moved))

    best = max(
        value(*(int(tiles.sizes(loop)[at]) for loop in LOOPS), flow)  # type: ignore[misc]
        for at in range(len(tiles))
        for flow in model.DATAFLOWS
    )
    own = (plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c)
    assert max(value(*own, flow) for flow in model.DATAFLOWS) == best


def test_rules_of_the_baselines() -> None:
    machine = setup("a")
    for problem in LAYERS[:4]:
        zhang = planner("zhang").plan(problem, machine)
        assert isinstance(zhang, LoopPlan)
        assert zhang.order[-1] == "N"
        ma = planner("ma").plan(problem, machine)
        assert isinstance(ma, LoopPlan)
        assert ma.tile_n == problem.channels  # fits with one filter and one row
        assert ma.tile_c == problem.columns
    front, back = layer(64, 64, 56), layer(512, 512, 14)
    first, second = (SmartShuttle().plan(one, loop_machine(machine)) for one in (front, back))
    assert isinstance(first, LoopPlan)
    assert isinstance(second, LoopPlan)
    assert first.order[-1] == "N"
    assert second.order[-2:] == ("R", "C")
    assert (first.tile_m, second.tile_m, second.tile_n) == (64, 512, 7)


def test_double_buffer_follows_its_equations() -> None:
    problem, machine = layer(16, 8, 12), shared(8192)
    plan = planner("double-buffer").plan(problem, machine)
    assert isinstance(plan, LoopPlan)
    assert (plan.order, plan.buffers) == (("R", "C", "N", "M"), 2)
    cost = double_buffer.TransferModel.of(loop_machine(machine), 4)
    assert (cost.start, cost.jump, cost.element) == (10, 2, 1)
    # One step: IN 12 x 12 x 8, OUT 12 x 12 x 16 both ways, W 16 x 8 x 9 and 16 biases.
    parts = (10 + 96 * 2 + 1152, 2 * (10 + 192 * 2 + 2304), 10 + 17 * 2 + 1152 + 16)
    assert cost.layer_cycles(problem, 16, 8, 12, 12) == sum(parts)
    own = cost.layer_cycles(problem, plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c)
    found = double_buffer.divisor_tilings(problem, loop_machine(machine), TileLimits(), 2)
    assert own == cost.layer_cycles(problem, found.m, found.n, found.r, found.c).min()
    naive = planner("naive").plan(problem, machine)
    assert isinstance(naive, LoopPlan)
    sizes = (naive.tile_m, naive.tile_n, naive.tile_r, naive.tile_c)
    assert double_buffer.used_elements(problem, *sizes) * 4 * 2 >= 0.8 * 8192


@pytest.mark.parametrize("name", planner_names(setup("a")))
def test_limits_hold(name: str) -> None:
    limits = TileLimits(max_tile_m=8, max_tile_n=4, max_tile_r=3, max_tile_c=5)
    plan = planner(name, limits).plan(LAYERS[6], setup("a"))
    assert isinstance(plan, LoopPlan)
    assert plan.tile_m <= 8 and plan.tile_n <= 4 and plan.tile_r <= 3 and plan.tile_c <= 5


@pytest.mark.parametrize("name", planner_names(setup("a")))
def test_a_layer_without_room_is_infeasible_with_numbers(name: str) -> None:
    answer = planner(name).plan(layer(4, 4, 4, kernel=31), small())
    assert isinstance(answer, Infeasible)
    assert answer.needed_bytes > answer.available_bytes
