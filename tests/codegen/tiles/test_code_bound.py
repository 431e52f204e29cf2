"""Programs that would be too long to emit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from time import process_time

import pytest

from tests.codegen.nmp.fixed_layers import fixed_graph as one_layer
from tests.codegen.tiles.tile_cases import tile_machine
from tests.report.small_runs import network
from tvm_npu.codegen.compile import compile_fixed, compile_graph, fixed_graph, generate
from tvm_npu.codegen.errors import CapacityError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedElementwise
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import WORD_BYTES
from tvm_npu.codegen.tiles.emit import length
from tvm_npu.codegen.tiles.emit.commands import Command
from tvm_npu.codegen.tiles.emit.compiler import TileRegion
from tvm_npu.codegen.tiles.emit.emitter import Code
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.machine import TileMachine


@pytest.mark.parametrize("name", ("setup-a", "zynq-7020"))
def test_a_program_without_end_names_memories(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    machine = load_machine(name)
    program = compile_graph(graph, ranges, machine)
    size = program.code.nbytes
    monkeypatch.setattr(length, "MOST_CODE_BYTES", size)
    assert compile_graph(graph, ranges, machine).code.nbytes == size
    monkeypatch.setattr(length, "MOST_CODE_BYTES", size // 2)
    wanted = f"layer '.*'.*machine '{name}' .*_bytes = .*{size // 8:,} instructions"
    with pytest.raises(CapacityError, match=wanted):
        compile_graph(graph, ranges, machine)


def in_tiny_memories(monkeypatch: pytest.MonkeyPatch) -> tuple[FixedGraph, TileMachine, list[int]]:
    """The small network in small tiles, and how many instructions its layers take at least; none
    can be made."""
    graph, samples = network()
    machine = tile_machine((160,) * 3)
    fixed = fixed_graph(graph, calibrate(graph, [{"x": samples, "y": samples[::-1]}]), machine)
    region = generate(fixed, machine).emitted
    assert isinstance(region, TileRegion)
    monkeypatch.setattr(Code, "emit", None)
    return fixed, machine, [one.fewest_instructions for one in region.layers]


def test_layers_that_are_too_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, machine, fewest = in_tiny_memories(monkeypatch)
    most = sum(fewest) - length.LONGEST_COMMAND
    assert max(fewest) < most
    monkeypatch.setattr(length, "MOST_CODE_BYTES", most * WORD_BYTES)
    generate(fixed, machine)
    monkeypatch.setattr(length, "MOST_CODE_BYTES", (most - 1) * WORD_BYTES)
    with pytest.raises(CapacityError) as told:
        generate(fixed, machine)
    wanted = (
        f"layer 'dw': .* needs at least {max(fewest):,} of the at least {sum(fewest):,} "
        f"instructions of the program; at most {most - 1:,}"
    )
    assert re.search(wanted, str(told.value))
    assert told.value.needed_bytes == sum(fewest) * WORD_BYTES


def test_emission_ends_where_the_rest_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that there is counts as it is."""
    graph, samples = network()
    machine = tile_machine((160,) * 3)
    fixed = fixed_graph(graph, calibrate(graph, [{"x": samples, "y": samples[::-1]}]), machine)
    region = generate(fixed, machine).emitted
    assert isinstance(region, TileRegion)
    last = region.assemble().layers[-1][0]
    later = region.layers[-1].fewest_instructions
    monkeypatch.setattr(length, "LONGEST_COMMAND", 0)
    monkeypatch.setattr(length, "MOST_CODE_BYTES", last.begin + (later - 1) * WORD_BYTES)
    made, walked = TileRegion.commands, set()

    def commands(self: TileRegion, index: int) -> Iterator[Command]:
        for command in made(self, index):
            walked.add(index)
            yield command

    monkeypatch.setattr(TileRegion, "commands", commands)
    with pytest.raises(CapacityError, match=f"{last.begin // WORD_BYTES + later:,} instructions"):
        region.assemble()
    assert walked == set(range(len(region.layers) - 1))


@pytest.mark.parametrize("name", ("setup-a", "zynq-7020"))
def test_a_layer_of_millions_of_tiles_is_not_walked(name: str) -> None:
    shape = (1 << 16, 64, 64)
    layer = FixedElementwise("copy", ("x",), ("y",), op="copy", shift=0, low=-9, high=9)
    fixed = one_layer(layer, {"x": shape, "y": shape}, 1)
    values = load_machine(name).model_dump(exclude_none=True)
    values["memories"] = dict.fromkeys(values["memories"], 64)
    begin = process_time()
    with pytest.raises(CapacityError, match="layer 'copy'.*4,194,304 instructions"):
        compile_fixed(fixed, machine_from_dict(values))
    assert process_time() - begin < 1
