"""InceptionV3 (Szegedy et al. 2015, arXiv:1512.00567): 94 convolutions and an FC.

The layer list of TF-slim and Keras without the auxiliary head; block names are TF-slim's
(Mixed_5b ... Mixed_7c). Every convolution has batch normalization (scale fixed at one, epsilon
0.001) and ReLU. Average pools inside the blocks leave padding out of the mean. At 299x299 the
stem runs 149, 147, 147, pool 73, 73, 71, pool 35; the blocks run at 35, 17 and 8.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Pair, Tensor, pair

DEFAULT_SIZE = 299
MINIMUM_SIZE = 75
CLASSES = 1000
BN_EPSILON = 1e-3


def build_inception_v3(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> logits [N, 1000]."""
    net = _InceptionBuilder("inception_v3", seed=seed, width=width)
    x = net.input("data", (batch, 3, input_size, input_size))
    x = net.unit(x, "Conv2d_1a_3x3", 32, 3, stride=2, valid=True)
    x = net.unit(x, "Conv2d_2a_3x3", 32, 3, valid=True)
    x = net.unit(x, "Conv2d_2b_3x3", 64, 3)
    x = net.max_pool(x, "MaxPool_3a_3x3", 3, stride=2)
    x = net.unit(x, "Conv2d_3b_1x1", 80, 1, valid=True)
    x = net.unit(x, "Conv2d_4a_3x3", 192, 3, valid=True)
    x = net.max_pool(x, "MaxPool_5a_3x3", 3, stride=2)
    for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        x = _block_35(net, x, name, pooled)
    x = _reduction_35_to_17(net, x, "Mixed_6a")
    for name, inner in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        x = _block_17(net, x, name, inner)
    x = _reduction_17_to_8(net, x, "Mixed_7a")
    for name in ("Mixed_7b", "Mixed_7c"):
        x = _block_8(net, x, name)
    x = net.global_avg_pool(x, "AvgPool_1a_8x8")
    x = net.flatten(x, "flatten")
    return net.model(net.classifier(x, "logits", CLASSES))


class _InceptionBuilder(NetworkBuilder):
    def unit(
        self,
        x: Tensor,
        name: str,
        channels: int,
        kernel: int | Pair,
        *,
        stride: int = 1,
        valid: bool = False,
    ) -> Tensor:
        """Convolution (same padding unless `valid`), batch normalization, ReLU."""
        kh, kw = pair(kernel)
        padding = (0, 0) if valid else (kh // 2, kw // 2)
        x = self.conv(
            x, name, self.scaled(channels), kernel, stride=stride, padding=padding, bias=False
        )
        x = self.batch_norm(x, f"{name}/bn", epsilon=BN_EPSILON, scaled=False)
        return self.relu(x, f"{name}/relu")

    def chain(self, x: Tensor, name: str, units: tuple[tuple[str, int, int | Pair], ...]) -> Tensor:
        """Units one behind the other; each is (suffix, channels, kernel)."""
        for suffix, channels, kernel in units:
            x = self.unit(x, f"{name}/{suffix}", channels, kernel)
        return x

    def pool_branch(self, x: Tensor, name: str, channels: int) -> Tensor:
        """3x3 average pool at stride one, then a 1x1."""
        x = self.avg_pool(x, f"{name}/pool", 3, stride=1, padding=1)
        return self.unit(x, f"{name}/pool_1x1", channels, 1)


def _block_35(net: _InceptionBuilder, x: Tensor, name: str, pooled: int) -> Tensor:
    """[N, C, 35, 35] -> [N, 224 + pooled, 35, 35]; 7 convolutions."""
    b0 = net.unit(x, f"{name}/b0_1x1", 64, 1)
    b1 = net.chain(x, name, (("b1_1x1", 48, 1), ("b1_5x5", 64, 5)))
    b2 = net.chain(x, name, (("b2_1x1", 64, 1), ("b2_3x3a", 96, 3), ("b2_3x3b", 96, 3)))
    b3 = net.pool_branch(x, f"{name}/b3", pooled)
    return net.concat([b0, b1, b2, b3], f"{name}/concat")


def _reduction_35_to_17(net: _InceptionBuilder, x: Tensor, name: str) -> Tensor:
    """[N, 288, 35, 35] -> [N, 768, 17, 17]; 4 convolutions."""
    b0 = net.unit(x, f"{name}/b0_3x3", 384, 3, stride=2, valid=True)
    b1 = net.chain(x, name, (("b1_1x1", 64, 1), ("b1_3x3a", 96, 3)))
    b1 = net.unit(b1, f"{name}/b1_3x3b", 96, 3, stride=2, valid=True)
    b2 = net.max_pool(x, f"{name}/b2_pool", 3, stride=2)
    return net.concat([b0, b1, b2], f"{name}/concat")


def _block_17(net: _InceptionBuilder, x: Tensor, name: str, inner: int) -> Tensor:
    """[N, 768, 17, 17] -> [N, 768, 17, 17] with 1x7 and 7x1 kernels; 10 convolutions."""
    b0 = net.unit(x, f"{name}/b0_1x1", 192, 1)
    b1 = net.chain(
        x, name, (("b1_1x1", inner, 1), ("b1_1x7", inner, (1, 7)), ("b1_7x1", 192, (7, 1)))
    )
    b2 = net.chain(
        x,
        name,
        (
            ("b2_1x1", inner, 1),
            ("b2_7x1a", inner, (7, 1)),
            ("b2_1x7a", inner, (1, 7)),
            ("b2_7x1b", inner, (7, 1)),
            ("b2_1x7b", 192, (1, 7)),
        ),
    )
    b3 = net.pool_branch(x, f"{name}/b3", 192)
    return net.concat([b0, b1, b2, b3], f"{name}/concat")


def _reduction_17_to_8(net: _InceptionBuilder, x: Tensor, name: str) -> Tensor:
    """[N, 768, 17, 17] -> [N, 1280, 8, 8]; 6 convolutions."""
    b0 = net.unit(x, f"{name}/b0_1x1", 192, 1)
    b0 = net.unit(b0, f"{name}/b0_3x3", 320, 3, stride=2, valid=True)
    b1 = net.chain(x, name, (("b1_1x1", 192, 1), ("b1_1x7", 192, (1, 7)), ("b1_7x1", 192, (7, 1))))
    b1 = net.unit(b1, f"{name}/b1_3x3", 192, 3, stride=2, valid=True)
    b2 = net.max_pool(x, f"{name}/b2_pool", 3, stride=2)
    return net.concat([b0, b1, b2], f"{name}/concat")


def _block_8(net: _InceptionBuilder, x: Tensor, name: str) -> Tensor:
    """[N, C, 8, 8] -> [N, 2048, 8, 8]; 9 convolutions."""
    b0 = net.unit(x, f"{name}/b0_1x1", 320, 1)
    b1 = net.unit(x, f"{name}/b1_1x1", 384, 1)
    b1_row = net.unit(b1, f"{name}/b1_1x3", 384, (1, 3))
    b1_column = net.unit(b1, f"{name}/b1_3x1", 384, (3, 1))
    b2 = net.chain(x, name, (("b2_1x1", 448, 1), ("b2_3x3", 384, 3)))
    b2_row = net.unit(b2, f"{name}/b2_1x3", 384, (1, 3))
    b2_column = net.unit(b2, f"{name}/b2_3x1", 384, (3, 1))
    b3 = net.pool_branch(x, f"{name}/b3", 192)
    return net.concat([b0, b1_row, b1_column, b2_row, b2_column, b3], f"{name}/concat")
