"""From a fused float graph and calibrated ranges to the fixed-point graph.

Tensors' scales come from `codegen.passes.qpoints`, ranges from `codegen.passes.calibrate`; each
operator (`codegen.ops`) turns its layers into integers.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import CutTermsWarning, QuantizationError
from tvm_npu.codegen.freed_memory import Tidying, array_bytes
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Graph, Layer, Scale
from tvm_npu.codegen.graph.fixed import Width
from tvm_npu.codegen.least import LeastNeeds
from tvm_npu.codegen.ops.operator import Numbers
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.averages import with_weighed_averages
from tvm_npu.codegen.passes.calibrate import (
    Octave,
    Ranges,
    TensorRange,
    calibrate,
    synthetic_samples,
)
from tvm_npu.codegen.passes.precisions import with_int16_layers
from tvm_npu.codegen.passes.qpoints import assign_scales
from tvm_npu.codegen.passes.scales import scales_for_machine
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision

__all__ = [
    "Formats", "Int16Layers", "NO_INT16", "Octave", "Precision", "Prepared", "Ranges",
    "TensorRange", "calibrate", "prepare", "quantize", "quantize_taken", "synthetic_samples",
]  # fmt: skip

@dataclass(frozen=True)
class Int16Layers:
    """Layers of an int8 graph that compute in int16, by their names or those of operators that they
    came from, and what the machine's requantize step can do with them."""

    names: Collection[str] = ()
    requantization: Requantization = Q_POINTS_ONLY


NO_INT16 = Int16Layers()


@dataclass(frozen=True)
class Prepared:
    """A float graph whose layers are quantized one by one: averages that keep their digits, copies
    between widths. ``widths`` has the bytes of an element of each tensor."""

    graph: Graph
    ranges: Ranges
    widths: Mapping[str, Width]
    element_bytes: Width


def prepare(
    graph: Graph,
    ranges: Ranges,
    precision: Precision,
    int16: Int16Layers = NO_INT16,
    requantization: Requantization = Q_POINTS_ONLY,
    needs: LeastNeeds | None = None,
) -> Prepared:
    """What `quantize` makes integers of, for a machine with such ``needs``. QuantizationError
    for an unknown precision."""
    if precision not in ELEMENT_BYTES:
        raise QuantizationError(f"unknown precision {precision!r}; known are {list(ELEMENT_BYTES)}")
    element_bytes = ELEMENT_BYTES[precision]
    step = Q_POINTS_ONLY if int16.names else requantization
    graph, ranges = scales_for_machine(graph, ranges, step)
    graph = with_weighed_averages(graph, ranges, element_bytes, needs)
    if precision == "int16" or not int16.names:
        states = (state.tensor for layer in graph.layers for state in layer.states)
        same = dict.fromkeys((*graph.tensors, *states), element_bytes)
        return Prepared(graph, ranges, same, element_bytes)
    made = with_int16_layers(graph, ranges, int16.names)
    return Prepared(made.graph, made.ranges, made.widths, element_bytes)


@dataclass(frozen=True)
class Formats:
    """The formats of a graph's tensors; ``requantization`` is that of the machine for layers of
    ``element_bytes``, ``int16`` the one for layers in int16 among them."""

    scales: Mapping[str, Scale]
    widths: Mapping[str, Width]
    element_bytes: Width
    requantization: Requantization
    int16: Requantization

    def fixed(self, layer: Layer) -> FixedLayer:
        """``layer`` as integers of these formats."""
        width, made = self.widths[layer.inputs[0]], self.widths[layer.outputs[0]]
        step = self.requantization if width == self.element_bytes else self.int16
        changed = None if made == width else made
        fixed = operator_of(layer).quantize(layer, Numbers(self.scales, width, step, changed))
        if changed is None:
            return fixed
        if not operator_of(layer).may_widen:
            raise QuantizationError(
                f"layer {layer.name!r} keeps the width of its operands ({width} bytes); "
                f"{layer.outputs[0]!r} has {made}"
            )
        return replace(fixed, out_bytes=changed)


def formats(
    prepared: Prepared, requantization: Requantization, int16: Requantization = Q_POINTS_ONLY
) -> Formats:
    """Scales by ranges and ties. Raises as `quantize`."""
    graph = prepared.graph
    scales = assign_scales(graph, prepared.ranges, prepared.widths)
    return Formats(scales, prepared.widths, prepared.element_bytes, requantization, int16)


def quantize(
    graph: Graph,
    ranges: Ranges,
    precision: Precision,
    requantization: Requantization = Q_POINTS_ONLY,
    int16: Int16Layers = NO_INT16,
    needs: LeastNeeds | None = None,
) -> FixedGraph:
    """The fixed-point graph of a fused ``graph``, for machines with such a requantize step and
    memories (``needs``; None: any layer fits); with int8, ``int16`` are layers that compute in
    int16.

    ``ranges`` must cover every tensor whose scale the graph does not give. Where the machine's step
    lacks what a given scale needs, and with ``int16``, Q-points for the ranges of all given scales
    take their places. Deterministic. Raises QuantizationError for a missing or unusable range,
    weights that are not finite, an unknown precision and layers that `fuse` should have removed. A
    CutTermsWarning names a layer with terms that its integers cannot hold.
    """
    prepared = prepare(graph, ranges, precision, int16, requantization, needs)
    return quantize_taken([prepared], requantization, int16.requantization)


def quantize_taken(
    prepared: list[Prepared], requantization: Requantization, int16: Requantization
) -> FixedGraph:
    """The fixed-point graph of the one in ``prepared``, which is taken out of it: float weights of
    its own, as batch norms make them, go layer by layer. Warns and raises as `quantize`."""
    taken = prepared.pop()
    found = formats(taken, requantization, int16)
    _warn_of_cuts(taken.graph, taken.ranges)
    empty = fixed_graph_of(taken, found.scales, ())
    left = list(reversed(taken.graph.layers))
    del taken
    tidying = Tidying()
    layers = []
    while left:
        layers.append(found.fixed(left[-1]))
        tidying.freed(array_bytes(left.pop()))
    return replace(empty, layers=tuple(layers))


def fixed_graph_of(
    prepared: Prepared, scales: Mapping[str, Scale], layers: tuple[FixedLayer, ...]
) -> FixedGraph:
    """The fixed-point graph of these layers; one whose layers are all int16 is an int16 graph."""
    graph, widths = prepared.graph, prepared.widths
    only = {widths[layer.inputs[0]] for layer in graph.layers}
    base = only.pop() if len(only) == 1 else prepared.element_bytes
    others = {tensor: widths[tensor] for tensor in graph.inputs if widths[tensor] != base}
    return FixedGraph(
        layers, dict(graph.shapes), graph.inputs, graph.outputs, dict(scales), base, graph.name,
        others,
    )  # fmt: skip


def _warn_of_cuts(graph: Graph, ranges: Ranges) -> None:
    for layer in graph.layers:
        cut = operator_of(layer).cut_terms(layer)
        if cut is None or cut.name not in ranges:
            continue
        found = ranges[cut.name]
        if max(-found.low, found.high) > cut.limit:
            warnings.warn(
                f"layer {layer.name!r} adds terms from {found.low:.4g} to {found.high:.4g}, which "
                f"are cut at -{cut.limit:g} and {cut.limit:g} before: its results change. Scale "
                "its weights, leave the layer to the CPU, or check what `tvm-npu accuracy` says",
                CutTermsWarning,
                stacklevel=4,
            )
