"""How long code is at least: never more than what is emitted, and near to it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, for_machine, layers
from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.tiles.tile_cases import AnyPlan, tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import CompileOptions, Generated, fixed_graph, generate
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.program.format import WORD_BYTES
from tvm_npu.codegen.tiles.emit.commands import Command, Transfer, Work
from tvm_npu.codegen.tiles.emit.compiler import TileRegion
from tvm_npu.codegen.tiles.emit.dmac import channel_of
from tvm_npu.codegen.tiles.emit.length import length_of
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
        if isinstance(one.plan, LoopPlan):
            assert found.transfers == counted["transfers"], (index, found, counted)


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
