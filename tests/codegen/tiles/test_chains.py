"""Chains on tile machines: random ones under random plans run to the bit and move what plans say;
where a graph takes them, and what they save."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.tiles.chain_graphs import Graph, bottleneck, draw_chain, run
from tests.codegen.tiles.tile_cases import tile_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedBlock
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.planner import Goal
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.tiles.emit.runs import chain_cycles
from tvm_npu.codegen.tiles.plan import planning
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    can_keep_rows,
    chain_fault,
)
from tvm_npu.codegen.tiles.plan.chains import chain_problem, members_of, plan_chain, possible_chains
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

MACHINES = (
    tile_machine((2048, 1024, 4096), (4, 4, 4, 8)),
    tile_machine((512, 256, 1024), (1, 2, 4, 8), array={"taps_at_once": 9}),
)


@st.composite
def chains(draw: st.DrawFn) -> FixedGraph:
    """Of all kinds: with an expansion or not, with a residual of its own, of its input, or none."""
    channels, size = draw(st.integers(1, 5)), (draw(st.integers(3, 9)), draw(st.integers(3, 9)))
    graph = Graph((channels, *size), draw(st.integers(0, 1 << 20)))
    draw_chain(draw, graph, "z")
    return graph.fixed()


def joined(fixed: FixedGraph, machine: TileMachine) -> tuple[FixedGraph, ChainProblem]:
    """The graph as its longest chain."""
    block = max(possible_chains(fixed, machine), key=lambda one: len(members_of(one)))
    whole = Joined(block, members_of(block))
    made = with_joined(fixed, [whole], lambda one: float(not isinstance(one, FixedBlock)))
    assert len(made.layers) == 1
    return made, chain_problem(block, fixed.shapes, "int8", machine)


@settings(max_examples=examples(120), deadline=None)
@given(st.data(), st.sampled_from(MACHINES), chains(), st.integers(0, 99))
def test_random_chains_under_random_plans(
    data: st.DataObject, machine: TileMachine, fixed: FixedGraph, seed: int
) -> None:
    made, problem = joined(fixed, machine)
    rows, channels = problem.point.rows, problem.point.channels
    for _ in range(8):
        tile_channels = data.draw(st.sampled_from((channels, data.draw(st.integers(1, channels)))))
        plan = ChainPlan(
            data.draw(st.integers(1, rows)), tile_channels, data.draw(st.sampled_from((1, 2))), 0,
            keeps_rows=can_keep_rows(problem, tile_channels) and data.draw(st.booleans()),
        )  # fmt: skip
        if chain_fault(problem, plan, machine) is None:
            break
        rows, channels = max(1, rows // 2), max(1, channels // 2)
    else:
        reject()
    note(str(plan))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "plan_chain", lambda *_: plan)
        program = compile_fixed(made, machine, planner("exact-layers"))
    assert Program.from_bytes(program.to_bytes()).to_bytes() == program.to_bytes()
    statistics = run(fixed, program, seed).statistics
    assert statistics is not None
    tiles = ChainTiles(problem, plan.tile_rows, plan.tile_channels, plan.keeps_rows)
    assert statistics.moved_bytes == tiles.moved_bytes()
    (layer,) = program.layers
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.01)


@pytest.mark.parametrize("buffers", (1, 2))
def test_the_smallest_chains_set_their_registers_first(buffers: Literal[1, 2]) -> None:
    """The mover begins behind the words that tell it what to load."""
    graph, machine = Graph((2, 4, 3), 0), MACHINES[0]
    graph.conv(1, 1, 2)
    graph.conv(1)
    made, problem = joined(graph.fixed(), machine)
    plan = ChainPlan(problem.point.rows, problem.point.channels, buffers, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "plan_chain", lambda *_: plan)
        program = compile_fixed(made, machine, planner("exact-layers"))
    statistics = run(graph.fixed(), program, 0).statistics
    assert statistics is not None
    (layer,) = program.layers
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.01)


def test_a_bottleneck_moves_every_value_once() -> None:
    """Its residual is the input, which is on chip."""
    fixed, machine = bottleneck(24, 60, 14), load_machine("setup-a")
    program = compile_fixed(fixed, machine, planner("exact-traffic"))
    (layer,) = program.layers
    statistics = run(fixed, program, 1).statistics
    assert statistics is not None
    weights, biases = 24 * 60 + 60 * 9 + 60 * 24, 60 + 60 + 24
    assert statistics.moved_bytes == 4 * (2 * 24 * 14 * 14 + weights + biases)
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.01)
    apart = compile_fixed(fixed, machine, planner("exact-layers"))
    others = run(fixed, apart, 1).statistics
    assert others is not None and others.moved_bytes > 4 * statistics.moved_bytes


def test_the_fastest_graph_has_a_chain_where_transfers_take_longest() -> None:
    """With kernel taps beside channels a depthwise layer is bound by what it moves."""
    fixed, machine = bottleneck(24, 60, 14), load_machine("setup-a-taps")
    times = {}
    for name in ("exact", "exact-layers"):
        program = compile_fixed(fixed, machine, planner(name))
        statistics = run(fixed, program, 2).statistics
        assert statistics is not None
        times[name] = statistics.cycles, len(program.layers)
    assert times["exact"][1] == 1 and times["exact-layers"][1] == 3
    assert times["exact"][0] < 0.98 * times["exact-layers"][0]


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(MACHINES), chains())
def test_no_chain_moves_less(machine: TileMachine, fixed: FixedGraph) -> None:
    """Of all strips, rounds and buffers."""
    _, problem = joined(fixed, machine)
    least = [
        ChainTiles(problem, rows, channels, keeps_rows).moved_bytes()
        for rows in range(1, problem.point.rows + 1)
        for channels in range(1, problem.point.channels + 1)
        for keeps_rows in {False, can_keep_rows(problem, channels)}
        if chain_fault(problem, ChainPlan(rows, channels, 1, 0), machine) is None
    ]
    found = plan_chain(problem, machine, "exact-traffic", chain_cycles, goal="bytes")
    if not least:
        assert "no strips and rounds of the chain fit" in str(found)
        return
    assert isinstance(found, ChainPlan) and found.moved_bytes == min(least)
    assert chain_fault(problem, found, machine) is None


MEMORIES = ("the input memory", "the weight memory", "the output memory", "the bias memory")


@pytest.mark.parametrize("goal", ["cycles", "bytes"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_the_least_room_of_a_chain(memory: str, goal: Goal) -> None:
    """With less no strips and rounds fit."""
    at = MEMORIES.index(memory)
    fixed = bottleneck(8, 12, 5)

    def planned(size: int) -> ChainPlan | Infeasible:
        sizes = [4096, 4096, 8192, 4096]
        sizes[at] = size
        machine = tile_machine((sizes[0], sizes[1], sizes[2]), (4, 4, 4, 8), sizes[3])
        return plan_chain(joined(fixed, machine)[1], machine, "x", chain_cycles, goal=goal)

    found = planned(64)
    assert isinstance(found, Infeasible)
    assert (found.buffer, found.available_bytes) == (memory, 64)
    assert isinstance(planned(found.needed_bytes), ChainPlan)
    short = planned(found.needed_bytes - 8)
    assert isinstance(short, Infeasible)
    assert f"{found.needed_bytes} bytes of {memory} needed, {found.needed_bytes - 8}" in str(short)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_rows": 15}, "tile_rows is 15; it must be an integer from 1 to 14"),
        ({"tile_channels": 0}, "tile_channels is 0; it must be an integer from 1 to 600"),
        ({"buffers": 3}, "buffers is 3; it must be an integer from 1 to 2"),
        ({"tile_channels": 600}, "bytes of weights is 136800; it must be at most 131072"),
        ({"tile_channels": 200}, "bytes of sums is 332416; it must be at most 262144"),
    ],
)
def test_plans_that_no_machine_runs(
    changes: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = load_machine("setup-a")
    assert isinstance(machine, TileMachine)
    made, _ = joined(bottleneck(24, 600, 14), machine)
    plan = replace(ChainPlan(14, 16, 2, 0), **changes)  # type: ignore[arg-type]
    monkeypatch.setattr(planning, "plan_chain", lambda *_: plan)
    with pytest.raises(EmitError, match=message):
        compile_fixed(made, machine, planner("exact-layers"))


def test_machines_without_chains() -> None:
    """One memory for all tiles, or a core."""
    fixed = bottleneck(4, 8, 5)
    assert not possible_chains(fixed, tile_machine((4096,)))
    core = load_machine("zynq-7020")
    assert isinstance(core, TileMachine) and not possible_chains(fixed, core)
    assert len(possible_chains(fixed, MACHINES[0])) == 2


@settings(deadline=None, max_examples=examples(25))
@given(st.data())
def test_heads_with_uneven_padding(data: st.DataObject) -> None:
    """Taps that meet the padding alone are left out, which may leave less than nothing of it, and
    padding may crop: such heads run to the bit, in chains or not."""
    draw = data.draw
    apart, kernel = draw(st.integers(1, 2)), draw(st.sampled_from((1, 3)))
    reach = (kernel - 1) * apart
    graph = Graph((draw(st.integers(1, 4)), draw(st.integers(3, 6)), 8), draw(st.integers(0, 99)))
    if draw(st.booleans()):
        graph.conv(draw(st.integers(1, 8)))
        graph.conv(graph.shapes["x"][0], residual="x")
    sides = [draw(st.integers(-1, reach)) for _ in range(4)]
    rows, columns = graph.shapes[graph.last][1:]
    for before, behind, size in ((0, 2, rows), (1, 3, columns)):
        sides[behind] = max(sides[behind], reach + 1 - size - sides[before])
    graph.conv(draw(st.integers(1, 8)), kernel, padding=tuple(sides), apart=apart)  # type: ignore[arg-type]
    graph.conv(draw(st.integers(1, 4)))
    fixed = graph.fixed()
    name = draw(st.sampled_from(("exact", "exact-traffic")))
    machine = draw(st.sampled_from((load_machine("setup-a"), *MACHINES)))
    run(fixed, compile_fixed(fixed, machine, name), 1)
