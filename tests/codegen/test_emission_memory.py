"""What making a program of large weights takes beside them."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tvm_npu.codegen.compile import CompileOptions, fixed_graph, generate
from tvm_npu.codegen.graph import Graph, Layer
from tvm_npu.codegen.ops import Dense, ScaleShift
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program import constants
from tvm_npu.codegen.snowflake.emit import region
from tvm_npu.codegen.snowflake.steps.passes import PlacedStep
from tvm_npu.sim.machine_file import load_machine

SIZE, LAYERS = 1024, 4


GROWTH = {"setup-a": 1.25, "zynq-7020": 1.25}
"""Of tile machines, whose weights have no other order; others hold a layer in that of its plan."""


def dense_layers(*, scaled: bool = False) -> Graph:
    """Fully connected layers, a scale of every channel behind each where they are ``scaled``."""
    generator = np.random.default_rng(7)
    layers: list[Layer] = []
    for number in range(LAYERS):
        weight = generator.normal(0, 0.03, (SIZE, SIZE)).astype(np.float32)
        bias = np.zeros(SIZE, np.float32)
        made = f"s{number}" if scaled else f"t{number + 1}"
        layers.append(Dense(f"fc{number}", (f"t{number}",), (made,), weight, bias))
        if scaled:
            scale = np.full(SIZE, 1.25, np.float32)
            layers.append(ScaleShift(f"bn{number}", (made,), (f"t{number + 1}",), scale, bias))
    tensors = ("t0", *(tensor for layer in layers for tensor in layer.outputs))
    return Graph(tuple(layers), dict.fromkeys(tensors, (SIZE,)), ("t0",), (f"t{LAYERS}",))


SAMPLE = {"t0": np.random.default_rng(8).normal(0, 1, (1, SIZE)).astype(np.float32)}


@pytest.mark.parametrize(
    "name", ("nmp-4x8", "nmp-4x8-dual", "setup-a", "zynq-7020", "snowflake-1cc", "snowflake-4cc")
)
def test_copies_are_of_one_layer_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants grow by the words of a layer, in the order of its plan; nothing else stays."""
    monkeypatch.setattr(constants, "growing_bytes", bytearray)  # the other reserves addresses
    graph, machine = dense_layers(), load_machine(name)
    fixed = fixed_graph(graph, calibrate(graph, [SAMPLE]), machine)
    generate(fixed, machine).program()  # planners keep tables
    tracemalloc.start()
    try:
        program = generate(fixed, machine).program()
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        kept_bytes = tracemalloc.get_traced_memory()[0]
        parts = program.file_parts()
        file_bytes = tracemalloc.get_traced_memory()[1] - kept_bytes
    finally:
        tracemalloc.stop()
    assert len(program.constants) >= LAYERS * SIZE * SIZE * 2
    assert peak_bytes < GROWTH.get(name, 1.7) * len(program.constants)
    assert any(part is program.constants for part in parts)
    assert file_bytes < 0.1 * len(program.constants)
    assert b"".join(parts) == program.to_bytes()


@pytest.mark.parametrize("name", ("nmp-4x8", "nmp-4x8-int8", "setup-a", "snowflake-1cc"))
def test_floats_of_a_layer_go_when_its_integers_are_there(name: str) -> None:
    """Scales behind layers are folded into weights, which then are no more those of the model."""
    graph, machine = dense_layers(scaled=True), load_machine(name)
    ranges, options = calibrate(graph, [SAMPLE]), CompileOptions()
    fixed_graph(graph, ranges, machine, options)
    tracemalloc.start()
    try:
        fixed = fixed_graph(graph, ranges, machine, options)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(fixed.layers) == LAYERS
    floats_bytes = LAYERS * SIZE * SIZE * 4
    assert floats_bytes < peak_bytes < 1.4 * floats_bytes


@pytest.mark.parametrize("images", ("together", "apart"))
def test_steps_go_when_they_are_code(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a Snowflake's four clusters; with an image for each all read the same ones."""
    left: list[int] = []
    original = region.pack

    def pack(blocks: Any) -> Any:
        left.append(sum(isinstance(one, PlacedStep) for one in gc.get_objects()))
        return original(blocks)

    monkeypatch.setattr(region, "pack", pack)
    graph, machine = dense_layers(), load_machine("snowflake-4cc")
    fixed = fixed_graph(graph, calibrate(graph, [SAMPLE]), machine)
    gc.collect()
    generate(fixed, machine, images=images)
    assert len(left) == 4 and left[0] > 0 and left[-1] == 0
    assert left == sorted(left, reverse=True)
    assert (len(set(left)) == 4) == (images == "together")
