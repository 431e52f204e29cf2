"""A YOLO with SiLU: YOLOv5n of Ultralytics (version 6), its upsampling bilinear.

A backbone of C3 blocks (cross-stage partial bottlenecks), pooling at several scales (SPPF), a path
up with Resize and Concat, a path down, and one linear convolution a scale.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .errors import ModelArgumentError
from .mobilenet_v3 import conv_bn

DEFAULT_SIZE = 320
MINIMUM_SIZE = 64
STRIDE = 32
OUTPUTS = 3 * (5 + 80)
"""Anchors times box, objectness and classes."""
CHANNELS = (16, 32, 64, 128, 256)
BLOCKS = (1, 2, 3, 1)
EPSILON = 1e-3


def build_yolov5n(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> raw maps [N, 255, S / s, S / s] for s = 8, 16, 32; S is a multiple of 32."""
    if input_size % STRIDE:
        raise ModelArgumentError("input_size of yolov5n", input_size, f"a multiple of {STRIDE}")
    net = ModernBuilder("yolov5n", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    first, *stages = (net.scaled(channels) for channels in CHANNELS)
    x = net.conv(x, "stem", first, 6, stride=2, padding=2, bias=False)
    x = net.silu(net.batch_norm(x, "stem/bn", epsilon=EPSILON), "stem/silu")
    features = []
    for stage, (channels, blocks) in enumerate(zip(stages, BLOCKS, strict=True), start=1):
        x = _conv(net, x, f"stage{stage}/down", channels, 3, stride=2)
        x = _c3(net, x, f"stage{stage}", channels, blocks)
        features.append(x)
    features[-1] = _sppf(net, x, "sppf", x.channels)
    return net.model(*_outputs(net, _paths(net, features[1:])))


def _paths(net: ModernBuilder, features: list[Tensor]) -> list[Tensor]:
    """Up and down again: one map a scale."""
    fine, middle, coarse = features
    high = _conv(net, coarse, "up1/reduce", middle.channels, 1)
    x = net.concat([_doubled(net, high, "up1/resize"), middle], "up1/concat")
    x = _c3(net, x, "up1", middle.channels, 1, shortcut=False)
    mid = _conv(net, x, "up2/reduce", fine.channels, 1)
    x = net.concat([_doubled(net, mid, "up2/resize"), fine], "up2/concat")
    out1 = _c3(net, x, "up2", fine.channels, 1, shortcut=False)
    x = net.concat(
        [_conv(net, out1, "down1/conv", fine.channels, 3, stride=2), mid], "down1/concat"
    )
    out2 = _c3(net, x, "down1", middle.channels, 1, shortcut=False)
    x = _conv(net, out2, "down2/conv", middle.channels, 3, stride=2)
    out3 = _c3(net, net.concat([x, high], "down2/concat"), "down2", coarse.channels, 1, False)
    return [out1, out2, out3]


def _outputs(net: ModernBuilder, maps: list[Tensor]) -> list[Tensor]:
    return [
        net.conv(x, f"detect{number}", OUTPUTS, 1, gain=1.0 / x.moments.power)
        for number, x in enumerate(maps)
    ]


def _doubled(net: ModernBuilder, x: Tensor, name: str) -> Tensor:
    return net.bilinear(x, name, 2 * x.shape[2], 2 * x.shape[3])


def _c3(
    net: ModernBuilder, x: Tensor, name: str, channels: int, blocks: int, shortcut: bool = True
) -> Tensor:
    half = max(1, channels // 2)
    y = _conv(net, x, f"{name}/cv1", half, 1)
    for block in range(blocks):
        z = _conv(net, y, f"{name}/m{block}/cv1", half, 1)
        z = _conv(net, z, f"{name}/m{block}/cv2", half, 3)
        y = net.add(y, z, f"{name}/m{block}/add") if shortcut else z
    y = net.concat([y, _conv(net, x, f"{name}/cv2", half, 1)], f"{name}/cat")
    return _conv(net, y, f"{name}/cv3", channels, 1)


def _sppf(net: ModernBuilder, x: Tensor, name: str, channels: int) -> Tensor:
    parts = [_conv(net, x, f"{name}/cv1", max(1, channels // 2), 1)]
    for number in range(3):
        parts.append(net.max_pool(parts[-1], f"{name}/pool{number}", 5, stride=1, padding=2))
    return _conv(net, net.concat(parts, f"{name}/cat"), f"{name}/cv2", channels, 1)


def _conv(
    net: ModernBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    x = conv_bn(net, x, name, channels, kernel, stride=stride, epsilon=EPSILON)
    return net.silu(x, f"{name}/silu")
