"""Runs of chains on tile machines: random ones under random plans run to the bit, move what plans
say and take what is predicted; where a graph takes them, and what they save."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import pytest
from hypothesis import assume, given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.tiles.chain_graphs import Graph, add_bottleneck, draw_chain, run
from tests.codegen.tiles.test_chain_space import tile_extents
from tests.codegen.tiles.tile_cases import tile_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed, generate, plan_graph
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedRun
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.plan import TileLimits, planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.program.format import WORD_BYTES, Program
from tvm_npu.codegen.tiles.emit.runs import run_cycles
from tvm_npu.codegen.tiles.plan import joining, planning, runs
from tvm_npu.codegen.tiles.plan.chain import ChainPlan, can_keep_rows
from tvm_npu.codegen.tiles.plan.chains import members_of, possible_chains
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem, run_fault, run_tiles
from tvm_npu.codegen.tiles.plan.runs import (
    plan_run,
    possible_runs,
    run_of,
    run_plans,
    run_problem,
)
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

MACHINES = (
    tile_machine((4096, 2048, 8192), (4, 4, 4, 8)),
    tile_machine((512, 512, 2048), (1, 2, 4, 8), array={"taps_at_once": 9}),
    tile_machine((2048, 512, 4096), (1, 2, 4, 8)),
)


def setup(name: str = "setup-a") -> TileMachine:
    machine = load_machine(name)
    assert isinstance(machine, TileMachine)
    return machine


@st.composite
def graphs(draw: st.DrawFn) -> FixedGraph:
    """Two to five chains of all kinds one behind the other, maps that change their size; what they
    add is their own input, a tensor of its own, or nothing."""
    channels, size = draw(st.integers(1, 5)), (draw(st.integers(3, 9)), draw(st.integers(3, 9)))
    width = draw(st.sampled_from((1, 2)))
    graph = Graph((channels, *size), draw(st.integers(0, 1 << 20)), width)
    for turn in range(draw(st.integers(2, 5))):
        draw_chain(draw, graph, f"z{turn}")
    return graph.fixed()


def found_runs(fixed: FixedGraph, machine: TileMachine) -> list[FixedRun]:
    """All, whether there is room for them or not."""
    found = possible_runs(fixed, possible_chains(fixed, machine), lambda _: True)
    return [run_of(blocks) for blocks in found]


def joined(fixed: FixedGraph, machine: TileMachine) -> tuple[FixedGraph, RunProblem]:
    """The graph as its longest run."""
    found = [
        Joined(one, tuple(tensor for block in one.blocks for tensor in members_of(block)))
        for one in found_runs(fixed, machine)
    ]
    longest = max(found, key=lambda one: len(one.members))
    made = with_joined(fixed, [longest], lambda one: float(not isinstance(one, FixedRun)))
    assert len(made.layers) == 1
    assert isinstance(longest.layer, FixedRun)
    return made, run_problem(longest.layer, fixed.shapes, fixed.precision, machine)


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from(MACHINES), graphs(), st.integers(0, 99))
def test_random_runs_under_random_plans(
    data: st.DataObject, machine: TileMachine, fixed: FixedGraph, seed: int
) -> None:
    made, problem = joined(fixed, machine)
    plan, most = None, 1 << 10
    for _ in range(8):
        plans, buffers = [], data.draw(st.sampled_from((1, 2)))
        for at, chain in enumerate(problem.chains):
            rows, channels = chain.point.rows, chain.point.channels
            tile_rows = rows if at else data.draw(st.integers(1, rows))
            tile_channels = data.draw(
                st.sampled_from((min(most, channels), data.draw(st.integers(1, channels))))
            )
            keeps = can_keep_rows(chain, tile_channels) and data.draw(st.booleans())
            plans.append(ChainPlan(tile_rows, tile_channels, buffers, 0, keeps_rows=keeps))
        plan = RunPlan(tuple(plans), 0)
        if run_fault(problem, plan, machine) is None:
            break
        most = min(most, 16) // 2 or 1
    else:
        reject()
    note(str(plan))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "plan_run", lambda *_: plan)
        generated = generate(made, machine, planner("exact-layers"))
        program = generated.program()
    assert Program.from_bytes(program.to_bytes()).to_bytes() == program.to_bytes()
    statistics = run(fixed, program, seed).statistics
    assert statistics is not None
    tiles = run_tiles(problem, plan)
    assert statistics.moved_bytes == sum(one.moved_bytes() for one in tiles)
    (layer,) = program.layers
    (fewest,) = [one.fewest_instructions for one in generated.emitted.layers]  # type: ignore[attr-defined]
    assert 0 < fewest <= program.code.nbytes // WORD_BYTES
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.01)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(MACHINES), graphs(),
    st.tuples(*(st.one_of(st.none(), st.integers(1, 14)) for _ in range(4))),
)  # fmt: skip
def test_runs_keep_to_limits(
    machine: TileMachine, fixed: FixedGraph, most: tuple[int | None, ...]
) -> None:
    _, problem = joined(fixed, machine)
    for goal in ("cycles", "bytes"):
        free, found = (
            plan_run(problem, machine, "x", run_cycles, limits, goal)
            for limits in (TileLimits(), TileLimits(*most))
        )
        if isinstance(found, Infeasible):
            assert isinstance(free, Infeasible) or "max_tile_" in str(found)
            continue
        for tiles in run_tiles(problem, found):
            for extents in tile_extents(tiles):
                pairs = zip(extents, most, strict=True)
                assert all(largest is None or size <= largest for size, largest in pairs)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from((*MACHINES, setup())), graphs())
def test_clocks_choose_plans_of_runs(machine: TileMachine, fixed: FixedGraph) -> None:
    """With one buffer or two, of least bounds or of least bytes; sums of bounds may say
    otherwise."""
    _, problem = joined(fixed, machine)
    plan = plan_run(problem, machine, "exact", run_cycles)
    if isinstance(plan, Infeasible):
        return
    time = run_cycles(problem, plan, machine)
    for goal in ("cycles", "bytes"):
        found = run_plans(problem, machine, "exact", goal)
        assert not isinstance(found, Infeasible)
        assert all(time <= run_cycles(problem, one, machine) for _, one in found)
    least = plan_run(problem, machine, "exact-traffic", run_cycles, goal="bytes")
    assert isinstance(least, RunPlan)
    assert time <= run_cycles(problem, least, machine)


def network(*strides: int, channels: int = 24, middle: int = 60, size: int = 14) -> Graph:
    """MobileNetV2's blocks one behind the other."""
    graph = Graph((channels, size, size), 3)
    for turn, stride in enumerate(strides):
        add_bottleneck(graph, middle, channels + 8 * (turn // 2), stride)
    return graph


@pytest.mark.parametrize("name", ("setup-a", "setup-a-taps"))
def test_maps_between_chains_never_move(name: str) -> None:
    fixed, machine = network(1, 1, 2, 1).fixed(), setup(name)
    program = compile_fixed(fixed, machine, planner("exact-traffic"))
    (layer,) = program.layers
    assert layer.kind == "run_of_4"
    statistics = run(fixed, program, 1).statistics
    assert statistics is not None
    weights = sum(one.weight.size + one.bias.size for one in fixed.layers)  # type: ignore[attr-defined]
    maps = 24 * 14 * 14 + 32 * 7 * 7
    assert statistics.moved_bytes == layer.plan["moved_bytes"] == 4 * (weights + maps)
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.01)


@pytest.mark.parametrize("name", ("exact", "exact-traffic"))
def test_a_graph_with_runs_is_better_by_its_goal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chain's input is too large for the chip: it works in strips."""
    graph = network(2, 1, 1, 2, channels=16, middle=48, size=72)
    fixed, machine = graph.fixed(), setup()

    def totals() -> tuple[float, float, int]:
        planned = plan_graph(fixed, LayerPlanner("int8", machine, planner(name)))
        runs_taken = sum(isinstance(one.layer, FixedRun) for one in planned.layers)
        program = compile_fixed(fixed, machine, planner(name))
        statistics = run(fixed, program, 4).statistics
        assert statistics is not None
        said = sum(one.predicted_cycles or inf for one in planned.layers)
        assert said == pytest.approx(statistics.cycles, rel=0.01)
        return statistics.cycles, statistics.moved_bytes, runs_taken

    together = totals()
    monkeypatch.setattr(joining, "possible_runs", lambda *_: ())
    apart = totals()
    assert together[2] and not apart[2]
    if name == "exact":
        assert together[0] < apart[0]
        return
    between = [graph.shapes[name] for name in ("t2", "t5", "t8")]
    assert together[2] == 1
    assert apart[1] - together[1] >= 2 * 4 * sum(prod(shape) for shape in between)


def test_runs_that_are_worse_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, machine = network(1, 1).fixed(), setup()
    better = plan_graph(fixed, LayerPlanner("int8", machine, planner("exact-traffic")))
    assert [type(one.layer) for one in better.layers] == [FixedRun]
    made = plan_run

    def worse(*asked: object) -> RunPlan | Infeasible:
        found = made(*asked)  # type: ignore[arg-type]
        assert isinstance(found, RunPlan)
        return replace(found, moved_bytes=10 * found.moved_bytes)

    monkeypatch.setattr(planning, "plan_run", worse)
    apart = plan_graph(fixed, LayerPlanner("int8", machine, planner("exact-traffic")))
    assert len(apart.layers) == 2


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(MACHINES), graphs())
def test_no_run_moves_less(machine: TileMachine, fixed: FixedGraph) -> None:
    assume(len(fixed.layers) < 8)
    check_least(joined(fixed, machine)[1], machine)


