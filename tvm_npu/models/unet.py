"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597) with transposed convolutions.

The published shape (two 3x3 convolutions a stage, four poolings, 2x2 transposed convolutions of
stride 2 and concatenations on the way up), with padding so that sizes stay, batch normalization,
and half of its channels.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .errors import ModelArgumentError
from .mobilenet_v3 import conv_bn

DEFAULT_SIZE = 128
MINIMUM_SIZE = 32
SIZE_STEP = 16
CLASSES = 2
CHANNELS = (32, 64, 128, 256, 512)
EPSILON = 1e-5


def build_unet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> raw class maps [N, 2, S, S]; S is a multiple of 16."""
    if input_size % SIZE_STEP:
        raise ModelArgumentError("input_size of unet", input_size, f"a multiple of {SIZE_STEP}")
    net = ModernBuilder("unet", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    passed = []
    for stage, channels in enumerate(CHANNELS):
        if stage:
            x = net.max_pool(x, f"down{stage}/pool", 2, stride=2)
        x = _double(net, x, f"down{stage}", net.scaled(channels))
        passed.append(x)
    for stage in reversed(range(len(CHANNELS) - 1)):
        channels = net.scaled(CHANNELS[stage])
        y = net.conv_transpose(x, f"up{stage}/up", channels, 2, stride=2)
        x = _double(
            net, net.concat([passed[stage], y], f"up{stage}/concat"), f"up{stage}", channels
        )
    return net.model(net.conv(x, "classes", CLASSES, 1, gain=1.0 / x.moments.power))


def _double(net: ModernBuilder, x: Tensor, name: str, channels: int) -> Tensor:
    for part in ("a", "b"):
        x = conv_bn(net, x, f"{name}/{part}", channels, 3, epsilon=EPSILON)
        x = net.relu(x, f"{name}/{part}/relu")
    return x
