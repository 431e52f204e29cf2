"""How long code is at least: never more than what is emitted, and near to it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import assume, given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, for_machine, layers
from tests.codegen.nmp.fixed_layers import fixed_graph as one_layer
from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.tiles.tile_cases import AnyPlan, tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import CompileOptions, Generated, fixed_graph, generate
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.graph import FixedGraph, Graph, Shape, output_extent
from tvm_npu.codegen.ops import FixedConv, FixedPool
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.plan.loops.plan import LoopPlan, group_runs, trips
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.format import WORD_BYTES
from tvm_npu.codegen.tiles.emit.commands import Command, Transfer, Work
from tvm_npu.codegen.tiles.emit.compiler import TileRegion
from tvm_npu.codegen.tiles.emit.dmac import channel_of
from tvm_npu.codegen.tiles.emit.length import length_of
from tvm_npu.codegen.tiles.plan.flat import FlatTiles
from tvm_npu.codegen.tiles.plan.pads import PadTiles, border_boxes, count_of
from tvm_npu.codegen.tiles.plan.pools import WindowTiles
from tvm_npu.sim.tiles.isa import TileRegister
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

WAITS = 4
"""For transfers of a layer that the next one, or the end, waits for: one a channel."""
MANY = 500
"""Instructions of a layer among which first and last ones do not matter."""
NEAR = 0.2


def check(generated: Generated) -> None:
    region = generated.emitted
    assert isinstance(region, TileRegion)
    note(f"{region.machine} {[one.plan for one in generated.planned.layers]}")
    code = region.assemble()
    said = [one.fewest_instructions for one in region.layers]
    for index, (fewest, (parts,)) in enumerate(zip(said, code.layers, strict=True)):
        emitted = (parts.end - parts.begin) // WORD_BYTES
        assert 0 < fewest <= emitted + WAITS, (index, fewest, emitted)
        assert emitted < MANY or fewest >= NEAR * emitted, (index, fewest, emitted)
    assert sum(said) <= len(code.words)
    for index, one in enumerate(generated.planned.layers):
        found = length_of(one.problem, one.plan, region.machine)
        counted = count(list(region.commands(index)))
        if not isinstance(region.machine.memories, SharedMemory):
            del counted["apart"]
        for name, most in counted.items():
            assert getattr(found, name) <= most, (index, name, found, counted)
        for name in certain(one.problem, one.plan):
            assert getattr(found, name) == counted[name], (index, name, found, counted)
        if isinstance(one.plan, LoopPlan):
            works = found.works + tiles_in_padding(one.problem, one.plan)
            assert works == counted["works"], (index, found, counted)


def certain(problem: Any, plan: Any) -> tuple[str, ...]:
    """What is known to the last command, not only at least."""
    if isinstance(plan, LoopPlan):
        return ("transfers",)
    if isinstance(plan, WindowTiles | FlatTiles):
        return ("transfers", "works")
    if isinstance(plan, PadTiles):
        whole = all(count_of(box) <= plan.fill_elements for box in border_boxes(problem))
        return ("transfers", "works") if whole else ("works",)
    return ()


def tiles_in_padding(problem: ConvProblem, plan: LoopPlan) -> int:
    """OUT tiles whose windows, with what lies between them, are all in it. Each is set to zero,
    once."""
    touching = []
    for axis, (size, extent, tile) in enumerate((
        (problem.in_rows, problem.rows, plan.tile_r),
        (problem.in_columns, problem.columns, plan.tile_c),
    )):  # fmt: skip
        reach = (problem.kernel[axis] - 1) * problem.dilation[axis] + 1
        begins = [at * problem.stride[axis] - problem.padding[axis] for at in range(extent)]
        tiles = [begins[at : at + tile] for at in range(0, extent, tile)]
        touching.append([one[0] < size and one[-1] + reach > 0 for one in tiles])
    empty = sum(not (row and column) for row in touching[0] for column in touching[1])
    return empty * group_runs(problem, plan) * trips(problem, plan, "M")


def count(commands: list[Command]) -> dict[str, int]:
    """The parts of a `Length`, command by command."""
    transfers = [one for one in commands if isinstance(one, Transfer)]
    works = [one for one in commands if isinstance(one, Work)]
    operands = [one.registers.get(TileRegister.OPERANDS) for one in works]
    outside = [(one.runs.address, one.runs.size_bytes) for one in transfers]
    return {
        "transfers": len(transfers),
        "works": len(works),
        "registers": _changes(outside) + _changes(operands),
        "turns": _changes([channel_of(one) for one in transfers]),
        "apart": _changes([one.chip_offset for one in transfers]),
    }


def _changes(values: list[Any]) -> int:
    return sum(one != before for before, one in pairwise(values))


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), tile_machines(), st.integers(64, 256), st.sampled_from((1, 2)), SEEDS)
def test_layers(
    data: st.DataObject, machine: TileMachine, size: int, element_bytes: int, seed: int
) -> None:
    """In memories that any plan fits, and in tiny ones."""
    fixed = for_machine(data.draw(layers(element_bytes)), machine)
    if data.draw(st.booleans()):
        sizes = machine.memories.model_dump(exclude_none=True)
        tiny = type(machine.memories)(**dict.fromkeys(sizes, size // 8 * 8))
        machine = machine.model_copy(update={"memories": tiny})
    try:
        check(generate(fixed, machine, AnyPlan(seed)))
    except PlanningError:
        reject()


@st.composite
def padded(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    """Convolutions and pools of a few values between much padding, on some sides or on all."""
    extents = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    sides = [draw(st.sampled_from((0, 0, 1, 2, 4))) for _ in range(4)]
    padding = (sides[0], sides[1], sides[2], sides[3])
    rows, columns = (
        output_extent(extents[axis], kernel[axis], stride[axis], 1, sides[axis] + sides[axis + 2])
        for axis in range(2)
    )
    assume(rows > 0 and columns > 0)
    channels, filters = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shift = {"shift": 3, "low": -100, "high": 100}
    layer: FixedConv | FixedPool
    if draw(st.booleans()):
        filters = channels
        layer = FixedPool(
            "layer", ("x",), ("y",), kind="max", kernel=kernel, stride=stride, padding=padding,
            count_include_pad=False, counted_padding=padding, **{**shift, "shift": 0},
        )  # fmt: skip
    else:
        weight = np.ones((filters, channels, *kernel), np.int8 if element_bytes == 1 else np.int16)
        layer = FixedConv(
            "layer", ("x",), ("y",), weight=weight, bias=np.zeros(filters, np.int32),
            stride=stride, padding=padding, **shift,
        )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, *extents), "y": (filters, rows, columns)}
    return one_layer(layer, shapes, element_bytes)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from((64, 256, 4096)), st.sampled_from((1, 2)), SEEDS)
def test_padding(data: st.DataObject, size: int, element_bytes: int, seed: int) -> None:
    """Tiles of a row or a column that lie in it, in part or as a whole."""
    memories = (size,) * data.draw(st.sampled_from((1, 3)))
    machine = tile_machine(memories, bias_bytes=64)
    try:
        check(generate(for_machine(data.draw(padded(element_bytes)), machine), machine,
                       AnyPlan(seed)))  # fmt: skip
    except PlanningError:
        reject()


@settings(max_examples=examples(20), deadline=None)
@given(graphs(), st.sampled_from((256, 1024, 4096)), SEEDS)
def test_graphs_with_chains(graph: Graph, size: int, seed: int) -> None:
    machine = tile_machine((size,) * 3)
    samples = random_inputs(graph, seed)
    try:
        fixed = fixed_graph(graph, calibrate(graph, [samples]), machine, CompileOptions("int16"))
        check(generate(fixed, machine, "exact"))
    except (PlanningError, QuantizationError):
        reject()