def test_strips_of_the_first_chain_move_least() -> None:
    """Its input does not fit."""
    machine = setup()
    fixed = network(2, 1, channels=16, middle=48, size=72).fixed()
    found = check_least(joined(fixed, machine)[1], machine)
    assert found is not None and found.plans[0].tile_rows < 36


def check_least(problem: RunProblem, machine: TileMachine) -> RunPlan | None:
    """Of all strips and rounds of the first chain, and any rounds of the others."""
    first, *others = problem.chains
    least = inf
    for rows in range(1, first.point.rows + 1):
        for channels in range(1, first.point.channels + 1):
            for keeps in {False, can_keep_rows(first, channels)}:
                plans = (
                    ChainPlan(rows, channels, 1, 0, keeps_rows=keeps),
                    *(ChainPlan(one.point.rows, 1, 1, 0) for one in others),
                )
                plan = RunPlan(plans, 0)
                if run_fault(problem, plan, machine) is None:
                    moved = sum(one.moved_bytes() for one in run_tiles(problem, plan))
                    least = min(least, moved)
    found = plan_run(problem, machine, "exact-traffic", run_cycles, goal="bytes")
    if least == inf:
        assert isinstance(found, Infeasible)
        return None
    assert isinstance(found, RunPlan) and found.moved_bytes == least
    assert run_fault(problem, found, machine) is None
    return found


