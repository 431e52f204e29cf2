"""Chains on tile machines: random ones under random plans run to the bit and move what plans say;
where a graph takes them, and what they save."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.tiles.tile_cases import tile_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph, Shape, output_extent, q_point_scales
from tvm_npu.codegen.ops import FixedBlock, FixedConv
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tiles.plan import planning
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    can_keep_rows,
    chain_fault,
)
from tvm_npu.codegen.tiles.plan.chains import _members, chain_problem, plan_chain, possible_chains
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

MACHINES = (
    tile_machine((2048, 1024, 4096), (4, 4, 4, 8)),
    tile_machine((512, 256, 1024), (1, 2, 4, 8), array={"taps_at_once": 9}),
)


class Graph:
    """Convolutions one behind the other; the last may add ``residual``."""

    def __init__(self, image: Shape, seed: int) -> None:
        self.shapes: dict[str, Shape] = {"x": image}
        self.layers: list[FixedConv] = []
        self.last, self.rng = "x", np.random.default_rng(seed)

    def conv(
        self, filters: int, kernel: int = 1, stride: int = 1, depthwise: bool = False,
        residual: str = "",
    ) -> None:  # fmt: skip
        channels, *extents = self.shapes[self.last]
        edge = kernel // 2
        name = f"t{len(self.layers)}"
        out = [output_extent(size, kernel, stride, 1, 2 * edge) for size in extents]
        self.shapes[name] = (filters, *out)
        depth = 1 if depthwise else channels
        if residual:
            self.shapes.setdefault(residual, self.shapes[name])
        self.layers.append(
            FixedConv(
                name, (self.last, *([residual] if residual else [])), (name,),
                weight=self.rng.integers(-128, 128, (filters, depth, kernel, kernel), np.int8),
                bias=self.rng.integers(-(1 << 9), 1 << 9, filters).astype(np.int32),
                stride=(stride, stride), padding=(edge,) * 4,
                groups=channels if depthwise else 1, shift=6 + depth.bit_length(),
                low=-128 if residual else 0, high=127,
            )
        )  # fmt: skip
        self.last = name

    def fixed(self) -> FixedGraph:
        inputs = tuple(name for name in ("x", "z") if name in self.shapes)
        scales = q_point_scales(dict.fromkeys(self.shapes, 0))
        return FixedGraph(
            tuple(self.layers), self.shapes, inputs, (self.last,), scales, 1, "chain"
        )


@st.composite
def chains(draw: st.DrawFn) -> FixedGraph:
    """Of all kinds: with an expansion or not, with a residual of its own, of its input, or none."""
    channels, size = draw(st.integers(1, 5)), (draw(st.integers(3, 9)), draw(st.integers(3, 9)))
    graph = Graph((channels, *size), draw(st.integers(0, 1 << 20)))
    kind, stride = draw(st.sampled_from(("all", "plain", "depthwise"))), draw(st.integers(1, 2))
    middle = channels if kind == "depthwise" else draw(st.integers(1, 9))
    if kind == "depthwise":
        graph.conv(middle, 3, stride, depthwise=True)
    else:
        graph.conv(middle, draw(st.sampled_from((1, 3))), 1 if kind == "all" else stride)
    if kind == "all":
        graph.conv(middle, draw(st.sampled_from((3, 5))), stride, depthwise=True)
    residual = draw(st.sampled_from(("", "z", "x")))
    if residual == "x" and stride == 1:
        graph.conv(channels, residual="x")
    else:
        graph.conv(draw(st.integers(1, 6)), residual="z" if residual else "")
    return graph.fixed()


def joined(fixed: FixedGraph, machine: TileMachine) -> tuple[FixedGraph, ChainProblem]:
    """The graph as its longest chain."""
    block = max(possible_chains(fixed, machine), key=lambda one: len(_members(one)))
    made = with_joined(
        fixed, [Joined(block, _members(block))], lambda one: float(not isinstance(one, FixedBlock))
    )
    assert len(made.layers) == 1
    return made, chain_problem(block, fixed.shapes, "int8", machine)


def run(fixed: FixedGraph, program: Program, seed: int) -> Session:
    """Simulated, and equal to the reference of ``fixed``."""
    rng = np.random.default_rng(seed)
    images = {x: rng.integers(-128, 128, (1, *fixed.shapes[x]), np.int8) for x in fixed.inputs}
    session = Session(program)
    (found,) = session.run_fixed([images[name] for name in fixed.inputs])
    np.testing.assert_array_equal(found, run_fixed(fixed, images)[fixed.outputs[0]])
    return session


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


def bottleneck(channels: int, middle: int, size: int) -> FixedGraph:
    """MobileNetV2's."""
    graph = Graph((channels, size, size), 3)
    graph.conv(middle)
    graph.conv(middle, 3, depthwise=True)
    graph.conv(channels, residual="x")
    return graph.fixed()


def test_a_bottleneck_moves_every_value_once() -> None:
    """Its residual is the input, which is on chip."""
    fixed, machine = bottleneck(24, 60, 14), load_machine("setup-a")
    program = compile_fixed(fixed, machine, planner("exact-traffic"))
    (layer,) = program.layers
    statistics = run(fixed, program, 1).statistics
    assert statistics is not None
    weights, biases = 24 * 60 + 60 * 9 + 60 * 24, 60 + 60 + 24
    assert statistics.moved_bytes == 4 * (2 * 24 * 14 * 14 + weights + biases)
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, rel=0.1)
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
    assert times["exact"][0] < 0.95 * times["exact-layers"][0]


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
    found = plan_chain(problem, machine, "exact-traffic")
    if not least:
        assert "no strips and rounds of the chain fit" in str(found)
        return
    assert isinstance(found, ChainPlan) and found.moved_bytes == min(least)
    assert chain_fault(problem, found, machine) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_rows": 15}, "tile_rows is 15; it must be an integer from 1 to 14"),
        ({"tile_channels": 0}, "tile_channels is 0; it must be an integer from 1 to 600"),
        ({"buffers": 3}, "buffers is 3; it must be an integer from 1 to 2"),
        ({"tile_channels": 600}, "room for the chain's tiles is none; it must be that of machine"),
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
