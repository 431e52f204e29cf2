"""LeNet as Caffe ships it (examples/mnist/lenet.prototxt), the common 20/50/500/10 variant.

| layer | output at 28x28 | weights |
|---|---|---|
| conv1 5x5 | 20 x 24 x 24 | 20 x 1 x 5 x 5 |
| max-pool 2, stride 2 | 20 x 12 x 12 | |
| conv2 5x5 | 50 x 8 x 8 | 50 x 20 x 5 x 5 |
| max-pool 2, stride 2 | 50 x 4 x 4 | |
| ip1 + ReLU | 500 | 500 x 800 (0.8 MB at 16 bits) |
| ip2 | 10 | 10 x 500 |

As in the original there is no activation behind the convolutions.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder

DEFAULT_SIZE = 28
MINIMUM_SIZE = 16
CLASSES = 10


def build_lenet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 1, S, S] -> logits [N, 10]."""
    net = NetworkBuilder("lenet", seed=seed, width=width)
    x = net.input("data", (batch, 1, input_size, input_size))
    x = net.conv(x, "conv1", net.scaled(20), 5, gain=1.0)
    x = net.max_pool(x, "pool1", 2, stride=2)
    x = net.conv(x, "conv2", net.scaled(50), 5, gain=1.0)
    x = net.max_pool(x, "pool2", 2, stride=2)
    x = net.flatten(x, "flatten")
    x = net.dense(x, "ip1", net.scaled(500))
    x = net.relu(x, "relu1")
    return net.model(net.classifier(x, "ip2", CLASSES))
