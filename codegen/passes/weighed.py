"""Averages as depthwise convolutions by 1 / n, whose results have a scale of their own."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.ops import Conv2d, Pool

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
