"""Leaky ReLU and PReLU as part of the convolution in front of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.graph import RELU, FloatArray, Graph, Layer, Slopes
from tvm_npu.codegen.ops import Conv2d, Dense, Elementwise, ScaleShift
from tvm_npu.codegen.passes.rewriting import Uses, swap

MOST_SLOPES = 512
"""Channels of a layer whose slopes differ."""


class OneSlope:
    """A machine's requantize step can multiply negative accumulators by one number."""


class ChannelSlopes:
    """It can multiply them by a number of their channel, of `MOST_SLOPES` channels."""


def fuse_one_slope(graph: Graph) -> Graph | None:
    """before: x -> conv -> a -> affine(s, 0) -> b; a -> affine(1 - s, 0) -> clip(0, inf) -> c;
            add(b, c) -> y
    after:  x -> conv(slope s) -> y                         (dense layers likewise)

    Where a has no other readers; s is at most 1 and the same for all channels.
    """
    return _fuse_slopes(graph, by_channel=False)


def fuse_channel_slopes(graph: Graph) -> Graph | None:
    """`fuse_one_slope` where channels have slopes of their own."""
    return _fuse_slopes(graph, by_channel=True)


def _fuse_slopes(graph: Graph, by_channel: bool) -> Graph | None:
    uses = Uses(graph)
    for layer in graph.layers:
        if not isinstance(layer, Elementwise) or layer.op != "add":
            continue
        if not layer.activation.is_identity:
            continue
        for straight, bent in (layer.inputs, layer.inputs[::-1]):
            found = _pattern(uses, layer, straight, bent)
            if found is None:
                continue
            slopes, parts = found
            producer = uses.producer(parts[0].inputs[0])
            differ = bool(np.any(slopes != slopes[0]))
            if differ != by_channel or (differ and len(slopes) > MOST_SLOPES):
                continue
            if not isinstance(producer, Conv2d | Dense) or not producer.activation.is_identity:
                continue
            if producer.output in graph.outputs:
                continue
            if set(uses.readers(producer.output)) != set(parts[:2]):
                continue
            values = tuple(float(value) for value in (slopes if differ else slopes[:1]))
            source = sum((part.source for part in (producer, *parts, layer)), ())
            fused = replace(
                producer, outputs=layer.outputs, activation=Slopes(values),
                source=tuple(dict.fromkeys(source)),
            )  # fmt: skip
            return swap(graph, {producer: None, **dict.fromkeys(parts), layer: fused})
    return None


def _pattern(
    uses: Uses, total: Layer, straight: str, bent: str
) -> tuple[FloatArray, tuple[Layer, ...]] | None:
    """(slopes, the two scales and the clip) of a sum of a tensor's multiple and a clipped one."""
    scale, clip = uses.producer(straight), uses.producer(bent)
    if not isinstance(clip, Elementwise) or clip.op != "copy" or clip.activation != RELU:
        return None
    steep = uses.producer(clip.inputs[0])
    if not isinstance(scale, ScaleShift) or not isinstance(steep, ScaleShift):
        return None
    alone = (
        uses.follower(scale) is total
        and uses.follower(clip) is total
        and uses.follower(steep) is clip
        and scale.inputs == steep.inputs
    )
    if not alone or scale.bias.any() or steep.bias.any():
        return None
    complete = np.allclose(scale.scale + steep.scale, 1.0, atol=1e-6)
    if not complete or steep.scale.min() < 0 or np.abs(scale.scale).max() >= 2:
        return None
    return scale.scale, (scale, steep, clip)
