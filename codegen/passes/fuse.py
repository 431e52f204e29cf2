"""Graph -> graph rewrites that merge primitive layers into what the machine does in one go.

Every rewrite is a function from a graph to a smaller or simpler one, or to None where it finds
nothing to do; `fuse` applies them in a fixed order until none applies. Tensor names survive: every
tensor of the result is a tensor of the source with the same values, so calibration ranges of
either graph serve both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tvm_npu.codegen.graph import FloatArray, Graph, Layer
from tvm_npu.codegen.graph.layer import renamed
from tvm_npu.codegen.ops import (
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    Pad,
    Pool,
    Reshape,
    ScaleShift,
)
from tvm_npu.codegen.ops.registry import check_shapes


def fuse(graph: Graph) -> Graph:
    """The fused graph: no `ScaleShift` is left, activations and residuals sit in their producers.

    The result computes the same outputs under the same names. Each source operator of a layer
    that an output depends on is remembered in the ``source`` of exactly one layer. Raises
    GraphError for layers that do not fit their tensors' shapes.
    """
    check_shapes(graph)
    while True:
        results = (rewrite(graph) for rewrite in REWRITES)
        result = next((result for result in results if result is not None), None)
        if result is None:
            return graph
        graph = result


class _Uses:
    """Who writes and who reads each tensor of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._outputs = frozenset(graph.outputs)
        self._producers = {tensor: layer for layer in graph.layers for tensor in layer.outputs}
        self._readers: dict[str, list[Layer]] = {}
        for layer in graph.layers:
            for tensor in layer.inputs:
                self._readers.setdefault(tensor, []).append(layer)

    def producer(self, tensor: str) -> Layer | None:
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> list[Layer]:
        return self._readers.get(tensor, [])

    def sole_reader(self, tensor: str) -> Layer | None:
        """The layer that alone reads the tensor, once, while no graph output needs it."""
        readers = self.readers(tensor)
        return readers[0] if len(readers) == 1 and tensor not in self._outputs else None

    def follower(self, layer: Layer) -> Layer | None:
        """The sole reader of all that ``layer`` makes; None where it makes several tensors."""
        return self.sole_reader(layer.output) if len(layer.outputs) == 1 else None


def _swap(graph: Graph, changes: Mapping[Layer, Layer | None]) -> Graph:
    """``graph`` with some layers replaced in place, or left out (None)."""
    layers = (changes.get(layer, layer) for layer in graph.layers)
    return graph.with_layers(layer for layer in layers if layer is not None)


def _is_open(layer: Layer | None) -> bool:
    """A convolution or dense layer to whose sums something can still be added."""
    return (
        isinstance(layer, Conv2d | Dense)
        and len(layer.inputs) == 1
        and layer.activation.is_identity
    )


def drop_dead(graph: Graph) -> Graph | None:
    """Layers that no output depends on.

    before: x -> conv -> y (output), x -> pool -> z
    after:  x -> conv -> y (output)
    """
    needed = set(graph.outputs)
    kept: list[Layer] = []
    for layer in reversed(graph.layers):
        if needed.intersection(layer.outputs):
            needed.update(layer.inputs)
            kept.append(layer)
    if len(kept) == len(graph.layers):
        return None
    return graph.with_layers(reversed(kept))


def identity_to_copy(graph: Graph) -> Graph | None:
    """A layout operation that moves nothing becomes a plain copy.

    before: x (8,) -> reshape -> y (8,); full channel slice; concatenation of one; zero padding
    after:  x -> copy -> y
    """
    for layer in graph.layers:
        if not isinstance(layer, Reshape | ChannelSlice | Concat | Pad) or len(layer.inputs) != 1:
            continue
        moves = isinstance(layer, Pad) and (any(layer.before) or any(layer.after))
        if not moves and graph.shapes[layer.inputs[0]] == graph.shapes[layer.output]:
            head = (layer.name, layer.inputs, layer.outputs)
            return _swap(graph, {layer: Elementwise(*head, "copy", source=layer.source)})
    return None


def drop_copy(graph: Graph) -> Graph | None:
    """A copy without a clip goes away, unless it gives a graph input or another output a second
    name as an output.

    before: x -> conv -> a -> copy -> b -> pool -> y
    after:  x -> conv -> a -> pool -> y        (b -> pool is the output: conv writes b)
    """
    uses = _Uses(graph)
    for layer in graph.layers:
        if not (
            isinstance(layer, Elementwise) and layer.op == "copy" and layer.activation.is_identity
        ):
            continue
        before, after = layer.inputs[0], layer.output
        producer = uses.producer(before)
        changes: dict[Layer, Layer | None] = {layer: None}
        if after in graph.outputs:
            if producer is None or before in graph.outputs:
                continue
            before, after = after, before
            changes[producer] = renamed(producer, after, before)
        for reader in uses.readers(after):
            if reader is not layer:
                changes[reader] = renamed(reader, after, before)
        heir = next(other for other in (producer, *uses.readers(layer.output)) if other)
        kept = changes.get(heir) or heir
        changes[heir] = replace(kept, source=kept.source + layer.source)
        return _swap(graph, changes)
    return None


def merge_reshapes(graph: Graph) -> Graph | None:
    """before: x -> reshape -> a -> reshape -> y
    after:  x -> reshape -> y
    """
    uses = _Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if isinstance(layer, Reshape) and isinstance(reader, Reshape):
            source = layer.source + reader.source
            return _swap(
                graph, {layer: None, reader: replace(reader, inputs=layer.inputs, source=source)}
            )
    return None


