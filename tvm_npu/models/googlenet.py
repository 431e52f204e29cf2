"""GoogLeNet (Szegedy et al. 2014, arXiv:1409.4842, Table 1): 57 convolutions and an FC.

Nine inception modules of 1x1, 3x3 and 5x5 convolutions and a 3x3 max-pool side by side; max-pools
3x3/2 between the stages round their size up, as in Caffe: 112 -> 56 -> 28 -> 14 -> 7. Every
convolution has a bias and a ReLU behind it. At 224x224 1.58 GMAC; the modules have the operations
that Table 1 prints (its 34 M for the first convolution is not one of its 118 M). Without local
response normalization, auxiliary classifiers and dropout, as accelerators count it.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000

MODULES = (
    # name, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
    ("3a", 64, 96, 128, 16, 32, 32),
    ("3b", 128, 128, 192, 32, 96, 64),
    ("4a", 192, 96, 208, 16, 48, 64),
    ("4b", 160, 112, 224, 24, 64, 64),
    ("4c", 128, 128, 256, 24, 64, 64),
    ("4d", 112, 144, 288, 32, 64, 64),
    ("4e", 256, 160, 320, 32, 128, 128),
    ("5a", 256, 160, 320, 32, 128, 128),
    ("5b", 384, 192, 384, 48, 128, 128),
)
POOLED = ("3b", "4e")
"""A max-pool follows these."""


def build_googlenet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("googlenet", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv_relu(net, x, "conv1", 64, 7, stride=2)
    x = net.max_pool(x, "pool1", 3, stride=2, ceil=True)
    x = _conv_relu(net, x, "conv2/reduce", 64, 1)
    x = _conv_relu(net, x, "conv2", 192, 3)
    x = net.max_pool(x, "pool2", 3, stride=2, ceil=True)
    for name, *channels in MODULES:
        x = _inception(net, x, name, *channels)
        if name in POOLED:
            x = net.max_pool(x, f"{name}/pool", 3, stride=2, ceil=True)
    x = net.global_avg_pool(x, "pool5")
    x = net.flatten(x, "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _inception(
    net: NetworkBuilder,
    x: Tensor,
    name: str,
    point: int,
    reduced_3: int,
    wide_3: int,
    reduced_5: int,
    wide_5: int,
    projected: int,
) -> Tensor:
    """[N, C, H, W] -> [N, point + wide_3 + wide_5 + projected, H, W]."""
    one = _conv_relu(net, x, f"{name}/1x1", point, 1)
    three = _conv_relu(net, x, f"{name}/3x3_reduce", reduced_3, 1)
    three = _conv_relu(net, three, f"{name}/3x3", wide_3, 3)
    five = _conv_relu(net, x, f"{name}/5x5_reduce", reduced_5, 1)
    five = _conv_relu(net, five, f"{name}/5x5", wide_5, 5)
    pooled = net.max_pool(x, f"{name}/pool3x3", 3, stride=1, padding=1)
    pooled = _conv_relu(net, pooled, f"{name}/pool_proj", projected, 1)
    return net.concat([one, three, five, pooled], f"{name}/concat")


def _conv_relu(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    x = net.conv(x, name, net.scaled(channels), kernel, stride=stride, padding=kernel // 2)
    return net.relu(x, f"{name}/relu")
