"""Convolutions of which some windows lie in the padding alone: their padding is made in memory.

All other padding is neither sent nor multiplied; but a sum must meet one product at least.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import FixedConv, FixedPad
from tvm_npu.codegen.snowflake.plan.tiling import conv_shape
from tvm_npu.sim.snowflake.isa import WORD_BYTES


def with_padded_maps(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` with a padding layer in front of every such convolution."""
    layers: list[FixedLayer] = []
    shapes, scales = dict(fixed.shapes), dict(fixed.scales)
    for layer in fixed.layers:
        if isinstance(layer, FixedConv) and not _covers(layer, fixed):
            pad = _pad(layer)
            source = layer.inputs[0]
            shapes[pad.output] = _padded(chw(shapes[source]), pad)
            scales[pad.output] = scales[source]
            top, left, bottom, right = (min(0, one) for one in layer.padding)
            layer = replace(
                layer, inputs=(pad.output, *layer.inputs[1:]), padding=(top, left, bottom, right)
            )
            layers.append(pad)
        layers.append(layer)
    if len(layers) == len(fixed.layers):
        return fixed
    return replace(fixed, layers=tuple(layers), shapes=shapes, scales=scales)


def _covers(layer: FixedConv, fixed: FixedGraph) -> bool:
    """Every window touches the map."""
    if not any(layer.padding):
        return True
    source, target = fixed.shapes[layer.inputs[0]], fixed.shapes[layer.output]
    shape = conv_shape(conv_problem(layer, source, target, WORD_BYTES))
    return shape.rows.covers and shape.columns.covers


def _pad(layer: FixedConv) -> FixedPad:
    top, left, bottom, right = (max(0, one) for one in layer.padding)
    return FixedPad(
        f"{layer.name}.padding", layer.inputs[:1], (f"{layer.output}.padded",),
        (0, top, left), (0, bottom, right), (1, 1), 0, source=layer.source,
    )  # fmt: skip


def _padded(shape: tuple[int, int, int], pad: FixedPad) -> Shape:
    return tuple(
        extent + before + after
        for extent, before, after in zip(shape, pad.before, pad.after, strict=True)
    )
