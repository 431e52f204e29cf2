"""Chains of convolutions made to be cut into pipeline stages.

`synthnet` is the 18-layer network of the Shisha paper (section 7.1), "a replication of AlexNet's
convolutional layers". The paper does not print how; a chain that runs needs channels that fit, so
ours is conv1, conv2 and four times (conv3, conv4, conv5, conv2 again on 256 channels at 13x13):
every layer has the kernel and the number of filters of an AlexNet layer, and the sum, 3.75 GMAC,
is that of a ResNet-50.

`synth1` to `synth3` have exactly the relative layer weights of Table 7 of the Pipe-Search paper,
where a layer's weight is H W C R S K (its Equation 1). All layers keep H and W; the odd part of a
weight is the area of the kernel (9: 3x3; 3, 5, 7, 11: one row), and its power of two is in the
product of input and output channels, C K = UNIT_CHANNELS^2 * 2^p.
"""

from __future__ import annotations

import math

import onnx

from ._builder import NetworkBuilder, Pair

SYNTHNET_DEFAULT_SIZE = 227
SYNTHNET_MINIMUM_SIZE = 35
SYNTHNET_GROUPS = 4

SYNTH_DEFAULT_SIZE = 56
SYNTH_MINIMUM_SIZE = 8
UNIT_CHANNELS = 32

WEIGHTS: dict[str, tuple[int, ...]] = {
    "synth1": (1, 4, 8, 4, 8, 8, 4),
    "synth2": (1, 9, 4, 8, 5, 4, 8, 5, 7, 1, 1, 1, 4, 8, 22),
    "synth3": (1, 9, 4, 8, 20, 2, 22, 3, 4, 8, 7, 11, 11),
}
"""Relative layer weights, Table 7 of the Pipe-Search paper."""


def build_synthnet(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> [N, 256, 13, 13] at S = 227."""
    net = NetworkBuilder("synthnet", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = net.conv(x, "conv1", net.scaled(96), 11, stride=4)
    x = net.max_pool(net.relu(x, "conv1/relu"), "conv1/pool", 3, stride=2)
    x = net.conv(x, "conv2", net.scaled(256), 5, padding=2)
    x = net.max_pool(net.relu(x, "conv2/relu"), "conv2/pool", 3, stride=2)
    index = 2
    for _ in range(SYNTHNET_GROUPS):
        for channels, kernel in ((384, 3), (384, 3), (256, 3), (256, 5)):
            index += 1
            x = net.conv(x, f"conv{index}", net.scaled(channels), kernel, padding=kernel // 2)
            x = net.relu(x, f"conv{index}/relu")
    return net.model(x)


def build_synth1(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 32, S, S] -> [N, 64, S, S]: 7 convolutions, 37 units of weight."""
    return _build_synth("synth1", seed, batch, input_size, width)


def build_synth2(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 32, S, S] -> [N, 32, S, S]: 15 convolutions, 88 units of weight."""
    return _build_synth("synth2", seed, batch, input_size, width)


def build_synth3(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 32, S, S] -> [N, 32, S, S]: 13 convolutions, 110 units of weight."""
    return _build_synth("synth3", seed, batch, input_size, width)


def _build_synth(
    name: str, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    net = NetworkBuilder(name, seed=seed, width=width)
    x = net.input("data", (batch, net.scaled(UNIT_CHANNELS), input_size, input_size))
    channels = UNIT_CHANNELS
    for index, weight in enumerate(WEIGHTS[name], start=1):
        odd, power = _odd_part(weight)
        channels = UNIT_CHANNELS * UNIT_CHANNELS * power // channels
        kernel = _kernel(odd)
        padding = (kernel[0] // 2, kernel[1] // 2)
        x = net.conv(x, f"conv{index}", net.scaled(channels), kernel, padding=padding)
        x = net.relu(x, f"conv{index}/relu")
    return net.model(x)


def _odd_part(weight: int) -> tuple[int, int]:
    """20 -> (5, 4)."""
    power = weight & -weight
    return weight // power, power


def _kernel(area: int) -> Pair:
    """The squarest kernel of an odd area: 9 -> (3, 3); 5 -> (1, 5)."""
    rows = max(r for r in range(1, math.isqrt(area) + 1) if area % r == 0)
    return rows, area // rows
