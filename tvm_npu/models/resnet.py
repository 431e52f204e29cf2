"""ResNet-50 v1 (He et al. 2015, arXiv:1512.03385, Table 1): 53 convolutions and an FC.

The original "v1": a stage's stride sits in the first 1x1 of its first block and in the
projection (v1.5 moves it to the 3x3, which costs 4.09 GMAC instead of 3.86). Batch
normalization behind every convolution.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
EXPANSION = 4

STAGES = (
    # name, inner channels, blocks, stride of the first block
    ("conv2", 64, 3, 1),
    ("conv3", 128, 4, 2),
    ("conv4", 256, 6, 2),
    ("conv5", 512, 3, 2),
)


def build_resnet50(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet50", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv_bn(net, x, "conv1", net.scaled(64), 7, stride=2)
    x = net.relu(x, "conv1/relu")
    x = net.max_pool(x, "pool1", 3, stride=2, padding=1)
    for stage, inner, blocks, first_stride in STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _bottleneck(net, x, f"{stage}_{block + 1}", net.scaled(inner), stride, block == 0)
    x = net.global_avg_pool(x, "pool5")
    x = net.flatten(x, "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _bottleneck(
    net: NetworkBuilder, x: Tensor, name: str, inner: int, stride: int, projected: bool
) -> Tensor:
    """[N, C, H, W] -> [N, 4 * inner, H / stride, W / stride]."""
    outer = inner * EXPANSION
    shortcut = _conv_bn(net, x, f"{name}/shortcut", outer, 1, stride=stride) if projected else x
    y = _conv_bn(net, x, f"{name}/reduce", inner, 1, stride=stride)
    y = net.relu(y, f"{name}/reduce/relu")
    y = _conv_bn(net, y, f"{name}/conv3x3", inner, 3)
    y = net.relu(y, f"{name}/conv3x3/relu")
    y = _conv_bn(net, y, f"{name}/expand", outer, 1)
    y = net.add(y, shortcut, f"{name}/add")
    return net.relu(y, f"{name}/relu")


def _conv_bn(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    x = net.conv(x, name, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return net.batch_norm(x, f"{name}/bn")
