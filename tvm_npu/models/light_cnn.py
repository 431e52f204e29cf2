"""Light CNN-9 (Wu et al. 2015, arXiv:1511.02683, Table 2): 9 convolutions and an FC.

Behind every convolution and the FC a max feature map takes the larger one of the two halves of the
channels, so that no other activation is needed; convolutions have biases. A 2x2 max-pool closes a
stage. Weights are those of the paper's table, layer by layer, but for the 3x3 convolution of the
second stage: the table prints 165 K where 9 x 48 x 192 are 83 K. The 256 features are what the
network is used for; the classifier of the training (79,077 persons) and dropout are left out.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 128
MINIMUM_SIZE = 16
FEATURES = 256

STAGES = (
    # groups (name, channels behind its max feature map) before a pool
    (("conv2", 96),),
    (("conv3", 192),),
    (("conv4", 128), ("conv5", 128)),
)


def build_light_cnn_9(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """Grey images [N, 1, S, S] -> features [N, 256]."""
    net = NetworkBuilder("light_cnn_9", seed=seed, width=width)
    x = net.input("data", (batch, 1, input_size, input_size))
    x = _conv_mfm(net, x, "conv1", net.scaled(48), 5)
    x = net.max_pool(x, "pool1", 2, stride=2, ceil=True)
    for number, groups in enumerate(STAGES, start=2):
        for name, channels in groups:
            x = _conv_mfm(net, x, f"{name}a", x.channels, 1)
            x = _conv_mfm(net, x, name, net.scaled(channels), 3)
        x = net.max_pool(x, f"pool{number}", 2, stride=2, ceil=True)
    x = net.dense(net.flatten(x, "flatten"), "fc1", 2 * net.scaled(FEATURES), gain=1.0)
    return net.model(net.max_feature_map(x, "features"))


def _conv_mfm(net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int) -> Tensor:
    """[N, C, H, W] -> [N, channels, H, W]; the larger of two normal values has their power."""
    x = net.conv(x, name, 2 * channels, kernel, padding=kernel // 2, gain=1.0)
    return net.max_feature_map(x, f"{name}/mfm")
