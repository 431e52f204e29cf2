"""EfficientNet-B0 (Tan and Le 2019, arXiv:1905.11946, Table 1), as torchvision builds it.

MBConv blocks: 1x1 expansion, depthwise convolution, squeeze and excitation (a quarter of the
block's input channels, SiLU, sigmoid), linear 1x1 projection. SiLU behind the others.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .mobilenet_v2 import divisible_channels
from .mobilenet_v3 import conv_bn, squeeze_excite

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
STEM_CHANNELS = 32
HEAD_CHANNELS = 1280
SQUEEZE = 4
EPSILON = 1e-5
STAGES = (
    # expansion, kernel, channels, blocks, stride of the first block
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)


def build_efficientnet_b0(
    *, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = ModernBuilder("efficientnet_b0", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv(net, x, "stem", divisible_channels(STEM_CHANNELS * width), 3, stride=2)
    index = 0
    for expansion, kernel, channels, blocks, first_stride in STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            out = divisible_channels(channels * width)
            x = _mbconv(net, x, f"block{index}", out, expansion, kernel, stride)
            index += 1
    x = _conv(net, x, "head", divisible_channels(HEAD_CHANNELS * width), 1)
    x = net.flatten(net.global_avg_pool(x, "pool"), "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _mbconv(
    net: ModernBuilder, x: Tensor, name: str, channels: int, expansion: int, kernel: int,
    stride: int,
) -> Tensor:  # fmt: skip
    hidden = x.channels * expansion
    y = x if expansion == 1 else _conv(net, x, f"{name}/expand", hidden, 1)
    y = _conv(net, y, f"{name}/depthwise", hidden, kernel, stride=stride, groups=hidden)
    squeezed = max(1, x.channels // SQUEEZE)
    y = squeeze_excite(net, y, f"{name}/se", squeezed, net.silu, net.sigmoid)
    y = conv_bn(net, y, f"{name}/project", channels, 1, epsilon=EPSILON)
    if stride == 1 and x.channels == channels:
        return net.add(y, x, f"{name}/add")
    return y


def _conv(
    net: ModernBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    x = conv_bn(net, x, name, channels, kernel, stride=stride, groups=groups, epsilon=EPSILON)
    return net.silu(x, f"{name}/silu")
