"""Graph -> graph rewrites that merge primitive layers into what the machine does in one go.

Every rewrite is a function from a graph to a smaller or simpler one, or to None where it finds
nothing to do; `fuse` applies them in a fixed order until none applies. Tensor names survive: every
tensor of the result is a tensor of the source with the same values, so calibration ranges of
either graph serve both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tvm_npu.codegen.graph import Graph, Layer
from tvm_npu.codegen.graph.layer import renamed
from tvm_npu.codegen.ops import (
    Broadcast,
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    MaxFeatureMap,
    Maximum,
    Pad,
    Pool,
    ReflectPad,
    Reshape,
    TableFunction,
    TransposedConv,
)
from tvm_npu.codegen.ops.registry import check_shapes, emitted_layers
from tvm_npu.codegen.passes.fold_affine import (
    affine_into_producer,
    affine_into_reader,
    affine_to_depthwise,
    is_open,
    merge_affines,
)
from tvm_npu.codegen.passes.pointwise import join_pointwise
from tvm_npu.codegen.passes.rewriting import Uses, swap
from tvm_npu.codegen.passes.slopes import (
    ChannelSlopes,
    OneSlope,
    fuse_channel_slopes,
    fuse_one_slope,
)


def fuse(graph: Graph, known: Collection[type] | None = None) -> Graph:
    """The fused graph: no `ScaleShift` is left, activations and residuals sit in their producers.
    ``known`` is what a machine has code for (`Backend.made`; None: all): what it has none for is
    not made of others.

    The result computes the same outputs under the same names. Each source operator of a layer
    that an output depends on is remembered in the ``source`` of exactly one layer. Raises
    GraphError for layers that do not fit their tensors' shapes.
    """
    check_shapes(graph)
    while True:
        results = (
            rewrite(graph)
            for rewrite in REWRITES
            if known is None or MADE.get(rewrite, frozenset()) <= frozenset(known)
        )
        result = next((result for result in results if result is not None), None)
        if result is None:
            return graph
        graph = result


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
    layouts = (Reshape, ChannelSlice, Concat, Pad, ReflectPad)
    for layer in graph.layers:
        if not isinstance(layer, layouts) or len(layer.inputs) != 1:
            continue
        moves = isinstance(layer, Pad) and (any(layer.before) or any(layer.after))
        if not moves and graph.shapes[layer.inputs[0]] == graph.shapes[layer.output]:
            head = (layer.name, layer.inputs, layer.outputs)
            return swap(graph, {layer: Elementwise(*head, "copy", source=layer.source)})
    return None


def drop_copy(graph: Graph) -> Graph | None:
    """A copy without a clip goes away, unless it gives a graph input or another output a second
    name as an output.

    before: x -> conv -> a -> copy -> b -> pool -> y
    after:  x -> conv -> a -> pool -> y        (b -> pool is the output: conv writes b)
    """
    uses = Uses(graph)
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
        return swap(graph, changes)
    return None


def merge_reshapes(graph: Graph) -> Graph | None:
    """before: x -> reshape -> a -> reshape -> y
    after:  x -> reshape -> y
    """
    uses = Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if isinstance(layer, Reshape) and isinstance(reader, Reshape):
            source = layer.source + reader.source
            return swap(
                graph, {layer: None, reader: replace(reader, inputs=layer.inputs, source=source)}
            )
    return None


def merge_pads(graph: Graph) -> Graph | None:
    """before: x -> pad(crops and strides rows, columns) -> a -> pad(channels only) -> y
    after:  x -> pad -> y                              (a padded shortcut of a residual network)
    """
    uses = Uses(graph)
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
        return swap(graph, {layer: None, reader: merged})
    return None


WITH_ACTIVATION = (
    Conv2d, Dense, Pool, Elementwise, Broadcast, TransposedConv, Maximum, MaxFeatureMap,
)  # fmt: skip


def fuse_activation(graph: Graph) -> Graph | None:
    """before: x -> conv -> a -> copy(clip) -> y
    after:  x -> conv(clip) -> y          (dense, pooling and element-wise layers likewise)
    """
    uses = Uses(graph)
    for layer in graph.layers:
        reader = uses.follower(layer)
        if (
            isinstance(layer, WITH_ACTIVATION)
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
            return swap(graph, {layer: fused, reader: None})
    return None


def fuse_residual(graph: Graph) -> Graph | None:
    """before: x -> conv -> a; add(a, b) clip -> y       (a is read by nothing else)
    after:  (x, b) -> conv, residual b, clip -> y      at the place of the addition

    Where both sides qualify the one that is made later takes the other as its residual.
    """
    uses = Uses(graph)
    order = {layer: index for index, layer in enumerate(graph.layers)}
    for layer in graph.layers:
        if not isinstance(layer, Elementwise) or layer.op != "add":
            continue
        producers = [
            producer
            for tensor in layer.inputs
            if uses.sole_reader(tensor) is layer
            and isinstance(producer := uses.producer(tensor), Conv2d | Dense)
            and is_open(producer)
        ]
        if not producers:
            continue
        conv = max(producers, key=order.__getitem__)
        other = layer.inputs[1 - layer.inputs.index(conv.output)]
        fused = replace(
            conv,
            inputs=(*conv.inputs, other),
            outputs=layer.outputs,
            activation=layer.activation,
            source=conv.source + layer.source,
        )
        return swap(graph, {conv: None, layer: fused})
    return None


def fuse_padding(graph: Graph) -> Graph | None:
    """before: x -> pad(spatial, zeros) -> a -> conv(padding p) -> y
    after:  x -> conv(padding p + pad) -> y

    Not where a crop would come before the convolution's own padding.
    """
    uses = Uses(graph)
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
        return swap(graph, {layer: None, reader: fused})
    return None


def merge_feature_map(graph: Graph) -> Graph | None:
    """before: x -> first half of the channels -> a, x -> second half -> b; maximum(a, b) -> y
    after:  x -> max feature map -> y
    """
    uses = Uses(graph)
    for layer in graph.layers:
        if not isinstance(layer, Maximum):
            continue
        halves = [
            half
            for tensor in layer.inputs
            if isinstance(half := uses.producer(tensor), ChannelSlice)
        ]
        channels = graph.shapes[layer.output][0]
        whole = halves[0].inputs if halves else ()
        is_cut = sorted(half.begin for half in halves) == [0, channels]
        if not is_cut or halves[1].inputs != whole or graph.shapes[whole[0]][0] != 2 * channels:
            continue
        gone = [half for half in halves if uses.follower(half) is layer]
        source = tuple(name for half in gone for name in half.source) + layer.source
        made = MaxFeatureMap(
            layer.name, whole, layer.outputs, layer.activation, source=source
        )
        return swap(graph, {**dict.fromkeys(gone), layer: made})
    return None


Rewrite = Callable[[Graph], Graph | None]
REWRITES: tuple[Rewrite, ...] = (
    drop_dead,
    join_pointwise,
    fuse_one_slope,
    fuse_channel_slopes,
    identity_to_copy,
    drop_copy,
    merge_reshapes,
    merge_pads,
    merge_affines,
    affine_into_producer,
    affine_into_reader,
    merge_feature_map,
    fuse_padding,
    fuse_activation,
    fuse_residual,
    affine_to_depthwise,
)
"""In the order in which they are tried; the first that applies does so, then all over again."""
MADE: Mapping[Rewrite, frozenset[type]] = {
    join_pointwise: emitted_layers(TableFunction),
    fuse_one_slope: frozenset({OneSlope}),
    fuse_channel_slopes: frozenset({ChannelSlopes}),
}
"""What rewrites make that not every machine has code for."""
