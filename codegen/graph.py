"""The NPU graph: what a region of a network means, free of any TVM type.

A :class:`Graph` is a list of layers in execution order over named tensors. Tensor shapes leave
the batch out: ``(C, H, W)`` or ``(C,)``; arrays that run through a graph carry the batch in front.
A door (Relay, Relax) builds a graph of primitive layers with float weights; `codegen.fuse` merges
them, `codegen.quantize` turns the result into fixed point and `codegen.reference` says what
either means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError

FloatArray = NDArray[np.float32]
Shape = tuple[int, ...]
Padding = tuple[int, int, int, int]
"""top, left, bottom, right; a negative value crops."""


@dataclass(frozen=True)
class Clip:
    """Bounds of an activation: ReLU is ``Clip(0, inf)``, ReLU6 ``Clip(0, 6)``."""

    low: float = -np.inf
    high: float = np.inf

    @property
    def is_identity(self) -> bool:
        return self.low == -np.inf and self.high == np.inf

    def then(self, other: Clip) -> Clip:
        """The clip that equals applying ``self`` and then ``other``."""
        low = min(max(self.low, other.low), other.high)
        high = min(max(self.high, other.low), other.high)
        return Clip(low, high)


NO_CLIP = Clip()
RELU = Clip(0.0, np.inf)


@dataclass(frozen=True, eq=False)
class Layer:
    """Common part of all layers: who it is, what it reads and writes, where it came from."""

    name: str
    inputs: tuple[str, ...]
    output: str
    source: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of the source operators (for example ONNX nodes) that this layer implements."""


@dataclass(frozen=True, eq=False)
class Conv2d(Layer):
    """Convolution, NCHW; optional second input: a residual added before the clip.

    ``weight`` is [M, N / groups, kernel_h, kernel_w], ``bias`` [M]; both float32.
    """

    weight: FloatArray
    bias: FloatArray
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    clip: Clip = NO_CLIP

    @property
    def kernel(self) -> tuple[int, int]:
        return (self.weight.shape[2], self.weight.shape[3])


@dataclass(frozen=True, eq=False)
class Dense(Layer):
    """Fully connected layer on a flat tensor; optional second input: a residual.

    ``weight`` is [M, N], ``bias`` [M]; both float32.
    """

    weight: FloatArray
    bias: FloatArray
    clip: Clip = NO_CLIP


@dataclass(frozen=True, eq=False)
class Pool(Layer):
    """Max or average pooling. ``padding`` already contains what ceil_mode adds at the end.

    The divisor of an average is the part of the window that lies inside the tensor, or, with
    ``count_include_pad``, inside the tensor widened by ``counted_padding`` (the padding that the
    user gave, without what ceil_mode added).
    """

    kind: Literal["max", "avg"]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    count_include_pad: bool = False
    counted_padding: Padding = (0, 0, 0, 0)
    clip: Clip = NO_CLIP


@dataclass(frozen=True, eq=False)
class Affine(Layer):
    """Per-channel ``x * scale + bias`` by constants [C]; `codegen.fuse` turns all of them into
    parts of a convolution or depthwise 1x1 convolutions."""

    scale: FloatArray
    bias: FloatArray


@dataclass(frozen=True, eq=False)
class Elementwise(Layer):
    """``add`` or ``mul`` of two tensors of one shape, or ``copy`` of one; then the clip."""

    op: Literal["add", "mul", "copy"]
    clip: Clip = NO_CLIP


@dataclass(frozen=True, eq=False)
class Pad(Layer):
    """Constant padding of (C, H, W); negative amounts crop; ``stride`` then keeps every n-th
    row and column (a strided slice is a Pad with negative amounts and a stride)."""

    before: tuple[int, int, int]
    after: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    value: float = 0.0


@dataclass(frozen=True, eq=False)
class Concat(Layer):
    """Concatenation along the channels (the first axis of the batch-free shape)."""


@dataclass(frozen=True, eq=False)
class Reshape(Layer):
    """The same elements in the same order under another shape."""


@dataclass(frozen=True, eq=False)
class ChannelSlice(Layer):
    """Channels ``begin`` to ``begin + C_out`` of the input."""

    begin: int


@dataclass(frozen=True, eq=False)
class Graph:
    """A region: layers in execution order, every tensor's batch-free shape, inputs, outputs."""

    layers: tuple[Layer, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = "npu"

    def __post_init__(self) -> None:
        known = set(self.inputs)
        for layer in self.layers:
            for tensor in layer.inputs:
                if tensor not in known:
                    raise GraphError(f"layer {layer.name!r} reads {tensor!r}, which nothing made")
            if layer.output in known:
                raise GraphError(f"tensor {layer.output!r} is written twice ({layer.name!r})")
            known.add(layer.output)
        for tensor in self.outputs:
            if tensor not in known:
                raise GraphError(f"output {tensor!r} is made by no layer")
        for tensor in known:
            shape = self.shapes.get(tensor)
            if shape is None:
                raise GraphError(f"tensor {tensor!r} has no shape")
            if not shape or any(extent < 1 for extent in shape):
                raise GraphError(f"tensor {tensor!r} has shape {shape}; every extent must be >= 1")

    def producer(self, tensor: str) -> Layer | None:
        """The layer that writes ``tensor``; None for a graph input."""
        return next((layer for layer in self.layers if layer.output == tensor), None)

    def consumers(self, tensor: str) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if tensor in layer.inputs)

    def with_layers(self, layers: Iterable[Layer], shapes: dict[str, Shape] | None = None) -> Graph:
        """This graph with other layers; shapes of tensors no longer used are dropped."""
        kept = tuple(layers)
        merged = {**self.shapes, **(shapes or {})}
        used = {*self.inputs, *(layer.output for layer in kept)}
        return replace(self, layers=kept, shapes={t: merged[t] for t in merged if t in used})


def chw(shape: Shape) -> tuple[int, int, int]:
    """A batch-free shape seen as (C, H, W): flat tensors have H = W = 1."""
    if len(shape) == 3:
        return (shape[0], shape[1], shape[2])
    return (prod(shape), 1, 1)


def output_extent(extent: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Output rows or columns of a window operation; ``padding`` is both sides' sum."""
    return (extent + padding - ((kernel - 1) * dilation + 1)) // stride + 1


def layer_macs(layer: Layer, shapes: dict[str, Shape]) -> int:
    """Multiply-accumulates of one layer for one image (convolution and dense layers only)."""
    if isinstance(layer, Conv2d):
        _, rows, columns = chw(shapes[layer.output])
        return layer.weight.size * rows * columns
    if isinstance(layer, Dense):
        return layer.weight.size
    return 0


def iter_weights(graph: Graph) -> Iterator[tuple[Layer, FloatArray]]:
    for layer in graph.layers:
        if isinstance(layer, Conv2d | Dense):
            yield layer, layer.weight
