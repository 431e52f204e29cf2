"""One region's fixed graphs for many machines, made once for all that they do not differ for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, in_parts, quantized
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.ops import Pool
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

T = TypeVar("T")
MOST_KEPT = 4
"""Graphs of a region, with their weights."""


class SharedGraphs:
    """Of a float graph with its ranges."""

    def __init__(self, graph: Graph, ranges: Ranges) -> None:
        self._graph, self._ranges = graph, ranges
        self._fused: dict[Hashable, Graph] = {}
        self._fixed: dict[Hashable, FixedGraph] = {}

    def fixed(self, machine: MachineDescription, precision: Precision) -> FixedGraph:
        """What `codegen.compile.fixed_graph` makes. It depends on the layers that the machine has
        code for, the parts that its memories cut pools into, and its requantize step."""
        key, parted = self._parted(machine, precision)
        options = CompileOptions(precision)
        return _kept(self._fixed, key, lambda: quantized(parted, self._ranges, machine, options))

    def key(self, machine: MachineDescription, precision: Precision) -> Hashable:
        """Equal for machines that have the same graph."""
        return self._parted(machine, precision)[0]

    def _parted(
        self, machine: MachineDescription, precision: Precision
    ) -> tuple[Hashable, Graph]:
        made = backend_of(machine).made(machine)
        fused = _kept(self._fused, made, lambda: fuse(self._graph, made))
        parted = in_parts(fused, machine, precision)
        pools = tuple(
            (layer.name, layer.kernel) for layer in parted.layers if isinstance(layer, Pool)
        )
        return (made, precision, machine.requantization(precision), pools), parted


def _kept(cache: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    if key not in cache:
        while len(cache) >= MOST_KEPT:
            del cache[next(iter(cache))]
        cache[key] = make()
    return cache[key]
