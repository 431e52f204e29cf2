"""Words and constants of a region, however often they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.report.small_runs import network
from tvm_npu.codegen.compile import fixed_graph, generate
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES
from tvm_npu.codegen.program.code import Code
from tvm_npu.codegen.tiles.emit.commands import Command
from tvm_npu.codegen.tiles.emit.compiler import TileRegion
from tvm_npu.sim.machine_file import load_machine


def region_on(name: str) -> TileRegion:
    graph, samples = network()
    machine = load_machine(name)
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    region = generate(fixed_graph(graph, ranges, machine), machine).emitted
    assert isinstance(region, TileRegion)
    return region


def same(one: Code, other: Code) -> bool:
    return np.array_equal(one.words, other.words) and one.constants == other.constants


class StoppedError(Exception):
    """In the middle of a layer's commands."""


@pytest.mark.parametrize("name", ("setup-a", "zynq-7020"))
def test_assembled_again_it_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are not copied for it, and nothing is added twice, after an error neither."""
    wanted = region_on(name).assemble()
    region = region_on(name)
    weights_bytes = len(region.constants.data)
    made = TileRegion.commands

    def commands(self: TileRegion, index: int) -> Iterator[Command]:
        for number, command in enumerate(made(self, index)):
            if index == 1 and number == 3:
                raise StoppedError
            yield command

    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(TileRegion, "commands", commands)
        region.assemble()
    first = region.assemble()
    assert first.constants is region.constants.data
    has_templates = len(first.constants) >= weights_bytes + ALIGNMENT_BYTES
    assert has_templates == (region.machine.dmac is not None)
    view = np.frombuffer(first.constants, np.uint8)  # what holds a view must not be in the way
    assert same(first, wanted)
    assert same(region.assemble(), wanted)
    assert view.tobytes() == bytes(wanted.constants)
