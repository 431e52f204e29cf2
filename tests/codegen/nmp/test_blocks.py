"""Pointwise convolutions behind convolutions and cascades, round by round on chip."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, filter_shifts, requantizing
from tests.codegen.nmp.test_cascades import cascades, predicted
from tests.codegen.nmp.test_wide_plans import Drawn, machines, plans, run_drawn
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, q_point_scales
from tvm_npu.codegen.nmp.plan.block import (
    BlockPlan,
    BlockProblem,
    crew_size,
    most_point_filters,
)
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_cost import BlockWalk, predict_block
from tvm_npu.codegen.nmp.plan.block_search import plan_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Split
from tvm_npu.codegen.nmp.plan.cost import combined
from tvm_npu.codegen.nmp.plan.exact_blocks.planner import fastest_plans
from tvm_npu.codegen.nmp.plan.input_residual import adds_what_it_reads
from tvm_npu.codegen.nmp.plan.turns import tle_turns
from tvm_npu.codegen.ops import FixedBlock, FixedConv
from tvm_npu.codegen.passes.blocks import blocks_behind
from tvm_npu.codegen.passes.cascades import candidates
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Window, share, slice_of
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

ALONE = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 1, 1, 1, prediction=predicted(1e9))


@dataclass
class Blocking(Drawn):
    """Likes blocks, and finds all else very slow."""

    name: str = "blocking"
    plans_windows: bool = True
    plans_blocks: bool = True

    def plan(self, problem: object, machine: NmpMachine) -> object:  # type: ignore[override]
        if not isinstance(problem, BlockProblem):
            return ALONE
        if problem not in self.known:
            self.known[problem] = self.data.draw(block_plans(problem, machine, self.buffers))  # type: ignore[index]
        return self.known[problem]  # type: ignore[index]


@st.composite
def block_plans(
    draw: st.DrawFn, problem: BlockProblem, machine: NmpMachine, buffers: int
) -> BlockPlan:
    """A sound one."""
    head = draw(plans(problem.head, machine, buffers))
    on_chip = adds_what_it_reads(problem) and draw(st.booleans())
    if on_chip:
        width = problem.head.out_columns
        head = replace(head, column_slices=1, tlt_columns=1, tile_c=width)
        head = replace(head, ring_weights=head.ring_weights and head.row_slices > 1)
    if draw(st.booleans()):
        head = replace(head, tlt_rows=1, tlt_columns=1)
    if draw(st.booleans()):
        tles = machine.cores.tles
        head = replace(
            head, row_slices=1, column_slices=1, filter_slices=tles, ring_weights=False,
            ring_in=tles > 1 and head.ring_in,
        )  # fmt: skip
    tlts = machine.cores.tlts_per_tle // (head.tlt_rows * head.tlt_columns)
    own = problem.head.filters // (head.filter_slices * tlts)
    assume(own > 0)
    tile = draw(st.sampled_from([one for one in range(1, own + 1) if own % one == 0]))
    head = replace(head, tile_m=tile, schedule="WS" if head.schedule == "WS" else "OS")
    if head.schedule == "WS":
        head = replace(head, tile_m=own)
    passed = draw(
        st.sampled_from([one for one in range(1, head.tile_m + 1) if head.tile_m % one == 0])
    )
    rows, columns = (
        share(slice_of(extent, slices, 0)[1], parts, 0)[1]
        for extent, slices, parts in (
            (problem.head.out_rows, head.row_slices, head.tlt_rows),
            (problem.head.out_columns, head.column_slices, head.tlt_columns),
        )
    )
    head = replace(head, tile_r=min(head.tile_r, rows), tile_c=min(head.tile_c, columns))
    most_slots = 1 if head.tile_m == passed else machine.memories.ports
    slots = draw(st.sampled_from((1, 2)[:most_slots]))
    head = replace(head, split=_split(head))
    plan = BlockPlan(head, passed, predicted(1.0), slots=slots, residual_on_chip=on_chip)
    own = most_point_filters(problem, plan, machine)
    if on_chip and head.tile_n < problem.head.channels:
        tile_n = max(own, head.tile_n - head.tile_n % own)
        plan = replace(plan, head=replace(head, tile_n=min(tile_n, problem.head.channels)))
    assume(check_block(problem, plan, machine) is None)
    return plan


def _split(plan: ConvPlan) -> Split:
    if plan.filter_slices == 1:
        return "OFM"
    return "KS" if plan.row_slices * plan.column_slices == 1 else "KS&OFM"


def widened(graph: FixedGraph, times: int, seed: int) -> FixedGraph:
    """``times`` as many filters, so that crews of many TLTs can share them."""
    generator = np.random.default_rng(seed)

    def wider(layer: FixedLayer) -> FixedLayer:
        if not isinstance(layer, FixedConv):
            return layer
        more = {
            name: np.concatenate([generator.permutation(values) for _ in range(times)])
            for name in ("weight", "bias", "filter_shifts")
            if (values := getattr(layer, name)) is not None
        }
        groups = 1 if layer is graph.layers[0] else layer.groups * times
        return replace(layer, **more, groups=groups)

    made = {tensor for layer in graph.layers for tensor in layer.outputs}
    shapes = {
        name: (shape[0] * times, *shape[1:]) if name in made else shape
        for name, shape in graph.shapes.items()
    }
    return replace(graph, layers=tuple(map(wider, graph.layers)), shapes=shapes)


@st.composite
def blocks(draw: st.DrawFn, element_bytes: int, with_window: bool) -> FixedGraph:
    """A convolution, a window over it or none, and a pointwise convolution."""
    if with_window:
        graph = draw(cascades(element_bytes, has_residuals=False))
    else:
        graph = draw(convolutions(element_bytes, is_grouped=False, has_residuals=False))
    conv = graph.layers[0]
    assert isinstance(conv, FixedConv)
    if draw(st.booleans()):
        sloped = replace(conv, slopes=np.array([draw(st.integers(1, 32767))]))
        graph = replace(graph, layers=(sloped, *graph.layers[1:]))
    graph = widened(graph, draw(st.sampled_from((1, 2, 4, 8))), draw(SEEDS))
    made = graph.outputs[0]
    channels, rows, columns = graph.shapes[made]
    filters = draw(st.integers(1, 20))
    generator = np.random.default_rng(draw(SEEDS))
    low, high = element_limits(element_bytes)
    shapes = {**graph.shapes, "z": (filters, rows, columns)}
    scales = graph.scales | q_point_scales({"z": 8})
    inputs, added = graph.inputs, ()
    if draw(st.booleans()):
        shapes["r"], added = (filters, rows, columns), ("r",)
        inputs, scales = (*inputs, "r"), scales | q_point_scales({"r": 8})
    point = FixedConv(
        "point", (made, *added), ("z",), weight=generator.integers(
            low, high + 1, (filters, channels, 1, 1)
        ).astype(np.int8 if element_bytes == 1 else np.int16),
        bias=generator.integers(-(1 << 20), 1 << 20, filters).astype(np.int32),
        accumulator_shift=draw(st.integers(0, 3)) if added else 0,
        residual_shift=draw(st.integers(0, 8)) if added else 0,
        filter_shifts=draw(filter_shifts(filters, element_bytes)),
        **draw(requantizing(element_bytes)),
    )  # fmt: skip
    return replace(
        graph, layers=(*graph.layers, point), shapes=shapes, outputs=("z",), inputs=inputs,
        scales=scales,
    )  # fmt: skip


@pytest.mark.parametrize("with_window", [True, False])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(
    max_examples=examples(12), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_blocks_run_to_the_bit(
    element_bytes: int, buffers: int, with_window: bool, data: st.DataObject
) -> None:
    fixed = data.draw(blocks(element_bytes, with_window))
    heads = candidates(fixed) if with_window else [fixed.layers[0]]
    assume(blocks_behind(fixed, heads))  # type: ignore[arg-type]
    machine = data.draw(machines(buffers))
    layers = run_drawn(fixed, machine, Blocking(data, buffers), data)
    assert [type(one.layer) for one in layers] == [FixedBlock]


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_a_window_of_one_channel_is_a_convolution_too(name: str) -> None:
    """Alone it may lead a block, and behind another in a cascade; both make one tensor."""
    generator = np.random.default_rng(0)

    def conv(source: str, target: str, shape: tuple[int, ...], shift: int) -> FixedConv:
        weight = generator.integers(-300, 300, shape).astype(np.int16)
        bias = generator.integers(-99, 99, shape[0]).astype(np.int32)
        padding = (shape[2] // 2,) * 4
        return FixedConv(
            f"{source}{target}", (source,), (target,), weight, bias, padding=padding, shift=shift,
            low=-32768, high=32767,
        )  # fmt: skip

    layers = (
        conv("x", "a", (1, 3, 3, 3), 9), conv("a", "b", (1, 1, 3, 3), 9),
        conv("b", "z", (8, 1, 1, 1), 7),
    )  # fmt: skip
    shapes = {"x": (3, 40, 40), "a": (1, 40, 40), "b": (1, 40, 40), "z": (8, 40, 40)}
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    fixed = FixedGraph(layers, shapes, ("x",), ("z",), scales, 2)
    given_x = generator.integers(-900, 900, (1, 3, 40, 40)).astype(np.int16)
    found = Session(compile_fixed(fixed, load_nmp_machine(name))).run_fixed([given_x])
    assert np.array_equal(found[0], run_fixed(fixed, {"x": given_x})["z"])


EXPANDED = ConvProblem(
    filters=192, channels=32, groups=1, rows=28, columns=28, in_rows=28, in_columns=28,
    kernel=(1, 1), stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), element_bytes=2,
    window=Window(28, 28, (3, 3), (1, 1), (1, 1), has_weights=True),
)  # fmt: skip
BOTTLENECK = BlockProblem(EXPANDED, 32, has_residual=True)


def test_the_checker_finds_what_is_wrong() -> None:
    machine = load_nmp_machine("nmp-4x8")
    plan = next(
        plan for _, plan in fastest_plans(BOTTLENECK, machine, NO_LIMITS, 400).plans
        if plan.head.row_slices > 1 and plan.head.filter_slices > 1
    )  # fmt: skip
    assert check_block(BOTTLENECK, plan, machine) is None
    plan = replace(plan, head=replace(plan.head, keeps_rows=False))
    head, own = plan.head, 192 // crew_size(plan, machine)
    assert own > 2
    one_slice = replace(head, row_slices=1, column_slices=1, ring_weights=False)
    wrong = {
        "whole rounds": replace(plan, passed=head.tile_m + 1),
        "whole tiles": replace(plan, head=replace(head, schedule="OS", tile_m=own - 1), passed=1),
        "MB0": replace(plan, head=replace(head, tile_r=28 // head.row_slices)),
        "all 4": replace(plan, head=one_slice),
        "under WS": replace(plan, head=replace(head, schedule="WS", tile_m=own // 2), passed=1),
    }
    for word, mutant in wrong.items():
        assert word in str(check_block(BOTTLENECK, mutant, machine)), word
    assert "memories.ports: 1" in str(check_block(BOTTLENECK, replace(plan, slots=2), machine))
    dual = load_nmp_machine("nmp-4x8-dual")
    ahead = plan_block(BOTTLENECK, dual, NO_LIMITS, "exact")
    assert isinstance(ahead, BlockPlan) and ahead.slots == 2
    single = replace(ahead, passed=ahead.head.tile_m)
    assert "one a slot: 2" in str(check_block(BOTTLENECK, single, dual))
    uneven = replace(BOTTLENECK, head=replace(EXPANDED, filters=191))
    assert "equal" in str(check_block(uneven, plan, machine))
    small = machine.model_copy(
        update={"dme": machine.dme.model_copy(update={"semaphores": 12})}
    )
    assert "semaphores" in str(check_block(BOTTLENECK, plan, small))
    assert isinstance(plan_block(BOTTLENECK, small, NO_LIMITS, "exact"), Infeasible)
    plain = machine.model_copy(update={"ring": None})
    alone = replace(plan, head=replace(head, ring_in=False, ring_weights=False))
    no_window = replace(BOTTLENECK, head=replace(EXPANDED, window=None))
    assert "there for a block" in str(check_block(no_window, alone, plain))
    assert "needs rings and 15" in str(plan_block(BOTTLENECK, plain, NO_LIMITS, "exact"))


@pytest.mark.parametrize(
    ("memory", "what"),
    [
        ("mb0_bytes", "what is passed on in MB0"), ("mb1_bytes", "weights of a block in MB1"),
        ("mb2_bytes", "tiles of a block in MB2"), ("bias_bytes", "biases of a block"),
    ],
)  # fmt: skip
def test_a_block_needs_more_room_than_its_head(memory: str, what: str) -> None:
    """The least memory that is enough is that of the last fault on the way to it."""
    machine = load_nmp_machine("nmp-4x8")
    plan = plan_block(BOTTLENECK, machine, NO_LIMITS, "exact")
    assert isinstance(plan, BlockPlan)
    size, faults = 8, []
    for _ in range(4):
        memories = machine.memories.model_copy(update={memory: size})
        found = check_block(BOTTLENECK, plan, machine.model_copy(update={"memories": memories}))
        if found is None:
            break
        faults.append(str(found))
        assert isinstance(found.value, int)
        size = found.value
    assert found is None and any(what in one for one in faults[-1:]), faults


@pytest.mark.parametrize(
    ("memory", "buffer"),
    [("mb0_bytes", "MB0"), ("mb1_bytes", "MB1"), ("mb2_bytes", "MB2"),
     ("bias_bytes", "the bias buffer")],
)  # fmt: skip
def test_the_least_room_of_a_block(memory: str, buffer: str) -> None:
    """With a byte less no tile fits."""
    machine = load_nmp_machine("nmp-4x8")

    def planned(size: int) -> object:
        memories = machine.memories.model_copy(update={memory: size})
        small = machine.model_copy(update={"memories": memories})
        return plan_block(BOTTLENECK, small, NO_LIMITS, "exact")

    found = planned(4)
    assert isinstance(found, Infeasible)
    assert (found.buffer, found.available_bytes) == (buffer, 4)
    assert isinstance(planned(found.needed_bytes), BlockPlan)
    short = planned(found.needed_bytes - 1)
    assert isinstance(short, Infeasible) and short.needed_bytes == found.needed_bytes
    assert f"{found.needed_bytes} bytes of {buffer} needed" in str(short)


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_limits_of_tiles_hold_for_blocks(name: str) -> None:
    machine = load_nmp_machine(name)
    limits = TileLimits(max_tile_m=3, max_tile_r=2, max_tile_c=14, max_tile_n=8)
    plan = plan_block(BOTTLENECK, machine, limits, "exact")
    assert isinstance(plan, BlockPlan)
    head = plan.head
    assert (head.tile_m <= 3, head.tile_r <= 2, head.tile_c <= 14, head.tile_n <= 8) == (True,) * 4


@pytest.mark.parametrize("filters", [96, 120])
@pytest.mark.parametrize("channels", [16, 22])
def test_tles_that_are_alike_are_walked_once(filters: int, channels: int) -> None:
    """Predictions are those of walks over every single TLE."""
    head = replace(EXPANDED, filters=filters, channels=channels)
    problem = BlockProblem(head, 50, has_residual=True)
    for name in ("nmp-4x8", "nmp-4x8-dual"):
        machine = load_nmp_machine(name)
        for _, plan in fastest_plans(problem, machine, NO_LIMITS, 40).plans:
            slices = plan.head.filter_slices
            costs = Counter(
                BlockWalk(problem, plan, machine, turns, number % slices).cost()
                for number, turns in enumerate(tle_turns(head, plan.head, machine))
            )
            assert predict_block(problem, plan, machine) == combined(costs, 1, machine)
