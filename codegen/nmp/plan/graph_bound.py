"""What no plan of a region on an NMP beats, however its layers are joined.

Whatever runs as one layer, all multiply-accumulates are done (of a convolution that a window
operation alone reads, and that can be one layer with it, those where windows look), and what a
region reads, its weights and biases, and what it leaves cross the DRAM bus: the *compulsory
traffic*. Tensors between layers need not. The bound is the longer of

- the MACs over the reachable rate of all MAC units (``mac.efficiency`` of the peak), and
- the compulsory bytes over the best rate that the engines of all TLEs and the DRAM sustain, which
  is that of whole bursts without set-up.

That is Orojenesis' bound on data movement ("Mind the Gap: Attainable Data Movement and Operational
Intensity Bounds for Tensor Algorithms", Huang et al., 2024) for memories that hold everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.graph_bound import GraphBound, touched
from tvm_npu.codegen.nmp.plan.block import BlockProblem
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.window import FlatProblem
from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConv, FixedConvSum
from tvm_npu.codegen.ops.block import heads_of
from tvm_npu.codegen.passes.cascades import window_of
from tvm_npu.codegen.passes.storage import Storage
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem, Window
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


def graph_bound(planned: PlannedGraph, machine: NmpMachine) -> GraphBound:
    """Of the layers that a program of ``planned`` executes, apart or as one. Of what a layer reads
    of the region's inputs counts what is known to be needed: nothing where views lie between."""
    storage, given = planned.storage, set(planned.fixed.inputs)
    behind = _windows_behind(planned.fixed)
    macs = 0.0
    moved = _bytes_of_ranges(storage, storage.outputs)
    read: dict[str, int] = {}
    for one in planned.layers:
        size = one.problem.element_bytes
        window = behind.get(one.layer.outputs[0])
        for conv, positions in _convs(one, window):
            macs += conv.weight.size * positions / roofs(machine, size).reachable_macs
            moved += conv.weight.size * size + len(conv.bias) * BIAS_BYTES
        for tensor in given.intersection(one.layer.inputs):
            needed = _elements_read(one, tensor, storage, window) * size
            read[tensor] = max(read.get(tensor, 0), needed)
    moved += sum(read.values())
    best = roofs(machine, 1).bytes
    return GraphBound(macs, moved / best, moved)


def _windows_behind(fixed: FixedGraph) -> dict[str, Window]:
    """By tensor, the window operation that alone reads it."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    found = {}
    for layer in fixed.layers:
        window = window_of(layer, fixed.shapes)
        tensor = layer.inputs[0] if layer.inputs else ""
        if window is not None and uses[tensor] == 1 and tensor not in fixed.outputs:
            found[tensor] = window
    return found


def _convs(one: PlannedLayer, behind: Window | None) -> Iterator[tuple[FixedConv, int]]:
    """Those of which a layer is made, and at how many positions each has to be computed where the
    window operation ``behind`` reads the layer's result."""
    layer, problem = one.layer, _head(one.problem)
    if isinstance(layer, FixedConv):
        yield layer, _positions((problem.rows, problem.columns), behind)
    elif isinstance(layer, FixedConvSum):
        positions = _positions((problem.rows, problem.columns), behind)
        yield from ((conv, positions) for conv in (layer.first, layer.second))
    elif isinstance(layer, FixedCascade):
        yield from _cascaded(layer, problem, behind)
    elif isinstance(layer, FixedBlock):
        window = problem.window
        for head in heads_of(layer):
            if isinstance(head, FixedCascade):
                yield from _cascaded(head, problem, None)
            else:
                yield head, problem.rows * problem.columns
        rows, columns = (window or problem).rows, (window or problem).columns
        yield layer.point, _positions((rows, columns), behind)


def _cascaded(
    layer: FixedCascade, problem: ConvProblem, behind: Window | None
) -> Iterator[tuple[FixedConv, int]]:
    window = problem.window
    assert window is not None
    yield layer.conv, _positions((problem.rows, problem.columns), window)
    if isinstance(layer.window, FixedConv):
        yield layer.window, _positions((window.rows, window.columns), behind)


def _head(problem: Any) -> Any:
    if isinstance(problem, SumProblem):
        return problem.second
    return problem.head if isinstance(problem, BlockProblem) else problem


def _positions(extents: tuple[int, int], window: Window | None) -> int:
    """Rows times columns that are looked at."""
    return prod(len(_looked_at(extents[axis], window, axis)) for axis in (0, 1))


def _looked_at(extent: int, window: Window | None, axis: int) -> Collection[int]:
    """Rows (``axis`` 0) or columns (1) of a result that ``window`` looks at; None: all."""
    if window is None:
        return range(extent)
    out = range((window.rows, window.columns)[axis])
    return touched(out, window.kernel[axis], window.stride[axis], 1, window.padding[axis], extent)


def _elements_read(
    one: PlannedLayer, tensor: str, storage: Storage, behind: Window | None
) -> int:
    """Elements of one of its inputs that a layer cannot do without, as far as that is known."""
    whole = prod(storage.shapes[tensor])
    problem = _head(one.problem)
    if isinstance(one.problem, SumProblem):
        problem = one.problem.first if tensor == one.layer.inputs[0] else one.problem.second
        return problem.channels * prod(_extent_read(problem, behind, axis) for axis in (0, 1))
    if isinstance(problem, FlatProblem):
        return whole
    if not isinstance(problem, ConvProblem):
        return 0
    if tensor != one.layer.inputs[0]:
        return whole  # a residual
    if isinstance(one.problem, BlockProblem):
        behind = None
    window = problem.window or behind
    return problem.channels * prod(_extent_read(problem, window, axis) for axis in (0, 1))


def _extent_read(problem: ConvProblem, window: Window | None, axis: int) -> int:
    """Rows (``axis`` 0) or columns (1) of the IFM that are looked at."""
    return len(
        touched(
            _looked_at((problem.rows, problem.columns)[axis], window, axis),
            problem.kernel[axis], problem.stride[axis], problem.dilation[axis],
            problem.padding[axis], (problem.in_rows, problem.in_columns)[axis],
        )
    )  # fmt: skip


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
