"""Hypothesis strategies for small NPU graphs with branches, and arrays to run through them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from hypothesis import strategies as st

from tvm_npu.codegen.graph import Clip, Graph, Layer, Shape, output_extent
from tvm_npu.codegen.ops import (
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    Maximum,
    Pad,
    Pool,
    ReflectPad,
    Reshape,
    ScaleShift,
    TableFunction,
    TransposedConv,
)

CLIPS = (Clip(0.0, np.inf), Clip(0.0, 6.0), Clip(-0.5, 0.75), Clip(-np.inf, 0.25))
OPS = (
    "conv", "conv", "conv", "depthwise", "pool", "add", "add", "add", "mul", "concat", "affine",
    "affine", "clip", "copy", "pad", "slice", "reshape", "dense",
)  # fmt: skip
"""What all machines take."""
ALL_OPS = (*OPS, "transposed", "transposed", "max", "feature map", "reflect", "sigmoid", "tanh")
RANKS = {
    **dict.fromkeys(("conv", "depthwise", "pool", "pad", "transposed", "reflect"), 3), "dense": 1,
}  # fmt: skip


@dataclass
class Builder:
    """Draws one layer after the other; an op that fits no tensor is left out."""

    draw: st.DrawFn
    generator: np.random.Generator
    shapes: dict[str, Shape]
    layers: list[Layer] = field(default_factory=list)

    def constants(self, *shape: int, fan_in: int = 1) -> np.ndarray:
        values = self.generator.standard_normal(shape) / np.sqrt(fan_in)
        return values.astype(np.float32)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, rank: int | None = None, shape: Shape | None = None) -> str | None:
        """A tensor of a rank or shape, later ones more often."""
        fitting = [
            name
            for name, known in self.shapes.items()
            if (rank is None or len(known) == rank) and (shape is None or known == shape)
        ]
        if not fitting:
            return None
        return fitting[-1 - min(self.number(0, 4), len(fitting) - 1)]

    def head(self, *inputs: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        index = len(self.layers)
        return (f"layer{index}", inputs, (f"t{index}",))

    def append(self, layer: Layer, shape: Shape) -> None:
        if min(shape) >= 1:
            self.layers.append(layer)
            self.shapes[layer.output] = shape

    def add_layer(self, op: str) -> None:
        x = self.pick(RANKS.get(op))
        if x is None:
            return
        shape = self.shapes[x]
        source = (f"op{len(self.layers)}",)
        if op in ("conv", "depthwise"):
            self.convolution(x, shape, op == "depthwise", source)
        elif op == "pool":
            self.pooling(x, shape, source)
        elif op in ("add", "mul"):
            same = [t for t, s in self.shapes.items() if s == shape and t != x][-4:]
            other = self.draw(st.sampled_from(same)) if same else x
            clip = self.draw(st.sampled_from((Clip(), *CLIPS)))
            pair = Elementwise(*self.head(x, other), op, clip, source=source)  # type: ignore
            self.append(pair, shape)
        elif op in ("transposed", "max", "feature map", "reflect", "sigmoid", "tanh"):
            self.rarer_layer(op, x, shape, source)
        elif op == "concat":
            parts = [x] * self.number(1, 2) + [
                t for t, s in self.shapes.items() if t != x and s[1:] == shape[1:]
            ][:2]
            channels = sum(self.shapes[part][0] for part in parts)
            self.append(Concat(*self.head(*parts), source=source), (channels, *shape[1:]))
        elif op == "affine":
            scale, bias = self.constants(shape[0]), self.constants(shape[0])
            if self.number(0, 2) == 0:
                bias = np.zeros_like(bias)
            self.append(ScaleShift(*self.head(x), scale, bias, source=source), shape)
        elif op in ("clip", "copy"):
            clip = self.draw(st.sampled_from(CLIPS)) if op == "clip" else Clip()
            self.append(Elementwise(*self.head(x), "copy", clip, source=source), shape)
        elif op == "pad":
            self.padding(x, shape, source)
        elif op == "slice":
            begin = self.number(0, shape[0] - 1)
            count = self.number(1, shape[0] - begin)
            self.append(ChannelSlice(*self.head(x), begin, source=source), (count, *shape[1:]))
        elif op == "reshape":
            self.append(Reshape(*self.head(x), source=source), (prod(shape),))
        else:
            filters = self.number(1, 5)
            weight = self.constants(filters, shape[0], fan_in=shape[0])
            dense = Dense(*self.head(x), weight, self.constants(filters), source=source)
            self.append(dense, (filters,))

    def rarer_layer(self, op: str, x: str, shape: Shape, source: tuple[str, ...]) -> None:
        """Those that not every machine takes."""
        clip = self.draw(st.sampled_from((Clip(), Clip(), *CLIPS)))
        if op == "transposed":
            self.transposed(x, shape, clip, source)
        elif op == "max":
            same = [t for t, s in self.shapes.items() if s == shape][-4:]
            other = self.draw(st.sampled_from(same))
            self.append(Maximum(*self.head(x, other), clip, source=source), shape)
        elif op == "feature map" and shape[0] > 1:
            half = (shape[0] // 2, *shape[1:])
            for begin in (0, half[0]):
                made = ChannelSlice(*self.head(x), begin, source=(f"{source[0]}.{begin}",))
                self.append(made, half)
            parts = (self.layers[-1].output, self.layers[-2].output)
            self.append(Maximum(*self.head(*parts), clip, source=source), half)
        elif op == "reflect":
            padding = tuple(self.number(0, shape[1 + axis % 2] - 1) for axis in range(4))
            top, left, bottom, right = padding
            widened = (shape[0], shape[1] + top + bottom, shape[2] + left + right)
            self.append(ReflectPad(*self.head(x), padding, source=source), widened)
        elif op in ("sigmoid", "tanh"):
            self.append(TableFunction(*self.head(x), op, source=source), shape)  # type: ignore

    def transposed(self, x: str, shape: Shape, clip: Clip, source: tuple[str, ...]) -> None:
        kernel, stride = ((self.number(1, 3), self.number(1, 3)) for _ in range(2))
        padding = tuple(self.number(0, kernel[axis % 2] - 1) for axis in range(4))
        more = (self.number(0, stride[0] - 1), self.number(0, stride[1] - 1))
        groups = 2 if shape[0] % 2 == 0 and self.number(0, 1) else 1
        filters, depth = groups * self.number(1, 2), shape[0] // groups
        rows, columns = (
            (shape[1 + i] - 1) * stride[i] + kernel[i] + more[i] - padding[i] - padding[i + 2]
            for i in range(2)
        )
        weight = self.constants(filters, depth, *kernel, fan_in=depth * kernel[0] * kernel[1])
        self.append(
            TransposedConv(
                *self.head(x), weight, self.constants(filters), stride, padding, more, groups,
                clip, source=source,
            ),
            (filters, rows, columns),
        )  # fmt: skip

    def window(self, shape: Shape, dilation: int) -> tuple[int, int, int, int] | None:
        """kernel rows and columns that fit, and one stride for each axis."""
        kernel = (self.number(1, 3), self.number(1, 3))
        if any((k - 1) * dilation + 1 > e for k, e in zip(kernel, shape[1:], strict=True)):
            return None
        return (*kernel, self.number(1, 2), self.number(1, 2))

    def convolution(self, x: str, shape: Shape, depthwise: bool, source: tuple[str, ...]) -> None:
        dilation = self.number(1, 2)
        window = self.window(shape, dilation)
        if window is None:
            return
        kernel_h, kernel_w, stride_h, stride_w = window
        groups = shape[0] if depthwise else 1
        filters = groups * self.number(1, 2) if depthwise else self.number(1, 4)
        if not depthwise and shape[0] % 2 == 0 and filters % 2 == 0:
            groups = self.number(1, 2)
        depth = shape[0] // groups
        weight = self.constants(
            filters, depth, kernel_h, kernel_w, fan_in=depth * kernel_h * kernel_w
        )
        padding = tuple(self.number(-1 if min(shape[1:]) > 4 else 0, 2) for _ in range(4))
        style = self.number(0, 3)
        if style == 0:
            padding = (0, 0, 0, 0)
        elif style > 1:
            padding, weight = self.same_shape(shape, groups, dilation)
            filters, _, kernel_h, kernel_w = weight.shape
            stride_h = stride_w = 1
        rows = output_extent(shape[1], kernel_h, stride_h, dilation, padding[0] + padding[2])
        columns = output_extent(shape[2], kernel_w, stride_w, dilation, padding[1] + padding[3])
        clip = self.draw(st.sampled_from((Clip(), Clip(), CLIPS[0])))
        self.append(
            Conv2d(
                *self.head(x), weight, self.constants(filters), (stride_h, stride_w), padding,
                (dilation, dilation), groups, clip, source=source,
            ),
            (filters, rows, columns),
        )  # fmt: skip

    def same_shape(
        self, shape: Shape, groups: int, dilation: int
    ) -> tuple[tuple[int, ...], np.ndarray]:
        """Padding and weight of a convolution whose output can be added to its input."""
        half = self.number(0, 1)
        groups = groups if shape[0] % groups == 0 else 1
        depth, kernel = shape[0] // groups, 2 * half + 1
        weight = self.constants(shape[0], depth, kernel, kernel, fan_in=depth * kernel * kernel)
        return (half * dilation,) * 4, weight

    def pooling(self, x: str, shape: Shape, source: tuple[str, ...]) -> None:
        window = self.window(shape, 1)
        if window is None:
            return
        kernel, stride = window[:2], window[2:]
        counted = tuple(self.number(0, kernel[axis % 2] - 1) for axis in range(4))
        extra = self.number(0, 1) if min(kernel) > 1 else 0
        padding = (counted[0], counted[1], max(counted[2], extra), max(counted[3], extra))
        rows = output_extent(shape[1], kernel[0], stride[0], 1, padding[0] + padding[2])
        columns = output_extent(shape[2], kernel[1], stride[1], 1, padding[1] + padding[3])
        kind = self.draw(st.sampled_from(("max", "avg")))
        include = self.draw(st.booleans())
        self.append(
            Pool(*self.head(x), kind, kernel, stride, padding, include, counted, source=source),
            (shape[0], rows, columns),
        )

    def padding(self, x: str, shape: Shape, source: tuple[str, ...]) -> None:
        channels = self.number(0, 3) == 0
        amounts = [self.number(-1, 2) if axis or channels else 0 for axis in (0, 1, 2) * 2]
        if self.number(0, 3) == 0:
            amounts = [0] * 6
        stride = (self.number(1, 2), self.number(1, 2)) if self.number(0, 2) == 0 else (1, 1)
        before, after = tuple(amounts[:3]), tuple(amounts[3:])
        padded = [e + a + b for e, a, b in zip(shape, before, after, strict=True)]
        if any(e + min(a, 0) + min(b, 0) < 1 for e, a, b in zip(shape, before, after, strict=True)):
            return
        value = self.draw(st.sampled_from((0.0, 0.0, 0.5)))
        self.append(
            Pad(*self.head(x), before, after, stride, value, source=source),
            (padded[0], -(-padded[1] // stride[0]), -(-padded[2] // stride[1])),
        )


@st.composite
def graphs(draw: st.DrawFn, max_layers: int = 10, ops: tuple[str, ...] = OPS) -> Graph:
    """A graph of one or two inputs, up to ``max_layers`` of ``ops`` and some outputs."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(3, 6)), draw(st.integers(3, 6)))
    inputs = ["x0", "x1"][: draw(st.integers(1, 2))]
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    builder = Builder(draw, generator, {name: shape for name in inputs})
    for op in draw(st.lists(st.sampled_from(ops), min_size=2, max_size=max_layers)):
        builder.add_layer(op)
    made = [layer.output for layer in builder.layers] or inputs
    read = {tensor for layer in builder.layers for tensor in layer.inputs}
    if draw(st.booleans()):
        extra = [tensor for tensor in made if tensor not in read]
    else:
        extra = draw(st.lists(st.sampled_from(made), max_size=2))
    outputs = dict.fromkeys([made[-1], *extra])
    return Graph(tuple(builder.layers), builder.shapes, tuple(inputs), tuple(outputs))


def random_inputs(graph: Graph, seed: int, batch: int = 2) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        name: generator.standard_normal((batch, *graph.shapes[name]), dtype=np.float32)
        for name in graph.inputs
    }
