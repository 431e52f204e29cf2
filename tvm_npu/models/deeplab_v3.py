"""DeepLabV3 (Chen et al. 2017, arXiv:1706.05587) on MobileNetV3-Large, as torchvision builds it.

The backbone's last blocks are dilated (output stride 16). Atrous spatial pyramid pooling: a 1x1
convolution, three dilated ones of rates 12, 24 and 36, and the image's mean, made large again.
"""

from __future__ import annotations

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .mobilenet_v3 import DILATED_LARGE, LARGE, backbone, conv_bn

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 21
CHANNELS = 256
RATES = (12, 24, 36)
EPSILON = 1e-5


def build_deeplabv3_mobilenet_v3(
    *, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    """[N, 3, S, S] -> raw class maps [N, 21, S, S]."""
    net = ModernBuilder("deeplabv3_mobilenet_v3", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _pyramid(net, backbone(net, x, LARGE, DILATED_LARGE)[-1])
    x = _conv_relu(net, x, "head", net.scaled(CHANNELS), 3)
    x = net.conv(x, "classes", CLASSES, 1, gain=1.0 / x.moments.power)
    return net.model(net.bilinear(x, "full", input_size, input_size))


def _pyramid(net: ModernBuilder, x: Tensor) -> Tensor:
    channels = net.scaled(CHANNELS)
    parts = [_conv_relu(net, x, "aspp/point", channels, 1)]
    parts += [_conv_relu(net, x, f"aspp/rate{rate}", channels, 3, rate) for rate in RATES]
    image = _conv_relu(net, net.global_avg_pool(x, "aspp/pool"), "aspp/image", channels, 1)
    parts.append(net.bilinear(image, "aspp/resize", *x.shape[2:]))
    return _conv_relu(net, net.concat(parts, "aspp/concat"), "aspp/project", channels, 1)


def _conv_relu(
    net: ModernBuilder, x: Tensor, name: str, channels: int, kernel: int, rate: int = 1
) -> Tensor:
    x = conv_bn(net, x, name, channels, kernel, rate=rate, epsilon=EPSILON)
    return net.relu(x, f"{name}/relu")
