"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381, Table 2): 52 convolutions and an FC.

3x3/2 stem of 32, seventeen inverted residuals (1x1 expand, 3x3 depthwise, linear 1x1 project),
1x1 head of 1280, global average pooling, FC 1000. Batch normalization behind every
convolution, ReLU6 behind all but the projections. Padding is one on each side of a 3x3
(the PyTorch convention); shapes equal the paper's.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
CHANNEL_DIVISOR = 8

STAGES = (
    # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM_CHANNELS = 32
HEAD_CHANNELS = 1280


def divisible_channels(channels: float) -> int:
    """The nearest multiple of 8, at least 8 and never more than 10 % below `channels`."""
    rounded = int(channels + CHANNEL_DIVISOR / 2) // CHANNEL_DIVISOR * CHANNEL_DIVISOR
    rounded = max(CHANNEL_DIVISOR, rounded)
    return rounded + CHANNEL_DIVISOR if rounded < 0.9 * channels else rounded


def build_mobilenet_v2(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]. A width below one leaves the head at 1280 channels."""
    net = NetworkBuilder("mobilenet_v2", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv_bn(net, x, "stem", divisible_channels(STEM_CHANNELS * width), 3, stride=2)
    index = 0
    for expansion, channels, blocks, first_stride in STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            out = divisible_channels(channels * width)
            x = _inverted_residual(net, x, f"block{index}", out, expansion, stride)
            index += 1
    x = _conv_bn(net, x, "head", divisible_channels(HEAD_CHANNELS * max(1.0, width)), 1)
    x = net.global_avg_pool(x, "pool")
    x = net.flatten(x, "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _inverted_residual(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, expansion: int, stride: int
) -> Tensor:
    """[N, C, H, W] -> [N, channels, H / stride, W / stride], with a shortcut where it fits."""
    hidden = x.channels * expansion
    y = x
    if expansion != 1:
        y = _conv_bn(net, y, f"{name}/expand", hidden, 1)
    y = _conv_bn(net, y, f"{name}/depthwise", hidden, 3, stride=stride, groups=hidden)
    y = _conv_bn(net, y, f"{name}/project", channels, 1, activation=False)
    if stride == 1 and x.channels == channels:
        return net.add(x, y, f"{name}/add")
    return y


def _conv_bn(
    net: NetworkBuilder,
    x: Tensor,
    name: str,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: bool = True,
) -> Tensor:
    x = net.conv(
        x, name, channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )
    x = net.batch_norm(x, f"{name}/bn")
    return net.relu6(x, f"{name}/relu6") if activation else x
