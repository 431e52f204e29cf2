"""Graphs that machines share: those of `fixed_graph`, made once."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.compile import CompileOptions, fixed_graph
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.ops import FixedPool, Pool
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.shared_graphs import SharedGraphs
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

NMP = load_nmp_machine("nmp-4x8")


def with_mb0(mb0_bytes: int) -> NmpMachine:
    memories = NMP.memories.model_copy(update={"mb0_bytes": mb0_bytes})
    return NMP.model_copy(update={"memories": memories, "frequency_mhz": 500.0})


def kernels(machine: NmpMachine, shared: SharedGraphs) -> list[tuple[int, int]]:
    return [
        layer.kernel
        for layer in shared.fixed(machine, "int16").layers
        if isinstance(layer, FixedPool)
    ]


def test_machines_share_a_graph_unless_it_depends_on_them() -> None:
    layer = Pool("l", ("x",), ("y",), "max", (48, 48))
    graph = Graph((layer,), {"x": (3, 48, 48), "y": (3, 1, 1)}, ("x",), ("y",))
    x = np.random.default_rng(1).normal(size=(1, 3, 48, 48)).astype(np.float32)
    ranges = calibrate(graph, [{"x": x}])
    shared = SharedGraphs(graph, ranges)
    assert shared.fixed(with_mb0(8192), "int16") is shared.fixed(NMP, "int16")
    found = set()
    for size in (8192, 4096, 2048, 1024):
        machine = with_mb0(size)
        own = fixed_graph(graph, ranges, machine, CompileOptions("int16"))
        wanted = [one.kernel for one in own.layers if isinstance(one, FixedPool)]
        assert kernels(machine, shared) == wanted
        found.add(tuple(wanted))
    assert len(found) >= 3  # one pool, and two of different parts
