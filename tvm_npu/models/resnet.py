"""ResNet-18, 34 and 50 (He et al. 2015, arXiv:1512.03385, Table 1): 20, 36 and 53 convolutions, an
FC.

ResNet-18 and 34 have blocks of two 3x3 convolutions; the shortcuts that change the shape are
projections (option B), as Torch and torchvision have them: 1.81 and 3.66 GMAC, 11.69 M and 21.80 M
parameters (Table 1: 1.8 and 3.6 G).

ResNet-50, the original "v1": a stage's stride sits in the first 1x1 of its first block and in the
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

BLOCKS_18 = (2, 2, 2, 2)
BLOCKS_34 = (3, 4, 6, 3)


def build_resnet18(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet18", seed=seed, width=width)
    return _build_basic(net, batch, input_size, BLOCKS_18)


def build_resnet34(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet34", seed=seed, width=width)
    return _build_basic(net, batch, input_size, BLOCKS_34)


def build_resnet50(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """v1: [N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet50", seed=seed, width=width)
    return _build(net, batch, input_size, stride_in_3x3=False)


def build_resnet50_v1_5(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """v1.5: [N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("resnet50_v1.5", seed=seed, width=width)
    return _build(net, batch, input_size, stride_in_3x3=True)


def _build_basic(
    net: NetworkBuilder, batch: int, input_size: int, blocks: tuple[int, ...]
) -> onnx.ModelProto:
    x = net.input("data", (batch, 3, input_size, input_size))
    x = stem(net, x)
    for (stage, channels, _, stride), count in zip(STAGES, blocks, strict=True):
        x = basic_stage(net, x, stage, net.scaled(channels), count, stride)
    x = net.global_avg_pool(x, "pool5")
    x = net.flatten(x, "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


def stem(net: NetworkBuilder, x: Tensor) -> Tensor:
    """[N, 3, S, S] -> [N, 64, S / 4, S / 4]."""
    x = conv_bn(net, x, "conv1", net.scaled(64), 7, stride=2)
    x = net.relu(x, "conv1/relu")
    return net.max_pool(x, "pool1", 3, stride=2, padding=1)


def basic_stage(
    net: NetworkBuilder, x: Tensor, stage: str, channels: int, blocks: int, stride: int
) -> Tensor:
    """[N, C, H, W] -> [N, channels, H / stride, W / stride]: blocks of two 3x3 convolutions."""
    for block in range(blocks):
        x = _basic(net, x, f"{stage}_{block + 1}", channels, stride if block == 0 else 1)
    return x


def _basic(net: NetworkBuilder, x: Tensor, name: str, channels: int, stride: int) -> Tensor:
    shortcut = x
    if stride > 1 or x.channels != channels:
        shortcut = conv_bn(net, x, f"{name}{PROJECTION}", channels, 1, stride=stride)
    y = conv_bn(net, x, f"{name}/first", channels, 3, stride=stride)
    y = net.relu(y, f"{name}/first/relu")
    y = conv_bn(net, y, f"{name}/second", channels, 3)
    return net.relu(net.add(y, shortcut, f"{name}/add"), f"{name}/relu")


def _build(
    net: NetworkBuilder, batch: int, input_size: int, *, stride_in_3x3: bool
) -> onnx.ModelProto:
    x = net.input("data", (batch, 3, input_size, input_size))
    x = stem(net, x)
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
        shortcut = conv_bn(net, x, f"{name}{PROJECTION}", outer, 1, stride=first * second)
    y = conv_bn(net, x, f"{name}/reduce", inner, 1, stride=first)
    y = net.relu(y, f"{name}/reduce/relu")
    y = conv_bn(net, y, f"{name}/conv3x3", inner, 3, stride=second)
    y = net.relu(y, f"{name}/conv3x3/relu")
    y = conv_bn(net, y, f"{name}/expand", outer, 1)
    y = net.add(y, shortcut, f"{name}/add")
    return net.relu(y, f"{name}/relu")


def conv_bn(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    """A convolution without bias that keeps (size / stride), and its batch normalization."""
    x = net.conv(x, name, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return net.batch_norm(x, f"{name}/bn")
