"""What no plan of a region on an NMP beats, however its layers are joined.

Whatever runs as one layer, all multiply-accumulates are done, and what a region reads, its weights
and biases, and what it leaves cross the DRAM bus: the *compulsory traffic*. Tensors between layers
need not. The bound is the longer of

- the MACs over the reachable rate of all MAC units (``mac.efficiency`` of the peak), and
- the compulsory bytes over the best rate that the engines of all TLEs and the DRAM sustain, which
  is that of whole bursts without set-up.

That is Orojenesis' bound on data movement ("Mind the Gap: Attainable Data Movement and Operational
Intensity Bounds for Tensor Algorithms", Huang et al., 2024) for memories that hold everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.graph import FixedLayer
from tvm_npu.codegen.nmp.plan.block import BlockProblem
from tvm_npu.codegen.nmp.plan.window import FlatProblem
from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConv
from tvm_npu.codegen.ops.registry import layer_macs
from tvm_npu.codegen.passes.storage import Storage
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class Roofs:
    """Rates of a whole machine for one element size: MACs a cycle, bytes a cycle."""

    peak_macs: float
    reachable_macs: float
    dram_bytes: float
    engine_bytes: float

    @property
    def bytes(self) -> float:
        """The best rate of compulsory traffic."""
        return min(self.dram_bytes, self.engine_bytes)


def roofs(machine: NmpMachine, element_bytes: int) -> Roofs:
    peak = float(machine.macs_per_cycle(element_bytes) * machine.core_count)
    burst, dram, dme = machine.dram.burst_bytes, machine.dram, machine.dme
    latency = min(dme.burst_cycles, dme.linear_cycles)
    return Roofs(
        peak,
        peak * machine.mac.efficiency,
        burst / (dram.cas_cycles + burst / dram.bytes_per_cycle),
        machine.cores.tles * burst / (latency + burst / dme.bytes_per_cycle),
    )


@dataclass(frozen=True)
class GraphBound:
    """The two times, and the traffic."""

    mac_cycles: float
    traffic_cycles: float
    compulsory_bytes: int

    @property
    def cycles(self) -> float:
        return max(self.mac_cycles, self.traffic_cycles)


def graph_bound(planned: PlannedGraph, machine: NmpMachine) -> GraphBound:
    """Of the layers that a program of ``planned`` executes, apart or as one. Of what a layer reads
    of the region's inputs counts what is known to be needed: nothing where views lie between."""
    storage, given = planned.storage, set(planned.fixed.inputs)
    macs = 0.0
    moved = _bytes_of_ranges(storage, storage.outputs)
    read: dict[str, int] = {}
    for one in planned.layers:
        size = one.problem.element_bytes
        macs += layer_macs(one.layer, storage.shapes) / roofs(machine, size).reachable_macs
        moved += sum(
            conv.weight.size * size + len(conv.bias) * BIAS_BYTES for conv in _convs(one.layer)
        )
        for tensor in given.intersection(one.layer.inputs):
            needed = _elements_read(one, tensor, storage) * size
            read[tensor] = max(read.get(tensor, 0), needed)
    moved += sum(read.values())
    best = roofs(machine, 1).bytes
    return GraphBound(macs, moved / best, moved)


def _convs(layer: FixedLayer) -> Iterator[FixedConv]:
    """Those of which ``layer`` is made."""
    if isinstance(layer, FixedConv):
        yield layer
    elif isinstance(layer, FixedCascade):
        yield layer.conv
        if isinstance(layer.window, FixedConv):
            yield layer.window
    elif isinstance(layer, FixedBlock):
        yield from _convs(layer.head)
        yield layer.point


def _elements_read(one: PlannedLayer, tensor: str, storage: Storage) -> int:
    """Elements of one of its inputs that a layer cannot do without, as far as that is known."""
    whole = prod(storage.shapes[tensor])
    problem = one.problem.head if isinstance(one.problem, BlockProblem) else one.problem
    if isinstance(problem, FlatProblem):
        return whole
    if not isinstance(problem, ConvProblem):
        return 0
    if tensor != one.layer.inputs[0]:
        return whole  # a residual
    return problem.channels * prod(_extent_read(problem, axis) for axis in (0, 1))


def _extent_read(problem: ConvProblem, axis: int) -> int:
    """Rows (``axis`` 0) or columns (1) of the IFM that are looked at."""
    extent = (problem.rows, problem.columns)[axis]
    places: Iterable[int] = range(extent)
    window = problem.window
    if window is not None:
        out = range((window.rows, window.columns)[axis])
        places = touched(
            out, window.kernel[axis], window.stride[axis], 1, window.padding[axis], extent
        )
    return len(
        touched(
            places, problem.kernel[axis], problem.stride[axis], problem.dilation[axis],
            problem.padding[axis], (problem.in_rows, problem.in_columns)[axis],
        )
    )  # fmt: skip


def touched(
    places: Iterable[int], kernel: int, stride: int, dilation: int, before: int, in_extent: int
) -> set[int]:
    """Input positions along one axis that the windows of ``places`` look at, padding left out."""
    seen = {at * stride - before + k * dilation for at in places for k in range(kernel)}
    return {position for position in seen if 0 <= position < in_extent}


def _bytes_of_ranges(storage: Storage, tensors: Iterable[str]) -> int:
    """Bytes of the memory of ``tensors``, each once, also where they lie in each other."""
    total = end = 0
    for begin, size in sorted(
        (storage.offsets[tensor], prod(storage.shapes[tensor]) * storage.widths[tensor])
        for tensor in set(tensors)
    ):
        total += max(0, begin + size - max(begin, end))
        end = max(end, begin + size)
    return total
