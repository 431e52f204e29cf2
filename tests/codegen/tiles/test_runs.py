"""Runs of chains on tile machines: random ones under random plans run to the bit, move what plans
say and take what is predicted; where a graph takes them, and what they save."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.tiles.chain_graphs import Graph, add_bottleneck, run
from tests.codegen.tiles.tile_cases import tile_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed, generate, plan_graph
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedRun
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.program.format import WORD_BYTES, Program
from tvm_npu.codegen.tiles.plan import joining, planning, runs
from tvm_npu.codegen.tiles.plan.chain import ChainPlan, can_keep_rows
from tvm_npu.codegen.tiles.plan.chains import members_of, possible_chains
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem, run_fault, run_tiles
from tvm_npu.codegen.tiles.plan.runs import plan_run, possible_runs, run_of, run_problem
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
        begin = graph.last
        channels, *_ = graph.shapes[begin]
        kind, stride = draw(st.sampled_from(("all", "plain", "depthwise"))), draw(st.integers(1, 2))
        middle = channels if kind == "depthwise" else draw(st.integers(1, 9))
        if kind == "depthwise":
            graph.conv(middle, 3, stride, depthwise=True)
        else:
            graph.conv(middle, draw(st.sampled_from((1, 3))), 1 if kind == "all" else stride)
        if kind == "all":
            graph.conv(middle, draw(st.sampled_from((3, 5))), stride, depthwise=True)
        residual = draw(st.sampled_from(("", "z", "own")))
        if residual == "own" and graph.shapes[begin][1:] == graph.shapes[graph.last][1:]:
            graph.conv(channels, residual=begin)
        else:
            residual = f"z{turn}" if residual else ""
            graph.conv(draw(st.integers(1, 6)), residual=residual)
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
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.03)