def merge_pads(graph: Graph) -> Graph | None:
    """before: x -> pad(crops and strides rows, columns) -> a -> pad(channels only) -> y
    after:  x -> pad -> y                              (a padded shortcut of a residual network)
    """
    uses = _Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if not isinstance(layer, Pad) or not isinstance(reader, Pad):
            continue
        spatial = (*reader.before[1:], *reader.after[1:])
        fills = any(amount > 0 for amount in (*layer.before, *layer.after))
        if fills or layer.before[0] or layer.after[0] or any(spatial) or reader.stride != (1, 1):
            continue
        merged = replace(
            reader,
            inputs=layer.inputs,
            before=(reader.before[0], *layer.before[1:]),
            after=(reader.after[0], *layer.after[1:]),
            stride=layer.stride,
            source=layer.source + reader.source,
        )
        return _swap(graph, {layer: None, reader: merged})
    return None


def merge_affines(graph: Graph) -> Graph | None:
    """before: x -> affine(s, b) -> a -> affine(t, c) -> y
    after:  x -> affine(s * t, b * t + c) -> y
    """
    uses = _Uses(graph)
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
            return _swap(graph, {layer: None, reader: merged})
    return None


def affine_into_producer(graph: Graph) -> Graph | None:
    """before: x -> conv(w, b) -> a -> affine(s, c) -> y     (a is read by nothing else)
    after:  x -> conv(w * s, b * s + c) -> y               (dense layers likewise)
    """
    uses = _Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if isinstance(layer, Conv2d | Dense) and _is_open(layer) and isinstance(reader, ScaleShift):
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
            return _swap(graph, {layer: folded, reader: None})
    return None


def affine_into_reader(graph: Graph) -> Graph | None:
    """before: x -> affine(s, c) -> a -> conv(w, b) -> y
    after:  x -> conv(w * s, b + sum(w * c)) -> y

    With padding only if c is 0: the padding is added behind the affine.
    """
    uses = _Uses(graph)
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
        return _swap(graph, {layer: None, reader: folded})
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
            return _swap(graph, {layer: conv})
    return None


def fuse_activation(graph: Graph) -> Graph | None:
    """before: x -> conv -> a -> copy(clip) -> y
    after:  x -> conv(clip) -> y          (dense, pooling and element-wise layers likewise)
    """
    uses = _Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if (
            isinstance(layer, Conv2d | Dense | Pool | Elementwise)
            and isinstance(reader, Elementwise)
            and reader.op == "copy"
        ):
            both = layer.activation.then(reader.activation)
            if both is None:
                continue
            fused = replace(
                layer,
                outputs=reader.outputs,
                activation=both,
                source=layer.source + reader.source,
            )
            return _swap(graph, {layer: fused, reader: None})
    return None


def fuse_residual(graph: Graph) -> Graph | None:
    """before: x -> conv -> a; add(a, b) clip -> y       (a is read by nothing else)
    after:  (x, b) -> conv, residual b, clip -> y      at the place of the addition

    Where both sides qualify the one that is made later takes the other as its residual.
    """
    uses = _Uses(graph)
    order = {layer: index for index, layer in enumerate(graph.layers)}
    for layer in graph.layers:
        if not isinstance(layer, Elementwise) or layer.op != "add":
            continue
        producers = [
            producer
            for tensor in layer.inputs
            if uses.sole_reader(tensor) is layer
            and (producer := uses.producer(tensor)) is not None
            and _is_open(producer)
        ]
        if not producers:
            continue
        conv = max(producers, key=order.__getitem__)
        assert isinstance(conv, Conv2d | Dense)
        other = layer.inputs[1 - layer.inputs.index(conv.output)]
        fused = replace(
            conv,
            inputs=(*conv.inputs, other),
            outputs=layer.outputs,
            activation=layer.activation,
            source=conv.source + layer.source,
        )
        return _swap(graph, {conv: None, layer: fused})
    return None


def fuse_padding(graph: Graph) -> Graph | None:
    """before: x -> pad(spatial, zeros) -> a -> conv(padding p) -> y
    after:  x -> conv(padding p + pad) -> y

    Not where a crop would come before the convolution's own padding.
    """
    uses = _Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if not isinstance(layer, Pad) or not isinstance(reader, Conv2d):
            continue
        amounts = (*layer.before[1:], *layer.after[1:])
        if (
            reader.inputs[0] != layer.output
            or layer.value != 0.0
            or layer.stride != (1, 1)
            or layer.before[0]
            or layer.after[0]
            or any(a < 0 < p for a, p in zip(amounts, reader.padding, strict=True))
        ):
            continue
        top, left, bottom, right = (a + p for a, p in zip(amounts, reader.padding, strict=True))
        fused = replace(
            reader,
            inputs=(*layer.inputs, *reader.inputs[1:]),
            padding=(top, left, bottom, right),
            source=layer.source + reader.source,
        )
        return _swap(graph, {layer: None, reader: fused})
    return None


REWRITES: tuple[Callable[[Graph], Graph | None], ...] = (
    drop_dead,
    identity_to_copy,
    drop_copy,
    merge_reshapes,
    merge_pads,
    merge_affines,
    affine_into_producer,
    affine_into_reader,
    fuse_padding,
    fuse_activation,
    fuse_residual,
    affine_to_depthwise,
)
"""In the order in which they are tried; the first that applies does so, then all over again."""
