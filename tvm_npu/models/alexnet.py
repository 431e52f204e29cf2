"""AlexNet (Krizhevsky et al. 2012) in one tower, without groups: 5 conv and 3 FC.

This is the form that the e-PlaNNer thesis counts (Table 8.1: 237.914 MB, 1.057 G operations):
62,367,776 weights without biases are 237.914 MiB, and at 227x227 one inference is 1,135,256,096
MAC = 1.057 x 2^30. The two-tower original with groups of two has 60.95 M weights and 0.72 GMAC
and does not match. No local response normalization, as in Darknet's alexnet.cfg, where the same
layers are found. Dropout is left out (inference).

"One weird trick for parallelizing convolutional neural networks" (Krizhevsky 2014,
arXiv:1404.5997) has fewer filters: 224x224, 61.1 M parameters, 0.71 GMAC. Torch's and
torchvision's AlexNet is this one, and so is the one of the Snowflake compiler's paper: its Table 3
has conv3 to conv5.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder

DEFAULT_SIZE = 227
MINIMUM_SIZE = 67
CLASSES = 1000
FEATURES = 4096

LAYERS = (
    # name, channels, kernel, stride, padding, followed by a 3x3/2 max-pool
    ("conv1", 96, 11, 4, 0, True),
    ("conv2", 256, 5, 1, 2, True),
    ("conv3", 384, 3, 1, 1, False),
    ("conv4", 384, 3, 1, 1, False),
    ("conv5", 256, 3, 1, 1, True),
)

OWT_DEFAULT_SIZE = 224
OWT_LAYERS = (
    ("conv1", 64, 11, 4, 2, True),
    ("conv2", 192, 5, 1, 2, True),
    ("conv3", 384, 3, 1, 1, False),
    ("conv4", 256, 3, 1, 1, False),
    ("conv5", 256, 3, 1, 1, True),
)


def build_alexnet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    return _build(NetworkBuilder("alexnet", seed=seed, width=width), batch, input_size, LAYERS)


def build_alexnet_owt(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = NetworkBuilder("alexnet_owt", seed=seed, width=width)
    return _build(net, batch, input_size, OWT_LAYERS)


def _build(
    net: NetworkBuilder,
    batch: int,
    input_size: int,
    layers: tuple[tuple[str, int, int, int, int, bool], ...],
) -> onnx.ModelProto:
    x = net.input("data", (batch, 3, input_size, input_size))
    for name, channels, kernel, stride, padding, pooled in layers:
        x = net.conv(x, name, net.scaled(channels), kernel, stride=stride, padding=padding)
        x = net.relu(x, f"{name}/relu")
        if pooled:
            x = net.max_pool(x, f"{name}/pool", 3, stride=2)
    x = net.flatten(x, "flatten")
    for name in ("fc6", "fc7"):
        x = net.relu(net.dense(x, name, net.scaled(FEATURES)), f"{name}/relu")
    return net.model(net.classifier(x, "fc8", CLASSES))
