"""MobileNetV3 (Howard et al. 2019, arXiv:1905.02244, Tables 1 and 2), as torchvision builds it.

Inverted residuals with ReLU or hard-swish, some with squeeze and excitation behind the depthwise
convolution (a quarter of the expanded channels, ReLU, hard sigmoid). Batch normalization (epsilon
0.001) behind every convolution. `backbone` dilates the last blocks for segmentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx

from ._builder import Tensor
from ._modern_builder import ModernBuilder
from .mobilenet_v2 import divisible_channels

DEFAULT_SIZE = 224
MINIMUM_SIZE = 32
CLASSES = 1000
STEM_CHANNELS = 16
EPSILON = 1e-3
SQUEEZE = 4
EXPANSION_OF_LAST = 6
GATE_GAIN = 0.1
"""Of the convolution before a gate: gates stay where they are steep."""


@dataclass(frozen=True)
class Block:
    """One row of the tables: kernel, expanded and output channels, squeeze and excitation, hard
    swish instead of ReLU, stride."""

    kernel: int
    expanded: int
    channels: int
    excited: bool
    swish: bool
    stride: int


LARGE = (
    Block(3, 16, 16, False, False, 1), Block(3, 64, 24, False, False, 2),
    Block(3, 72, 24, False, False, 1), Block(5, 72, 40, True, False, 2),
    Block(5, 120, 40, True, False, 1), Block(5, 120, 40, True, False, 1),
    Block(3, 240, 80, False, True, 2), Block(3, 200, 80, False, True, 1),
    Block(3, 184, 80, False, True, 1), Block(3, 184, 80, False, True, 1),
    Block(3, 480, 112, True, True, 1), Block(3, 672, 112, True, True, 1),
    Block(5, 672, 160, True, True, 2), Block(5, 960, 160, True, True, 1),
    Block(5, 960, 160, True, True, 1),
)  # fmt: skip
SMALL = (
    Block(3, 16, 16, True, False, 2), Block(3, 72, 24, False, False, 2),
    Block(3, 88, 24, False, False, 1), Block(5, 96, 40, True, True, 2),
    Block(5, 240, 40, True, True, 1), Block(5, 240, 40, True, True, 1),
    Block(5, 120, 48, True, True, 1), Block(5, 144, 48, True, True, 1),
    Block(5, 288, 96, True, True, 2), Block(5, 576, 96, True, True, 1),
    Block(5, 576, 96, True, True, 1),
)  # fmt: skip
DILATED_LARGE = frozenset({12, 13, 14})
"""Blocks of the large network that segmentation dilates by 2; their strides are 1."""


def _build(
    name: str, blocks: tuple[Block, ...], head: int, *, seed: int, batch: int, input_size: int,
    width: float,
) -> onnx.ModelProto:  # fmt: skip
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = ModernBuilder(name, seed=seed, width=width)
    x = backbone(net, net.input("data", (batch, 3, input_size, input_size)), blocks)[-1]
    x = net.flatten(net.global_avg_pool(x, "pool"), "flatten")
    x = net.hard_swish(net.dense(x, "head", divisible_channels(head * width)), "head/swish")
    return net.model(net.classifier(x, "logits", CLASSES))


build_mobilenet_v3_large: Callable[..., onnx.ModelProto] = partial(
    _build, "mobilenet_v3_large", LARGE, 1280
)
build_mobilenet_v3_small: Callable[..., onnx.ModelProto] = partial(
    _build, "mobilenet_v3_small", SMALL, 1024
)


def backbone(
    net: ModernBuilder, x: Tensor, blocks: tuple[Block, ...],
    dilated: frozenset[int] = frozenset(),
) -> list[Tensor]:  # fmt: skip
    """The stem, every block and the last convolution."""
    x = conv_bn(net, x, "stem", divisible_channels(STEM_CHANNELS * net.width), 3, stride=2)
    features = [net.hard_swish(x, "stem/swish")]
    for number, block in enumerate(blocks):
        rate = 2 if number in dilated else 1
        features.append(_inverted_residual(net, features[-1], f"block{number}", block, rate))
    last = EXPANSION_OF_LAST * features[-1].channels
    x = conv_bn(net, features[-1], "last", last, 1)
    return [*features, net.hard_swish(x, "last/swish")]


def _inverted_residual(net: ModernBuilder, x: Tensor, name: str, block: Block, rate: int) -> Tensor:
    act = net.hard_swish if block.swish else net.relu
    hidden = divisible_channels(block.expanded * net.width)
    channels = divisible_channels(block.channels * net.width)
    stride = 1 if rate > 1 else block.stride
    y = x
    if hidden != x.channels:
        y = act(conv_bn(net, y, f"{name}/expand", hidden, 1), f"{name}/expand/act")
    y = conv_bn(
        net, y, f"{name}/depthwise", hidden, block.kernel, stride=stride, groups=hidden, rate=rate
    )
    y = act(y, f"{name}/depthwise/act")
    if block.excited:
        squeezed = divisible_channels(hidden // SQUEEZE)
        y = squeeze_excite(net, y, f"{name}/se", squeezed, net.relu, net.hard_sigmoid)
    y = conv_bn(net, y, f"{name}/project", channels, 1)
    if block.stride == 1 and x.channels == channels:
        return net.add(x, y, f"{name}/add")
    return y


Activation = Callable[[Tensor, str], Tensor]


def squeeze_excite(
    net: ModernBuilder, x: Tensor, name: str, squeezed: int, inner: Activation, gate: Activation
) -> Tensor:
    """x times a gate a channel that a small network computes from the channels' means."""
    y = net.global_avg_pool(x, f"{name}/pool")
    y = inner(net.conv(y, f"{name}/reduce", squeezed, 1), f"{name}/act")
    y = net.conv(y, f"{name}/expand", x.channels, 1, gain=GATE_GAIN)
    return net.gate(x, gate(y, f"{name}/gate"), f"{name}/scale")


def conv_bn(
    net: ModernBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1,
    groups: int = 1, rate: int = 1, epsilon: float = EPSILON,
) -> Tensor:  # fmt: skip
    """A convolution without a bias, padded to keep rows and columns, and its normalization."""
    x = net.conv(
        x, name, channels, kernel, stride=stride, padding=kernel // 2 * rate, groups=groups,
        dilation=rate, bias=False,
    )  # fmt: skip
    return net.batch_norm(x, f"{name}/bn", epsilon=epsilon)
