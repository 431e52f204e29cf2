"""Averages as other layers: depthwise convolutions by 1 / n, whose results have a scale of their
own; averages without the zeros that they count, behind a padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.ops import Conv2d, Pad, Pool

MOST_TAPS = 256
"""Weights of a depthwise convolution that an average is worth."""


def can_be_weighed(layer: Pool) -> bool:
    """Every window of the average lies inside its input, and has few enough weights."""
    taps = layer.kernel[0] * layer.kernel[1]
    return layer.kind == "avg" and not any(layer.padding) and taps <= MOST_TAPS


def weighed(layer: Pool, channels: int) -> Conv2d:
    """The same values."""
    taps = layer.kernel[0] * layer.kernel[1]
    weight = np.full((channels, 1, *layer.kernel), 1.0 / taps, np.float32)
    return Conv2d(
        layer.name, layer.inputs, layer.outputs, weight, np.zeros(channels, np.float32),
        layer.stride, groups=channels, activation=layer.activation, source=layer.source,
    )  # fmt: skip


def behind_zeros(layer: Pool, shape: Shape, padded: str) -> tuple[Pad, Pool, Shape]:
    """The padding that the average of a tensor of ``shape`` counts as a layer, whose result is
    called ``padded``, the average of that, and its shape."""
    tensor, (top, left, bottom, right) = layer.inputs[0], layer.counted_padding
    channels, rows, columns = chw(shape)
    before, after = (0, top, left), (0, bottom, right)
    name = f"{layer.name}@{tensor}"
    pad = Pad(name, (tensor,), (padded,), before, after, source=layer.source)
    outer = zip(layer.padding, layer.counted_padding, strict=True)
    rest_top, rest_left, rest_bottom, rest_right = (whole - counted for whole, counted in outer)
    mean = replace(
        layer, inputs=(padded,), padding=(rest_top, rest_left, rest_bottom, rest_right),
        count_include_pad=False, counted_padding=(0, 0, 0, 0),
    )  # fmt: skip
    return pad, mean, (channels, rows + top + bottom, columns + left + right)
