"""What making a program of large weights takes beside them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tvm_npu.codegen.compile import fixed_graph, generate
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.ops import Dense
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.sim.machine_file import load_machine

SIZE, LAYERS = 1024, 4


@pytest.mark.parametrize(
    "name", ("nmp-4x8", "nmp-4x8-dual", "setup-a", "zynq-7020", "snowflake-1cc", "snowflake-4cc")
)
def test_copies_are_of_one_layer_at_a_time(name: str) -> None:
    """Constants grow by the words of a layer, in the order of its plan; nothing else stays."""
    generator = np.random.default_rng(7)
    layers = tuple(
        Dense(
            f"fc{number}", (f"t{number}",), (f"t{number + 1}",),
            generator.normal(0, 0.03, (SIZE, SIZE)).astype(np.float32),
            np.zeros(SIZE, np.float32),
        )
        for number in range(LAYERS)
    )  # fmt: skip
    shapes = {f"t{number}": (SIZE,) for number in range(LAYERS + 1)}
    graph = Graph(layers, shapes, ("t0",), (f"t{LAYERS}",))
    machine = load_machine(name)
    sample = generator.normal(0, 1, (1, SIZE)).astype(np.float32)
    fixed = fixed_graph(graph, calibrate(graph, [{"t0": sample}]), machine)
    generate(fixed, machine).program()  # planners keep tables
    tracemalloc.start()
    try:
        program = generate(fixed, machine).program()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(program.constants) >= LAYERS * SIZE * SIZE * 2
    assert peak_bytes < 1.7 * len(program.constants)
