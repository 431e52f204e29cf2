"""Layers that nobody chose, of every type that Snowflake machines run, as small graphs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.graph import Clip, Graph, Shape, State, output_extent
from tvm_npu.codegen.ops import (
    Broadcast,
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    Gru,
    Lstm,
    Maximum,
    Pad,
    Pool,
    ReflectPad,
    Reshape,
    ResizeNearest,
    ScaleShift,
    StridedSlice,
    TableFunction,
    Transpose,
    TransposedConv,
)

Random = np.random.Generator
Array = NDArray[np.float32]
LARGEST_MACS = 1 << 24
"""Larger layers take long to compute, and show nothing that smaller ones do not."""
CLIPS = (Clip(), Clip(0.0, np.inf), Clip(0.0, 6.0), Clip(-0.5, 0.75))


def random_layer(kind: str, rng: Random) -> Graph:
    """One layer of a kind of `KINDS`, with what is fused with it; small enough for a test."""
    while True:
        found = KINDS[kind](rng)
        if found is not None:
            return found


def _extent(rng: Random, most: int) -> int:
    """1 to ``most``, small ones and multiples of 16 more often."""
    extent = int(np.exp(rng.uniform(0, np.log(most + 1))))
    rounded = -(-extent // 16) * 16
    return rounded if extent > 16 and rounded <= most and rng.random() < 0.5 else extent


def _pair(rng: Random, most: int) -> tuple[int, int]:
    return int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1))


def _map(rng: Random, channels: int = 320, size: int = 40) -> tuple[int, int, int]:
    return _extent(rng, channels), _extent(rng, size), _extent(rng, size)


def _clip(rng: Random) -> Clip:
    return CLIPS[int(rng.integers(len(CLIPS)))]


def _weights(rng: Random, *shape: int) -> Array:
    fan_in = max(1, prod(shape[1:]))
    return (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def _graph(layers: tuple[Any, ...], shapes: dict[str, Shape], *inputs: str) -> Graph:
    return Graph(layers, shapes, inputs, (layers[-1].output,))


def _convolution(rng: Random, groups: str = "one") -> Graph | None:
    """Also with a residual that is added."""
    channels, rows, columns = _map(rng)
    kernel, stride = _pair(rng, 5), _pair(rng, 3)
    dilation = _pair(rng, 2) if rng.random() < 0.2 else (1, 1)
    if rng.random() < 0.3:
        kernel, dilation = (1, 1), (1, 1)
    if rng.random() < 0.6:
        stride = (1, 1)
    count, filters = 1, _extent(rng, 320)
    if groups == "channels":
        count = filters = channels
    elif groups == "some":
        count = int(rng.integers(2, 5))
        channels, filters = channels * count, filters * count
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    top, left, bottom, right = (int(rng.integers(0, reach[axis % 2] + 1)) for axis in range(4))
    out = (
        filters,
        output_extent(rows, kernel[0], stride[0], dilation[0], top + bottom),
        output_extent(columns, kernel[1], stride[1], dilation[1], left + right),
    )
    macs = prod(out) * channels // count * prod(kernel)
    if min(out) < 1 or macs > LARGEST_MACS:
        return None
    residual = rng.random() < 0.3
    conv = Conv2d(
        "conv", ("x",), ("c" if residual else "y",),
        _weights(rng, filters, channels // count, *kernel), _weights(rng, filters), stride,
        (top, left, bottom, right), dilation, count, Clip() if residual else _clip(rng),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, rows, columns), conv.output: out}
    if not residual:
        return _graph((conv,), shapes, "x")
    add = Elementwise("add", ("c", "r"), ("y",), "add", _clip(rng))
    return _graph((conv, add), {**shapes, "r": out, "y": out}, "x", "r")


def _maxima(rng: Random) -> Graph | None:
    """A convolution with the greater of its halves, a pool, or both behind it."""
    channels, rows, columns = _map(rng, 160, 60)
    kernel = int(rng.choice((1, 3, 5)))
    half = _extent(rng, 100)
    style = int(rng.integers(3))
    filters = half if style == 0 else 2 * half
    if min(rows, columns) < 2 or filters * channels * rows * columns * kernel**2 > LARGEST_MACS:
        return None
    conv = Conv2d(
        "conv", ("x",), ("c",), _weights(rng, filters, channels, kernel, kernel),
        _weights(rng, filters), (1, 1), (kernel // 2,) * 4, (1, 1), 1, _clip(rng),
    )  # fmt: skip
    layers: list[Any] = [conv]
    shapes: dict[str, Shape] = {"x": (channels, rows, columns), "c": (filters, rows, columns)}
    if style:
        layers += [
            ChannelSlice("first", ("c",), ("a",), 0),
            ChannelSlice("second", ("c",), ("b",), half),
            Maximum("greater", ("a", "b"), ("m",)),
        ]
        shapes.update(dict.fromkeys(("a", "b", "m"), (half, rows, columns)))
    if style != 1:
        source = layers[-1].output
        layers.append(Pool("pool", (source,), ("y",), "max", (2, 2), (2, 2), (0, 0, 0, 0)))
        shapes["y"] = (half, rows // 2, columns // 2)
    return _graph(tuple(layers), shapes, "x")


def _dense(rng: Random) -> Graph:
    inputs, filters = _extent(rng, 9000), _extent(rng, 500)
    weight, bias = _weights(rng, filters, inputs), _weights(rng, filters)
    layer = Dense("dense", ("x",), ("y",), weight, bias)
    return _graph((layer,), {"x": (inputs,), "y": (filters,)}, "x")


def _pool(rng: Random) -> Graph | None:
    channels, rows, columns = _map(rng)
    kernel, stride = _pair(rng, 4), _pair(rng, 3)
    top, left, bottom, right = (
        int(rng.integers(0, kernel[axis % 2] // 2 + 1)) for axis in range(4)
    )
    padding = (top, left, bottom, right)
    out = (
        channels,
        output_extent(rows, kernel[0], stride[0], 1, top + bottom),
        output_extent(columns, kernel[1], stride[1], 1, left + right),
    )
    ends = zip(out[1:], stride, (top, left), (rows, columns), strict=True)
    if min(out) < 1 or any((n - 1) * step - before >= size for n, step, before, size in ends):
        return None
    kind: Any = "max" if rng.random() < 0.5 else "avg"
    layer = Pool(
        "pool", ("x",), ("y",), kind, kernel, stride, padding, bool(rng.random() < 0.5), padding
    )
    return _graph((layer,), {"x": (channels, rows, columns), "y": out}, "x")


def _transposed(rng: Random) -> Graph | None:
    channels, rows, columns = _map(rng, 96, 20)
    kernel, stride = _pair(rng, 4), _pair(rng, 3)
    top, left, bottom, right = (int(rng.integers(0, kernel[axis % 2])) for axis in range(4))
    more = (int(rng.integers(0, stride[0])), int(rng.integers(0, stride[1])))
    filters = _extent(rng, 96)
    out = (
        filters,
        (rows - 1) * stride[0] + kernel[0] + more[0] - top - bottom,
        (columns - 1) * stride[1] + kernel[1] + more[1] - left - right,
    )
    if min(out) < 1 or prod(out) * channels * prod(kernel) > LARGEST_MACS:
        return None
    layer = TransposedConv(
        "transposed", ("x",), ("y",), _weights(rng, filters, channels, *kernel),
        _weights(rng, filters), stride, (top, left, bottom, right), more, 1, _clip(rng),
    )  # fmt: skip
    return _graph((layer,), {"x": (channels, rows, columns), "y": out}, "x")


def _elementwise(rng: Random) -> Graph:
    shape = _map(rng)
    kind: Any = ("add", "mul", "copy")[int(rng.integers(3))]
    inputs = ("x",) if kind == "copy" else ("x", "r")
    layer = Elementwise("pair", inputs, ("y",), kind, _clip(rng))
    return _graph((layer,), dict.fromkeys((*inputs, "y"), shape), *inputs)


def _broadcast(rng: Random) -> Graph:
    shape = _map(rng)
    kind: Any = "add" if rng.random() < 0.5 else "mul"
    layer = Broadcast("broadcast", ("x", "r"), ("y",), kind, _clip(rng))
    return _graph((layer,), {"x": shape, "r": (shape[0], 1, 1), "y": shape}, "x", "r")


def _maximum(rng: Random) -> Graph:
    shape = _map(rng)
    layer = Maximum("maximum", ("x", "r"), ("y",), _clip(rng))
    return _graph((layer,), {"x": shape, "r": shape, "y": shape}, "x", "r")


def _feature_map(rng: Random) -> Graph:
    """The greater of a map's halves."""
    channels, rows, columns = _map(rng, 160)
    half = (channels, rows, columns)
    layers = (
        ChannelSlice("first", ("x",), ("a",), 0),
        ChannelSlice("second", ("x",), ("b",), channels),
        Maximum("maximum", ("a", "b"), ("y",), _clip(rng)),
    )
    shapes: dict[str, Shape] = {"x": (2 * channels, rows, columns)}
    return _graph(layers, {**shapes, "a": half, "b": half, "y": half}, "x")


