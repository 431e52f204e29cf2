"""FlowNetS's contracting part, conv1 to conv6_1 (Fischer et al. 2015, arXiv:1504.06852).

Two RGB images stacked to six channels; ten convolutions with biases and a leaky ReLU of slope
0.1. 24.05 M weights and biases are 96.2 MB in float32, the "approximately 96 MBytes" of the
double-buffer tiling paper (section 2.2), which does not print the image size. At 384 x 512 (the
size of FlyingChairs, on which the network was trained) input and the ten output maps are
34.2 MB = 32.6 MiB: its "roughly 32 Mbytes". The next common sizes give 25 MB (320 x 448, the
training crop) and 80 MB (436 x 1024, Sintel).

`input_size` is the number of rows; the image has four columns for every three rows.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder

DEFAULT_SIZE = 384
MINIMUM_SIZE = 48
SLOPE = 0.1

LAYERS = (
    # name, channels, kernel, stride; padding keeps (size / stride) rounded up
    ("conv1", 64, 7, 2),
    ("conv2", 128, 5, 2),
    ("conv3", 256, 5, 2),
    ("conv3_1", 256, 3, 1),
    ("conv4", 512, 3, 2),
    ("conv4_1", 512, 3, 1),
    ("conv5", 512, 3, 2),
    ("conv5_1", 512, 3, 1),
    ("conv6", 1024, 3, 2),
    ("conv6_1", 1024, 3, 1),
)


def build_flownet_s(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 6, S, 4 S / 3] -> [N, 1024, S / 64, S / 48], sizes rounded up."""
    net = NetworkBuilder("flownet_s", seed=seed, width=width)
    x = net.input("data", (batch, 6, input_size, input_size * 4 // 3))
    for name, channels, kernel, stride in LAYERS:
        x = net.conv(x, name, net.scaled(channels), kernel, stride=stride, padding=kernel // 2)
        x = net.leaky_relu(x, f"{name}/leaky", SLOPE)
    return net.model(x)
