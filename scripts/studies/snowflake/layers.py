"""Single layers as regions: integers that nobody chose, and what the reference makes of them."""

from __future__ import annotations

import numpy as np

from studies.shared.networks import Region
from studies.snowflake.published import Convolution
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.reference import run_fixed

Q_POINT = 8
"""Q8.8, the paper's."""
LARGEST_INPUT, LARGEST_WEIGHT, LARGEST_BIAS = 900, 300, 1 << 20


def convolution_region(layer: Convolution, seed: int = 0) -> Region:
    """With biases and ReLU."""
    rng = np.random.default_rng(seed)
    kernel, around = layer.kernel, layer.padding
    conv = ops.FixedConv(
        "conv", ("x",), ("y",), _weights(rng, (layer.filters, layer.planes, kernel, kernel)),
        _biases(rng, layer.filters), (layer.stride, layer.stride),
        (around, around, around, around), shift=9, low=0, high=32767,
    )  # fmt: skip
    out = (layer.filters, layer.out_size, layer.out_size)
    return _region(conv, (layer.planes, layer.size, layer.size), out, rng)


def max_pool_region(seed: int = 0) -> Region:
    """AlexNet's second max-pool."""
    pool = ops.FixedPool(
        "pool", ("x",), ("y",), "max", (3, 3), (2, 2), shift=0, low=-32768, high=32767
    )
    return _region(pool, (256, 27, 27), (256, 13, 13), np.random.default_rng(seed))


def transposed_conv_region(seed: int = 0) -> Region:
    """3x3 kernel, stride 2, 32x32x64 to 64x64x64."""
    rng = np.random.default_rng(seed)
    conv = ops.FixedTransposedConv(
        "transposed", ("x",), ("y",), _weights(rng, (64, 64, 3, 3)), _biases(rng, 64), (2, 2),
        (1, 1, 1, 1), (1, 1), shift=9, low=-32768, high=32767,
    )  # fmt: skip
    return _region(conv, (64, 32, 32), (64, 64, 64), rng)


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT, shape).astype(np.int16)


def _biases(rng: np.random.Generator, filters: int) -> np.ndarray:
    return rng.integers(-LARGEST_BIAS, LARGEST_BIAS, filters).astype(np.int32)


def _region(layer: FixedLayer, source: Shape, target: Shape, rng: np.random.Generator) -> Region:
    shapes: dict[str, Shape] = {"x": source, "y": target}
    fixed = FixedGraph(
        (layer,), shapes, ("x",), ("y",), q_point_scales(dict.fromkeys(shapes, Q_POINT)), 2
    )
    x = rng.integers(-LARGEST_INPUT, LARGEST_INPUT, (1, *source)).astype(np.int16)
    return Region(fixed, (x,), (run_fixed(fixed, {"x": x})["y"],))