def _table(rng: Random) -> Graph:
    shape = _map(rng)
    kind: Any = "sigmoid" if rng.random() < 0.5 else "tanh"
    layer = TableFunction(kind, ("x",), ("y",), kind)
    return _graph((layer,), {"x": shape, "y": shape}, "x")


def _affine(rng: Random) -> Graph:
    shape = _map(rng)
    scale, bias = _weights(rng, shape[0]), _weights(rng, shape[0])
    layer = ScaleShift("affine", ("x",), ("y",), scale, bias)
    return _graph((layer,), {"x": shape, "y": shape}, "x")


def _concatenation(rng: Random) -> Graph:
    _, rows, columns = _map(rng)
    parts = [_extent(rng, 100) for _ in range(int(rng.integers(2, 4)))]
    names = tuple(f"x{number}" for number in range(len(parts)))
    shapes: dict[str, Shape] = {
        name: (planes, rows, columns) for name, planes in zip(names, parts, strict=True)
    }
    layer = Concat("concat", names, ("y",))
    return _graph((layer,), {**shapes, "y": (sum(parts), rows, columns)}, *names)


def _reshaping(rng: Random) -> Graph:
    """What a convolution leaves changes its order in memory."""
    channels, rows, columns = _map(rng, 100, 20)
    filters = _extent(rng, 100)
    weight, bias = _weights(rng, filters, channels, 1, 1), _weights(rng, filters)
    layers = (
        Conv2d("conv", ("x",), ("c",), weight, bias, activation=_clip(rng)),
        Reshape("reshape", ("c",), ("y",)),
    )
    shapes: dict[str, Shape] = {"x": (channels, rows, columns), "c": (filters, rows, columns)}
    return _graph(layers, {**shapes, "y": (columns, filters, rows)}, "x")


