"""ResNet-50 v1 (He et al. 2015, arXiv:1512.03385, Table 1): 53 convolutions and an FC.

The original "v1": a stage's stride sits in the first 1x1 of its first block and in the
projection. "v1.5" moves it to the 3x3, which costs 4.09 GMAC instead of 3.86. Batch
normalization behind every convolution.

The e-PlaNNer thesis (Tables 4.1 and 8.1) counts v1.5 at 256x256 without its four projections, 49
convolutions and the FC: 22,734,016 weights are 86.723 MiB, 4.871 GMAC are 4.536 x 2^30, and 21
layers are distinct (v1: 18). `PROJECTION` marks the names of the layers that it leaves out.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
EXPANSION = 4
PROJECTION = "/shortcut"

STAGES = (
    # name, inner channels, blocks, stride of the first block
    ("conv2", 64, 3, 1),
    ("conv3", 128, 4, 2),
    ("conv4", 256, 6, 2),
    ("conv5", 512, 3, 2),
)


def build_resnet50(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """v1: [N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet50", seed=seed, width=width)
    return _build(net, batch, input_size, stride_in_3x3=False)


def build_resnet50_v1_5(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """v1.5: [N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet50_v1.5", seed=seed, width=width)
    return _build(net, batch, input_size, stride_in_3x3=True)


def _build(
    net: NetworkBuilder, batch: int, input_size: int, *, stride_in_3x3: bool
) -> onnx.ModelProto:
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv_bn(net, x, "conv1", net.scaled(64), 7, stride=2)
    x = net.relu(x, "conv1/relu")
    x = net.max_pool(x, "pool1", 3, stride=2, padding=1)
    for stage, inner, blocks, first_stride in STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            strides = (1, stride) if stride_in_3x3 else (stride, 1)
            x = _bottleneck(net, x, f"{stage}_{block + 1}", net.scaled(inner), strides, block == 0)
    x = net.global_avg_pool(x, "pool5")
    x = net.flatten(x, "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def _bottleneck(
    net: NetworkBuilder,
    x: Tensor,
    name: str,
    inner: int,
    strides: tuple[int, int],
    projected: bool,
) -> Tensor:
    """[N, C, H, W] -> [N, 4 * inner, H / s, W / s]; `strides` of the first 1x1 and of the 3x3."""
    outer = inner * EXPANSION
    first, second = strides
    shortcut = x
    if projected:
        shortcut = _conv_bn(net, x, f"{name}{PROJECTION}", outer, 1, stride=first * second)
    y = _conv_bn(net, x, f"{name}/reduce", inner, 1, stride=first)
    y = net.relu(y, f"{name}/reduce/relu")
    y = _conv_bn(net, y, f"{name}/conv3x3", inner, 3, stride=second)
    y = net.relu(y, f"{name}/conv3x3/relu")
    y = _conv_bn(net, y, f"{name}/expand", outer, 1)
    y = net.add(y, shortcut, f"{name}/add")
    return net.relu(y, f"{name}/relu")


def _conv_bn(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    x = net.conv(x, name, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return net.batch_norm(x, f"{name}/bn")
