"""Memory that a simulated device takes of the host, beside what `host_bytes` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tvm_npu.codegen.compile import compile_graph
from tvm_npu.codegen.graph import Graph, Layer
from tvm_npu.codegen.ops import Conv2d, Elementwise, Pool
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.loading import program_image
from tvm_npu.sim.kinds import host_bytes
from tvm_npu.sim.machine_file import load_machine

ROOT = Path(__file__).parents[2]
MACHINES = ("nmp-4x8", "setup-a", "zynq-7020", "snowflake-1cc", "snowflake-4cc")

HUGE_PAGES_BYTES = 6 << 20
"""Linux may give a large array 2 MB where its first element is written."""

_MEASURED = """
import gc
import sys

import numpy as np
from scipy.linalg import blas

from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.loading import program_image
from tvm_npu.sim.kinds import load_program


def now(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))


for multiply, kind in ((blas.sgemm, np.float32), (blas.dgemm, np.float64)):  # own buffers
    one = np.ones((512, 512), kind)
    multiply(1.0, one, one)
for path in sys.argv[1:]:  # the first run loads compiled code
    program = Program.from_file(path)
    machine = program.machine_description()
    image = program_image(program, program.image(machine.dram.base_address))
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = now("VmRSS")
    device = load_program(image, machine)
    device.run()
    taken = now("VmHWM") - before
print(taken)
"""


def network(size: int, channels: int) -> Graph:
    """Convolutions of several kinds, a pool and a sum."""
    generator = np.random.default_rng(3)

    def conv(name: str, source: str, to: str, filters: int, depth: int, taps: int) -> Conv2d:
        weight = generator.normal(0, 0.1, (filters, depth, taps, taps)).astype(np.float32)
        pad = taps // 2
        bias = np.zeros(filters, np.float32)
        return Conv2d(name, (source,), (to,), weight, bias, padding=(pad, pad, pad, pad))

    layers: tuple[Layer, ...] = (
        conv("first", "x", "a", channels, 3, 3),
        conv("point", "a", "b", channels, channels, 1),
        Elementwise("sum", ("a", "b"), ("c",), "add"),
        Pool("pool", ("c",), ("d",), "max", (2, 2), (2, 2)),
        conv("last", "d", "y", 2 * channels, channels, 3),
    )
    wide, half = (channels, size, size), (channels, size // 2, size // 2)
    shapes = {"x": (3, size, size), "a": wide, "b": wide, "c": wide, "d": half}
    return Graph(layers, {**shapes, "y": (2 * channels, *half[1:])}, ("x",), ("y",))


def stored(name: str, size: int, channels: int, path: Path) -> Program:
    graph, machine = network(size, channels), load_machine(name)
    sample = np.random.default_rng(4).normal(size=(1, 3, size, size)).astype(np.float32)
    program = compile_graph(graph, calibrate(graph, [{"x": sample}]), machine)
    path.write_bytes(program.to_bytes())
    return program


@pytest.mark.parametrize("name", MACHINES)
def test_devices_take_what_is_said(name: str, tmp_path: Path) -> None:
    small, large = tmp_path / "small.npu", tmp_path / "large.npu"
    stored(name, 8, 4, small)
    program = stored(name, 96, 64, large)
    found = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(small), str(large)], check=True, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    machine = program.machine_description()
    base = machine.dram.base_address
    image = program_image(program, program.image(base))
    said = host_bytes(machine, image.end_address - base, *(one.words for one in image.codes))
    taken = int(found.stdout)
    assert taken - HUGE_PAGES_BYTES < said < 2 * taken + HUGE_PAGES_BYTES
