"""Graphs that give scales on machines that cannot use them: what a scale's integers cut is clipped.

    before: input at a scale of 0 to 5 -> conv
    after:  input -> copy, clip 0 to 5 -> conv

A quantized model needs no ReLU where the integers of a tensor end at 0. Q-points for the range of a
scale hold more than it, and so cut nothing: a copy clips what nobody has clipped before.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.graph import Clip, Graph, Layer, Scale, Shape
from tvm_npu.codegen.graph.layer import renamed
from tvm_npu.codegen.ops import Elementwise
from tvm_npu.codegen.ops.registry import tied_tensors
from tvm_npu.codegen.passes.calibrate import Ranges, TensorRange
from tvm_npu.codegen.passes.scale_ranges import is_held, range_of, with_scale_ranges


def without_scales(graph: Graph, ranges: Ranges) -> tuple[Graph, Ranges]:
    """The graph with none of the scales that it gives, whose tensors keep to their ranges, and the
    ranges of these in place of what was calibrated."""
    known = dict(with_scale_ranges(graph, ranges).tensors)
    shapes: dict[str, Shape] = dict(graph.shapes)
    layers: list[Layer] = []
    held: dict[str, TensorRange] = {}
    names: dict[str, str] = {}

    def clipped(source: str, made: str, scale: Scale, layer: Layer | None) -> Elementwise:
        entry = range_of(scale)
        shapes[source] = shapes[made] = graph.shapes[source if layer is None else made]
        known[source] = known[made] = held[made] = entry
        sources = () if layer is None else layer.source
        clip = Clip(entry.low, entry.high)
        name = f"{source if layer is None else layer.name}@held"
        return Elementwise(name, (source,), (made,), "copy", clip, source=sources)

    for tensor in graph.inputs:
        if tensor in graph.scales:
            names[tensor] = f"{tensor}@held"
            layers.append(clipped(tensor, names[tensor], graph.scales[tensor], None))
    for layer in graph.layers:
        inputs = tuple(names.get(tensor, tensor) for tensor in layer.inputs)
        made, behind = replace(layer, inputs=inputs), []
        for tensor in layer.outputs:
            scale = graph.scales.get(tensor)
            if scale is None:
                continue
            if _keeps_to(made, scale, held):
                held[tensor] = range_of(scale)
            else:
                made = renamed(made, tensor, f"{tensor}@open")
                behind.append(clipped(f"{tensor}@open", tensor, scale, layer))
        layers += [made, *behind]
    return replace(graph.with_layers(layers, shapes), scales={}), Ranges(known)


def _keeps_to(layer: Layer, scale: Scale, held: dict[str, TensorRange]) -> bool:
    """Whether all that ``layer`` makes is in the range of a scale: it clips, or moves or averages
    what is."""
    activation = getattr(layer, "activation", None)
    if isinstance(activation, Clip):
        if is_held(activation.low, scale) and is_held(activation.high, scale):
            return True
        if not activation.is_identity:
            return False
    elif activation is not None:
        return False
    tensors = {*layer.inputs, *layer.outputs}
    if not any(tensors.issubset(tied) for tied in tied_tensors(layer)):
        return False
    entries = [held.get(tensor) for tensor in layer.inputs]
    return all(
        entry is not None and is_held(entry.low, scale) and is_held(entry.high, scale)
        for entry in entries
    )