def _padding(rng: Random) -> Graph | None:
    """Negative amounts crop; a stride keeps every n-th row and column."""
    shape = _map(rng)
    before, after = (tuple(map(int, rng.integers(-2, 4, 3))) for _ in range(2))
    stride = _pair(rng, 2)
    out = [extent + a + b for extent, a, b in zip(shape, before, after, strict=True)]
    kept = (e + min(a, 0) + min(b, 0) for e, a, b in zip(shape, before, after, strict=True))
    if min(kept) < 1:
        return None
    layer = Pad("pad", ("x",), ("y",), before, after, stride, 0.25)  # type: ignore[arg-type]
    target = (out[0], -(-out[1] // stride[0]), -(-out[2] // stride[1]))
    return _graph((layer,), {"x": shape, "y": target}, "x")


def _reflection(rng: Random) -> Graph:
    channels, rows, columns = shape = _map(rng)
    most = (rows, columns, rows, columns)
    top, left, bottom, right = (int(rng.integers(0, min(extent, 5))) for extent in most)
    layer = ReflectPad("reflect", ("x",), ("y",), (top, left, bottom, right))
    target = (channels, rows + top + bottom, columns + left + right)
    return _graph((layer,), {"x": shape, "y": target}, "x")


def _move(rng: Random) -> Graph:
    """A nearest resize, a strided slice, or a transpose."""
    shape = _map(rng, 64, 16)
    kind = rng.integers(3)
    layer: ResizeNearest | StridedSlice | Transpose
    if kind == 0:
        sizes = [int(rng.integers(1, 3 * extent + 1)) for extent in shape[1:]]
        rows, columns = (
            tuple(int(at) for at in np.sort(rng.integers(0, extent, size)))
            for extent, size in zip(shape[1:], sizes, strict=True)
        )
        layer = ResizeNearest("move", ("x",), ("y",), shape, rows, columns)
        target = (shape[0], len(rows), len(columns))
    elif kind == 1:
        begins = tuple(int(rng.integers(extent)) for extent in shape)
        steps = tuple(int(rng.integers(1, 4)) for _ in shape)
        target = tuple(
            -(-(extent - begin) // step)
            for extent, begin, step in zip(shape, begins, steps, strict=True)
        )  # type: ignore[assignment]
        layer = StridedSlice("move", ("x",), ("y",), shape, begins, steps, target)
    else:
        axes = tuple(int(axis) for axis in rng.permutation(3))
        target = tuple(shape[axis] for axis in axes)  # type: ignore[assignment]
        layer = Transpose("move", ("x",), ("y",), shape, axes)
    return _graph((layer,), {"x": shape, "y": target}, "x")


def _recurrent(rng: Random, cell: str) -> Graph:
    features, hidden = _extent(rng, 150), _extent(rng, 150)
    steps = int(rng.integers(1, 5))
    gates, letters = (4, "hc") if cell == "lstm" else (3, "h")
    states = tuple(State(one, f"{one}_begin", f"{one}_end") for one in letters)
    names = [f"{one}_{end}" for one in letters for end in ("begin", "end")]
    ends = tuple(f"{one}_end" for one in letters)
    begins = tuple(f"{one}_begin" for one in letters)
    shapes: dict[str, Shape] = {"x": (steps, features), "y": (steps, hidden)}
    shapes.update(dict.fromkeys((*names, *letters), (hidden,)))
    rows = gates * hidden
    common: Any = (
        cell, ("x", *begins), ("y", *ends), _weights(rng, rows, features),
        _weights(rng, rows, hidden), _weights(rng, rows),
    )  # fmt: skip
    if cell == "lstm":
        layer: Any = Lstm(*common, states=states)
    else:
        own: Any = (_weights(rng, hidden), bool(rng.random() < 0.5))
        layer = Gru(*common, *own, states=states)
    return Graph((layer,), shapes, ("x", *begins), ("y", *ends))


KINDS: dict[str, Callable[[Random], Graph | None]] = {
    "conv": _convolution,
    "grouped": lambda rng: _convolution(rng, "some"),
    "depthwise": lambda rng: _convolution(rng, "channels"),
    "maxima": _maxima,
    "dense": _dense,
    "pool": _pool,
    "transposed": _transposed,
    "elementwise": _elementwise,
    "broadcast": _broadcast,
    "maximum": _maximum,
    "feature map": _feature_map,
    "table": _table,
    "affine": _affine,
    "concatenation": _concatenation,
    "reshaping": _reshaping,
    "padding": _padding,
    "reflection": _reflection,
    "move": _move,
    "lstm": lambda rng: _recurrent(rng, "lstm"),
    "gru": lambda rng: _recurrent(rng, "gru"),
}
WEIGHTS = {"conv": 6, "grouped": 2, "depthwise": 2, "dense": 2, "transposed": 2, "pool": 2}
"""Drawn so many times as often as the others."""


def drawn_kind(rng: Random) -> str:
    names = [name for name in KINDS for _ in range(WEIGHTS.get(name, 1))]
    return names[int(rng.integers(len(names)))]
