"""Rewrites that put scales and shifts of channels into the layers before or behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.graph import FloatArray, Graph, Layer
from tvm_npu.codegen.ops import Conv2d, Dense, ScaleShift, TransposedConv
from tvm_npu.codegen.passes.rewriting import Uses, swap


def is_open(layer: Layer | None) -> bool:
    """A convolution or dense layer whose sums can still be scaled and shifted."""
    return (
        isinstance(layer, Conv2d | Dense | TransposedConv)
        and len(layer.inputs) == 1
        and layer.activation.is_identity
    )


def merge_affines(graph: Graph) -> Graph | None:
    """before: x -> affine(s, b) -> a -> affine(t, c) -> y
    after:  x -> affine(s * t, b * t + c) -> y
    """
    uses = Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if isinstance(layer, ScaleShift) and isinstance(reader, ScaleShift):
            merged = replace(
                reader,
                inputs=layer.inputs,
                scale=layer.scale * reader.scale,
                bias=_affine(layer.bias, reader),
                source=layer.source + reader.source,
            )
            return swap(graph, {layer: None, reader: merged})
    return None


def affine_into_producer(graph: Graph) -> Graph | None:
    """before: x -> conv(w, b) -> a -> affine(s, c) -> y     (a is read by nothing else)
    after:  x -> conv(w * s, b * s + c) -> y               (dense layers likewise)
    """
    uses = Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if is_open(layer) and isinstance(reader, ScaleShift):
            assert isinstance(layer, Conv2d | Dense | TransposedConv)
            weight = layer.weight
            if (reader.scale != 1).any():  # a mere bias copies no weights
                weight = weight * reader.scale.reshape(-1, *(1,) * (weight.ndim - 1))
            folded = replace(
                layer,
                outputs=reader.outputs,
                weight=weight,
                bias=_affine(layer.bias, reader),
                source=layer.source + reader.source,
            )
            return swap(graph, {layer: folded, reader: None})
    return None


def affine_into_reader(graph: Graph) -> Graph | None:
    """before: x -> affine(s, c) -> a -> conv(w, b) -> y
    after:  x -> conv(w * s, b + sum(w * c)) -> y

    With padding only if c is 0: the padding is added behind the affine.
    """
    uses = Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if not isinstance(layer, ScaleShift) or not isinstance(reader, Conv2d | Dense):
            continue
        if reader.inputs[0] != layer.output:
            continue
        groups = 1
        if isinstance(reader, Conv2d):
            groups = reader.groups
            if layer.bias.any() and any(amount > 0 for amount in reader.padding):
                continue
        constants = [_per_weight(v, reader.weight, groups) for v in (layer.scale, layer.bias)]
        products = (reader.weight.astype(np.float64) * constants[1]).reshape(len(reader.bias), -1)
        folded = replace(
            reader,
            inputs=(*layer.inputs, *reader.inputs[1:]),
            weight=reader.weight * constants[0],
            bias=(reader.bias + products.sum(axis=1)).astype(np.float32),
            source=layer.source + reader.source,
        )
        return swap(graph, {layer: None, reader: folded})
    return None


def _affine(bias: FloatArray, affine: ScaleShift) -> FloatArray:
    return (bias.astype(np.float64) * affine.scale + affine.bias).astype(np.float32)


def _per_weight(constants: FloatArray, weight: FloatArray, groups: int) -> FloatArray:
    """Constants [N] of input channels laid over a weight [M, N / groups, ...]."""
    by_filter = np.repeat(constants.reshape(groups, -1), len(weight) // groups, axis=0)
    return by_filter.reshape(*by_filter.shape, *(1,) * (weight.ndim - 2))


def affine_to_depthwise(graph: Graph) -> Graph | None:
    """before: x -> affine(s, c) -> y
    after:  x -> conv 1x1, groups = C, weight s, bias c -> y
    """
    for layer in graph.layers:
        if isinstance(layer, ScaleShift):
            conv = Conv2d(
                layer.name,
                layer.inputs,
                layer.outputs,
                layer.scale.reshape(-1, 1, 1, 1),
                layer.bias,
                groups=len(layer.scale),
                source=layer.source,
            )
            return swap(graph, {layer: conv})
    return None
