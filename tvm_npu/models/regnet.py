"""RegNetY-400MF (Radosavovic et al. 2020, arXiv:2003.13678), as torchvision builds it.

Bottlenecks of equal width with grouped 3x3 convolutions (8 channels a group) and squeeze and
excitation (a quarter of the block's input channels) behind them.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .mobilenet_v3 import conv_bn, squeeze_excite

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
STEM_CHANNELS = 32
GROUP_CHANNELS = 8
SQUEEZE = 4
EPSILON = 1e-5
STAGES = ((1, 48), (3, 104), (6, 208), (6, 440))
"""Blocks and channels."""


def build_regnet_y_400mf(
    *, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = ModernBuilder("regnet_y_400mf", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = conv_bn(net, x, "stem", _grouped(STEM_CHANNELS * width), 3, stride=2, epsilon=EPSILON)
    x = net.relu(x, "stem/relu")
    for stage, (blocks, channels) in enumerate(STAGES, start=1):
        for block in range(blocks):
            stride = 2 if block == 0 else 1
            x = _block(net, x, f"stage{stage}/block{block}", _grouped(channels * width), stride)
    x = net.flatten(net.global_avg_pool(x, "pool"), "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _grouped(channels: float) -> int:
    """A multiple of the channels of a group, at least one group."""
    return max(GROUP_CHANNELS, round(channels / GROUP_CHANNELS) * GROUP_CHANNELS)


def _block(net: ModernBuilder, x: Tensor, name: str, channels: int, stride: int) -> Tensor:
    shortcut = x
    if stride != 1 or x.channels != channels:
        shortcut = conv_bn(net, x, f"{name}/shortcut", channels, 1, stride=stride, epsilon=EPSILON)
    y = net.relu(conv_bn(net, x, f"{name}/a", channels, 1, epsilon=EPSILON), f"{name}/a/relu")
    groups = channels // GROUP_CHANNELS
    y = conv_bn(net, y, f"{name}/b", channels, 3, stride=stride, groups=groups, epsilon=EPSILON)
    y = net.relu(y, f"{name}/b/relu")
    squeezed = max(1, round(x.channels / SQUEEZE))
    y = squeeze_excite(net, y, f"{name}/se", squeezed, net.relu, net.sigmoid)
    y = conv_bn(net, y, f"{name}/c", channels, 1, epsilon=EPSILON)
    return net.relu(net.add(shortcut, y, f"{name}/add"), f"{name}/relu")
