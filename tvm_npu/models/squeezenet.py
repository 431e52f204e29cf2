"""SqueezeNet 1.0 and 1.1 (Iandola et al. 2016, arXiv:1602.07360, Table 1): 26 convolutions.

1.0: conv1 7x7/2 96 without padding, eight fire modules, conv10 1x1 to the classes, global average
pooling. Max-pools 3x3/2 follow conv1, fire4 and fire8 and round their size up, as in Caffe.
At 224x224: 109 -> 54 -> 27 -> 13. Dropout is left out (inference).

1.1 (the authors' release of the same year): conv1 is 3x3/2 64 and the later pools follow fire3 and
fire5, 2.3 times fewer MACs. Its 1,231,552 weights without biases are the 4.698 MiB that the
e-PlaNNer thesis prints in Table 8.1 (1.0 has 4.747), and as its pools never part two fire modules
of one width, 18 of its 26 convolutions are distinct, as in Table 4.1 (1.0: 22).
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000

FIRES = (
    # name, squeeze 1x1, expand 1x1 (= expand 3x3)
    ("fire2", 16, 64),
    ("fire3", 16, 64),
    ("fire4", 32, 128),
    ("fire5", 32, 128),
    ("fire6", 48, 192),
    ("fire7", 48, 192),
    ("fire8", 64, 256),
    ("fire9", 64, 256),
)


@dataclass(frozen=True)
class _Release:
    """What differs between the two: conv1 and the fire modules that a max-pool follows."""

    name: str
    channels: int
    kernel: int
    pooled: tuple[str, str]


_RELEASE_1_0 = _Release("squeezenet1.0", 96, 7, ("fire4", "fire8"))
_RELEASE_1_1 = _Release("squeezenet1.1", 64, 3, ("fire3", "fire5"))


def build_squeezenet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """SqueezeNet 1.0: [N, 3, S, S] -> logits [N, 1000]."""
    return _build(_RELEASE_1_0, seed, batch, input_size, width)


def build_squeezenet1_1(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """SqueezeNet 1.1: [N, 3, S, S] -> logits [N, 1000]."""
    return _build(_RELEASE_1_1, seed, batch, input_size, width)


def _build(
    release: _Release, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    net = NetworkBuilder(release.name, seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _conv_relu(net, x, "conv1", net.scaled(release.channels), release.kernel, stride=2)
    x = net.max_pool(x, "pool1", 3, stride=2, ceil=True)
    for name, squeeze, expand in FIRES:
        x = _fire(net, x, name, net.scaled(squeeze), net.scaled(expand))
        if name in release.pooled:
            x = net.max_pool(x, f"{name}/pool", 3, stride=2, ceil=True)
    # gain 2 / power: the logits behind the ReLU have about unit power.
    x = net.conv(x, "conv10", CLASSES, 1, gain=2.0 / x.moments.power)
    x = net.relu(x, "conv10/relu")
    x = net.global_avg_pool(x, "pool10")
    return net.model(net.flatten(x, "logits"))


def _fire(net: NetworkBuilder, x: Tensor, name: str, squeeze: int, expand: int) -> Tensor:
    """[N, C, H, W] -> [N, 2 * expand, H, W]."""
    s = _conv_relu(net, x, f"{name}/squeeze1x1", squeeze, 1)
    e1 = _conv_relu(net, s, f"{name}/expand1x1", expand, 1)
    e3 = _conv_relu(net, s, f"{name}/expand3x3", expand, 3, padding=1)
    return net.concat([e1, e3], f"{name}/concat")


def _conv_relu(
    net: NetworkBuilder,
    x: Tensor,
    name: str,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
) -> Tensor:
    x = net.conv(x, name, channels, kernel, stride=stride, padding=padding)
    return net.relu(x, f"{name}/relu")
