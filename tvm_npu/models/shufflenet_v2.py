"""ShuffleNetV2 x1.0 (Ma et al. 2018, arXiv:1807.11164, Table 5), as torchvision builds it.

A unit splits the channels, computes on one half, joins and shuffles; a unit that halves rows and
columns computes on both.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .mobilenet_v3 import conv_bn

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
STEM_CHANNELS = 24
LAST_CHANNELS = 1024
EPSILON = 1e-5
STAGES = ((4, 116), (8, 232), (4, 464))
"""Units and channels."""


def build_shufflenet_v2(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = ModernBuilder("shufflenet_v2", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv_relu(net, x, "stem", net.scaled(STEM_CHANNELS), 3, stride=2)
    x = net.max_pool(x, "pool1", 3, stride=2, padding=1)
    for stage, (units, channels) in enumerate(STAGES, start=2):
        half = max(1, net.scaled(channels) // 2)
        for unit in range(units):
            x = _unit(net, x, f"stage{stage}/unit{unit}", half, 2 if unit == 0 else 1)
    x = _conv_relu(net, x, "last", net.scaled(LAST_CHANNELS), 1)
    x = net.flatten(net.global_avg_pool(x, "pool"), "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _unit(net: ModernBuilder, x: Tensor, name: str, half: int, stride: int) -> Tensor:
    if stride == 1:
        kept, y = net.split(x, f"{name}/split", (half, half))
    else:
        y = x
        kept = conv_bn(
            net, x, f"{name}/left/depthwise", x.channels, 3, stride=2, groups=x.channels,
            epsilon=EPSILON,
        )  # fmt: skip
        kept = _conv_relu(net, kept, f"{name}/left/pointwise", half, 1)
    y = _conv_relu(net, y, f"{name}/reduce", half, 1)
    y = conv_bn(net, y, f"{name}/depthwise", half, 3, stride=stride, groups=half, epsilon=EPSILON)
    y = _conv_relu(net, y, f"{name}/pointwise", half, 1)
    return net.channel_shuffle(net.concat([kept, y], f"{name}/concat"), f"{name}/shuffle")


def _conv_relu(
    net: ModernBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    x = conv_bn(net, x, name, channels, kernel, stride=stride, epsilon=EPSILON)
    return net.relu(x, f"{name}/relu")
