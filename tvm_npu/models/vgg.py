"""VGG-16 and VGG-19 (Simonyan and Zisserman 2014, arXiv:1409.1556, configurations D and E): 13 or
16 convolutions and 3 FC.

All convolutions are 3x3 with padding 1, a ReLU behind each; a 2x2 max-pool closes a stage. At
224x224 VGG-16's weights without biases are 138,344,128 floats (527.741 MiB) and one inference
is 15.470 GMAC (14.408 x 2^30), the figures of Table 8.1 of the e-PlaNNer thesis. VGG-19 has 144 M
parameters (Table 2 of its paper) and 19.6 GMAC (He et al., arXiv:1512.03385, section 3.3). Dropout
is left out (inference).
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
FEATURES = 4096

CHANNELS = (64, 128, 256, 512, 512)
CONVOLUTIONS_16 = (2, 2, 3, 3, 3)
CONVOLUTIONS_19 = (2, 2, 4, 4, 4)


def build_vgg16(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("vgg16", seed=seed, width=width)
    return _build(net, batch, input_size, CONVOLUTIONS_16)


def build_vgg19(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("vgg19", seed=seed, width=width)
    return _build(net, batch, input_size, CONVOLUTIONS_19)


def _build(
    net: NetworkBuilder, batch: int, input_size: int, convolutions: tuple[int, ...]
) -> onnx.ModelProto:
    x = net.input("data", (batch, 3, input_size, input_size))
    for stage, (channels, count) in enumerate(zip(CHANNELS, convolutions, strict=True), start=1):
        for index in range(1, count + 1):
            name = f"conv{stage}_{index}"
            x = net.conv(x, name, net.scaled(channels), 3, padding=1)
            x = net.relu(x, f"{name}/relu")
        x = net.max_pool(x, f"pool{stage}", 2, stride=2)
    x = net.flatten(x, "flatten")
    for name in ("fc6", "fc7"):
        x = net.relu(net.dense(x, name, net.scaled(FEATURES)), f"{name}/relu")
    return net.model(net.classifier(x, "fc8", CLASSES))
