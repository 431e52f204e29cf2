"""Feed-forward style transfer (Johnson et al. 2016, arXiv:1603.08155, and its published code).

c9s1-32, d64, d128, five residual blocks R128, u64, u32, c9s1-3: convolutions with stride 2 go
down, transposed ones go up again. 9x9 convolutions and those of the residual blocks have reflection
padding, the others zeros (`-padding_type reflect`). Batch normalization and ReLU behind each but
the last, which ends in a tanh; its scale to pixel values (150) is left to who shows the picture.
16 convolutions, two of them transposed; 1,679,235 weights, biases and scales.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor

DEFAULT_SIZE = 256
MINIMUM_SIZE = 16
RESIDUAL_BLOCKS = 5


def build_style_transfer(
    *, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    """[N, 3, S, S] -> [N, 3, S', S'] between -1 and 1; S' is S rounded up to a multiple of 4."""
    net = NetworkBuilder("style_transfer", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = _norm_relu(net, _reflected(net, x, "c9s1-32", net.scaled(32), 9), "c9s1-32")
    for name, channels in (("d64", 64), ("d128", 128)):
        x = net.conv(x, name, net.scaled(channels), 3, stride=2, padding=1)
        x = _norm_relu(net, x, name)
    for number in range(1, RESIDUAL_BLOCKS + 1):
        x = _residual(net, x, f"R128_{number}")
    for name, channels in (("u64", 64), ("u32", 32)):
        x = net.conv_transpose(
            x, name, net.scaled(channels), 3, stride=2, padding=1, output_padding=1
        )
        x = _norm_relu(net, x, name)
    x = _reflected(net, x, "c9s1-3", 3, 9, gain=0.5)
    return net.model(net.tanh(x, "picture"))


def _residual(net: NetworkBuilder, x: Tensor, name: str) -> Tensor:
    """Two 3x3 convolutions, the second without ReLU; nothing behind the sum."""
    y = _norm_relu(net, _reflected(net, x, f"{name}/first", x.channels, 3), f"{name}/first")
    y = _reflected(net, y, f"{name}/second", x.channels, 3)
    y = net.batch_norm(y, f"{name}/second/bn")
    return net.add(x, y, f"{name}/add")


def _reflected(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int, *, gain: float = 2.0
) -> Tensor:
    """A convolution that keeps rows and columns."""
    x = net.reflect_pad(x, f"{name}/pad", kernel // 2)
    return net.conv(x, name, channels, kernel, gain=gain)


def _norm_relu(net: NetworkBuilder, x: Tensor, name: str) -> Tensor:
    return net.relu(net.batch_norm(x, f"{name}/bn"), f"{name}/relu")
