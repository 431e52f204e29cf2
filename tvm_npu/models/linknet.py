"""LinkNet (Chaurasia and Culurciello 2017, arXiv:1707.03718): semantic segmentation.

The encoder is ResNet-18 without its classifier. A decoder block is a 1x1 convolution to a quarter
of the channels, a transposed 3x3 one, and a 1x1 one; its result is added to what the encoder block
of the same size has read. A transposed 3x3, a 3x3 and a transposed 2x2 convolution end the network.
Batch normalization and ReLU behind every convolution but the last. Classes are those of Cityscapes
and "unlabelled".

11.5 M parameters, as the abstract says. For 640 x 360 it says 21.2 G operations; here they are
19.1 G, or 22.2 G with the zeros of transposed convolutions' expanded inputs.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor
from .resnet import BLOCKS_18, STAGES, basic_stage, conv_bn, stem

DEFAULT_SIZE = 256
MINIMUM_SIZE = 32
SIZE_STEP = 32
CLASSES = 20
LAST_CHANNELS = 32


def build_linknet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> raw class maps [N, 20, S, S]; S is a multiple of 32."""
    net = NetworkBuilder("linknet", seed=seed, width=width)
    return _build(net, (batch, 3, input_size, input_size))


def _build(net: NetworkBuilder, shape: tuple[int, int, int, int]) -> onnx.ModelProto:
    x = stem(net, net.input("data", shape))
    read = []
    for (stage, channels, _, stride), blocks in zip(STAGES, BLOCKS_18, strict=True):
        read.append(x)
        x = basic_stage(net, x, stage, net.scaled(channels), blocks, stride)
    for number, other in reversed(list(enumerate(read, start=1))):
        x = _decoder(net, x, f"decoder{number}", other)
    last = net.scaled(LAST_CHANNELS)
    x = _turned(net, x, "last/up", last, 2)
    x = net.relu(conv_bn(net, x, "last/conv", last, 3), "last/conv/relu")
    return net.model(net.conv_transpose(x, "classes", CLASSES, 2, stride=2))


def _decoder(net: NetworkBuilder, x: Tensor, name: str, other: Tensor) -> Tensor:
    """Of the shape of ``other``, which is added."""
    inner = max(1, x.channels // 4)
    stride = other.shape[2] // x.shape[2]
    y = net.relu(conv_bn(net, x, f"{name}/reduce", inner, 1), f"{name}/reduce/relu")
    y = _turned(net, y, f"{name}/up", inner, stride)
    y = conv_bn(net, y, f"{name}/expand", other.channels, 1)
    return net.add(net.relu(y, f"{name}/expand/relu"), other, f"{name}/add")


def _turned(net: NetworkBuilder, x: Tensor, name: str, channels: int, stride: int) -> Tensor:
    """[N, C, H, W] -> [N, channels, stride * H, stride * W]."""
    x = net.conv_transpose(
        x, name, channels, 3, stride=stride, padding=1, output_padding=stride - 1, bias=False
    )
    return net.relu(net.batch_norm(x, f"{name}/bn"), f"{name}/relu")
