"""ConvNeXt-Tiny (Liu et al. 2022, arXiv:2201.03545), as torchvision builds it.

A block is a depthwise 7x7 convolution, layer normalization over the channels, two dense layers with
GELU between them (all of that with channels last), a scale a channel and a residual.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
EXPANSION = 4
SCALE = 0.5
"""About what the scales of trained networks grow to, where they matter."""
STAGES = ((3, 96), (3, 192), (9, 384), (3, 768))
"""Blocks and channels."""
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def build_convnext_tiny(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = ModernBuilder("convnext_tiny", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    for stage, (blocks, channels) in enumerate(STAGES):
        channels = net.scaled(channels)
        if stage == 0:
            x = net.conv(x, "stem", channels, 4, stride=4)
            x = _norm(net, x, "stem/norm")
        else:
            x = net.conv(_norm(net, x, f"down{stage}/norm"), f"down{stage}", channels, 2, stride=2)
        for block in range(blocks):
            x = _block(net, x, f"stage{stage}/block{block}")
    x = net.flatten(_norm(net, net.global_avg_pool(x, "pool"), "norm"), "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _norm(net: ModernBuilder, x: Tensor, name: str) -> Tensor:
    y = net.layer_norm(net.transpose(x, f"{name}/last", _LAST), f"{name}/norm")
    return net.transpose(y, name, _FIRST)


def _block(net: ModernBuilder, x: Tensor, name: str) -> Tensor:
    y = net.conv(x, f"{name}/depthwise", x.channels, 7, padding=3, groups=x.channels)
    y = net.layer_norm(net.transpose(y, f"{name}/last", _LAST), f"{name}/norm")
    y = net.gelu(net.linear(y, f"{name}/expand", EXPANSION * x.channels), f"{name}/gelu")
    y = net.transpose(net.linear(y, f"{name}/project", x.channels), f"{name}/first", _FIRST)
    return net.add(net.layer_scale(y, f"{name}/scale", SCALE), x, f"{name}/add")