FAULTS = (
    ({"plans": 1}, "chains with a plan is 1; it must be 2"),
    ({"tile_rows": 15}, "chain 1: tile_rows is 15; it must be an integer from 1 to 14"),
    ({"tile_rows": 7}, "chain 1: tile_rows is 7; it must be 14, all of the OFM"),
    ({"tile_channels": 0}, "chain 1: tile_channels is 0; it must be an integer from 1 to 600"),
    ({"buffers": 1}, "chain 1: buffers is 1; it must be 2, as of the first chain"),
    ({"tile_channels": 600}, "chain 1: bytes of weights is 136800; it must be at most 65536"),
    ({"tile_channels": 200}, "chain 1: bytes of sums is 332416; it must be at most 262144"),
)


@pytest.mark.parametrize(("changes", "message"), FAULTS)
def test_plans_that_no_machine_runs(
    changes: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = setup()
    made, problem = joined(network(1, 1, middle=600).fixed(), machine)
    good = ChainPlan(14, 16, 2, 0)
    assert run_fault(problem, RunPlan((good, good), 0), machine) is None
    if "plans" in changes:
        plan = RunPlan((good,), 0)
    else:
        plan = RunPlan((good, replace(good, **changes)), 0)  # type: ignore[arg-type]
    monkeypatch.setattr(planning, "plan_run", lambda *_: plan)
    with pytest.raises(EmitError, match=message):
        compile_fixed(made, machine, planner("exact-layers"))


@pytest.mark.parametrize(
    ("memories", "biases", "message"),
    [
        ((2048, 8192, 16384), 4096, "chain 0: bytes of the OFM that stays in the input memory"),
        ((3600, 8192, 16384), 4096, "chain 0: bytes of IN and residual tile is 1792; .* most 464"),
        ((8192, 8192, 16384), 120, "chain 1: bytes of biases is 128; it must be at most 120"),
    ],
)
def test_memories_without_room(
    memories: tuple[int, int, int], biases: int, message: str
) -> None:
    graph = Graph((4, 14, 14), 3)
    for _ in range(2):
        graph.conv(12, 3, depthwise=False)
        graph.conv(4)
    machine = tile_machine(memories, (4, 4, 4, 8), biases)
    _, problem = joined(graph.fixed(), machine)
    plan = RunPlan((ChainPlan(7, 1, 1, 0), ChainPlan(14, 1, 1, 0)), 0)
    assert run_fault(problem, plan, tile_machine((8192, 8192, 16384), (4, 4, 4, 8))) is None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(run_fault(problem, plan, machine))
    few, narrow = tile_machine((8192, 8192, 16384), (4, 4, 4, 8), 120), (2048, 8192, 16384)
    found = plan_run(problem, few, "exact", run_cycles)
    assert "biases of all chains of a run lie in their memory" in str(found)
    found = plan_run(problem, tile_machine(narrow, (4, 4, 4, 8)), "exact", run_cycles)
    message = "chain 0 of the run, and the maps beside it, do not fit: 3136 bytes of the input"
    assert f"{message} memory needed, 2048 available" in str(found)
    shared = run_fault(problem, plan, tile_machine((16384,)))
    assert shared is not None and "memory is shared; it must be a memory each" in str(shared)


def test_which_runs_there_are() -> None:
    """None over a map that others read, or that leaves the graph; chains with other heads begin
    runs of their own."""
    machine = setup()
    lengths = sorted(
        len(one.blocks)
        for one in found_runs(network(1, 1, 1).fixed(), machine)
        if one.inputs[0] == "x"
    )
    assert lengths == [2, 3]
    assert all(
        one.blocks[-1].output != "t5" or len(one.blocks) == 1
        for one in found_runs(network(1, 1).fixed(outputs=("t2",)), machine)
        if one.inputs[0] == "x"
    )
    graph = network(1, 1, 1)
    last = graph.layers[-1]
    graph.layers[-1] = replace(last, inputs=(last.inputs[0], "t2"))
    over = [
        one for one in found_runs(graph.fixed(), machine)
        if "t2" in [block.output for block in one.blocks[:-1]]
    ]
    assert not over


def test_graphs_of_many_chains_try_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, machine = network(*[1] * 8, size=7).fixed(), setup()
    of_all = {(one.inputs[0], len(one.blocks)) for one in found_runs(fixed, machine)}
    monkeypatch.setattr(runs, "MOST_TRIED", 60)
    some = {(one.inputs[0], len(one.blocks)) for one in found_runs(fixed, machine)}
    assert some < of_all and ("x", 8) in some and ("x", 2) in some and ("x", 5) not in some
    monkeypatch.setattr(runs, "LONGEST_RUN", 6)
    assert max(len(one.blocks) for one in found_runs(fixed, machine)) == 6
