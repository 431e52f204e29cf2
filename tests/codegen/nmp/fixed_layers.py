"""Hypothesis strategies for single fixed-point layers."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, output_extent, q_point_scales
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPad, FixedPool
from tvm_npu.sim.description import MachineDescription

SEEDS = st.integers(0, 2**31)


def fixed_graph(layer: FixedLayer, shapes: dict[str, Shape], element_bytes: int) -> FixedGraph:
    """A graph of one layer; its inputs are the graph's."""
    return FixedGraph(
        (layer,), shapes, tuple(dict.fromkeys(layer.inputs)), (layer.output,),
        q_point_scales(dict.fromkeys(shapes, 8)), element_bytes,  # type: ignore[arg-type]
    )  # fmt: skip


def random_tensors(fixed: FixedGraph, seed: int) -> dict[str, np.ndarray]:
    """Inputs without a batch over the whole range of the element type."""
    generator = np.random.default_rng(seed)
    low, high = element_limits(fixed.element_bytes)
    dtype = np.int8 if fixed.element_bytes == 1 else np.int16
    return {
        name: generator.integers(low, high + 1, fixed.shapes[name]).astype(dtype)
        for name in fixed.inputs
    }


@st.composite
def requantizing(draw: st.DrawFn, element_bytes: int, least: int = 0) -> dict[str, int]:
    low, high = element_limits(element_bytes)
    bounds = draw(st.sampled_from(((low, high), (0, high), (0, high // 3), (low // 2, -1))))
    return {"shift": draw(st.integers(least, 12)), "low": bounds[0], "high": bounds[1]}


@st.composite
def filter_shifts(draw: st.DrawFn, filters: int, element_bytes: int) -> np.ndarray | None:
    """Shifts of filters, for int8, or None: one for all."""
    if element_bytes > 1 or draw(st.booleans()):
        return None
    most = draw(st.sampled_from((1, 5, 30)))
    return np.random.default_rng(draw(SEEDS)).integers(0, most + 1, filters).astype(np.int32)


@st.composite
def convolutions(
    draw: st.DrawFn, element_bytes: int, is_grouped: bool = True, has_residuals: bool = True
) -> FixedGraph:
    """``is_grouped``, ``has_residuals``: some are."""
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 6))) if is_grouped else 1
    channels = groups * draw(st.integers(1, 6))
    filters = groups * draw(st.integers(1, 9))
    if is_grouped and draw(st.integers(0, 4)) == 0:
        channels = filters = groups = draw(st.integers(1, 17))  # depthwise
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 2)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    extents = tuple(draw(st.integers(1, 11)) for _ in range(2))
    padding = tuple(draw(st.integers(-1, 2)) for _ in range(4))
    padding = tuple(
        max(amount, span[axis % 2] - extents[axis % 2], -((extents[axis % 2] - 1) // 2))
        for axis, amount in enumerate(padding)
    )
    rows = output_extent(extents[0], kernel[0], stride[0], dilation[0], padding[0] + padding[2])
    columns = output_extent(extents[1], kernel[1], stride[1], dilation[1], padding[1] + padding[3])
    assume(rows > 0 and columns > 0)
    generator = np.random.default_rng(draw(SEEDS))
    low, high = element_limits(element_bytes)
    dtype = np.int8 if element_bytes == 1 else np.int16
    weight = generator.integers(low, high + 1, (filters, channels // groups, *kernel))
    has_residual = has_residuals and draw(st.integers(0, 2)) == 0
    layer = FixedConv(
        "layer", ("x", "z") if has_residual else ("x",), ("y",), source=("op",),
        weight=weight.astype(dtype),
        bias=generator.integers(-(1 << 20), 1 << 20, filters).astype(np.int32),
        stride=stride, padding=padding, dilation=dilation, groups=groups,  # type: ignore[arg-type]
        accumulator_shift=draw(st.integers(0, 3)) if has_residual else 0,
        residual_shift=draw(st.integers(0, 8)) if has_residual else 0,
        filter_shifts=draw(filter_shifts(filters, element_bytes)),
        **draw(requantizing(element_bytes, -2)),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, *extents), "y": (filters, rows, columns)}
    if has_residual:
        shapes["z"] = shapes["y"]
    return fixed_graph(layer, shapes, element_bytes)


@st.composite
def dense_layers(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    channels, filters = draw(st.integers(1, 200)), draw(st.integers(1, 40))
    generator = np.random.default_rng(draw(SEEDS))
    low, high = element_limits(element_bytes)
    dtype = np.int8 if element_bytes == 1 else np.int16
    has_residual = draw(st.booleans())
    layer = FixedConv(
        "layer", ("x", "z") if has_residual else ("x",), ("y",),
        weight=generator.integers(low, high + 1, (filters, channels, 1, 1)).astype(dtype),
        bias=generator.integers(-(1 << 20), 1 << 20, filters).astype(np.int32), is_dense=True,
        accumulator_shift=draw(st.integers(0, 3)) if has_residual else 0,
        residual_shift=draw(st.integers(0, 8)) if has_residual else 0,
        filter_shifts=draw(filter_shifts(filters, element_bytes)),
        **draw(requantizing(element_bytes)),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels,), "y": (filters,), "z": (filters,)}
    return fixed_graph(layer, {t: shapes[t] for t in (*layer.inputs, "y")}, element_bytes)


@st.composite
def pools(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 5)))
    counted = tuple(draw(st.integers(0, kernel[axis % 2] // 2)) for axis in range(4))
    extents = tuple(draw(st.integers(kernel[axis], 12)) for axis in range(2))
    end = draw(st.integers(0, 1)) if min(kernel) > 1 else 0
    padding = (counted[0], counted[1], max(counted[2], end), max(counted[3], end))
    rows = output_extent(extents[0], kernel[0], stride[0], 1, padding[0] + padding[2])
    columns = output_extent(extents[1], kernel[1], stride[1], 1, padding[1] + padding[3])
    low, high = element_limits(element_bytes)
    bounds = draw(st.sampled_from(((low, high), (0, high), (-3, 5))))
    layer = FixedPool(
        "layer", ("x",), ("y",), shift=0, low=bounds[0], high=bounds[1],
        kind=draw(st.sampled_from(("max", "avg"))), kernel=kernel, stride=stride, padding=padding,
        count_include_pad=draw(st.booleans()), counted_padding=counted,  # type: ignore[arg-type]
    )  # fmt: skip
    channels = draw(st.integers(1, 20))
    shapes: dict[str, Shape] = {"x": (channels, *extents), "y": (channels, rows, columns)}
    return fixed_graph(layer, shapes, element_bytes)


@st.composite
def pads(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    before = tuple(draw(st.integers(-((extent - 1) // 2), 3)) for extent in shape)
    after = tuple(draw(st.integers(-((extent - 1) // 2), 3)) for extent in shape)
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    low, high = element_limits(element_bytes)
    full = tuple(sum(axis) for axis in zip(shape, before, after, strict=True))
    layer = FixedPad(
        "layer", ("x",), ("y",), before=before, after=after, stride=stride,  # type: ignore[arg-type]
        value=draw(st.integers(low, high)),
    )  # fmt: skip
    made = (full[0], -(-full[1] // stride[0]), -(-full[2] // stride[1]))
    return fixed_graph(layer, {"x": shape, "y": made}, element_bytes)


@st.composite
def elementwise_layers(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    op = draw(st.sampled_from(("add", "mul", "copy")))
    shape = draw(st.sampled_from(((7,), (3, 5, 7), (16, 9, 9), (1, 1, 1))))
    assert prod(shape)
    inputs = ("x",) if op == "copy" else draw(st.sampled_from((("x", "z"), ("x", "x"))))
    layer = FixedElementwise(
        "layer", inputs, ("y",), op=op, shift_a=draw(st.integers(0, 4)) if op == "add" else 0,
        shift_b=draw(st.integers(0, 4)) if op == "add" else 0,
        **draw(requantizing(element_bytes, -2)),
    )  # fmt: skip
    return fixed_graph(layer, dict.fromkeys((*inputs, "y"), shape), element_bytes)


def for_machine(fixed: FixedGraph, machine: MachineDescription) -> FixedGraph:
    """The graph, with one shift for all filters if the machine has no other."""
    if machine.requantization("int8" if fixed.element_bytes == 1 else "int16").is_per_channel:
        return fixed
    alike = (
        replace(one, filter_shifts=None) if isinstance(one, FixedConv) else one
        for one in fixed.layers
    )
    return replace(fixed, layers=tuple(alike))


def layers(element_bytes: int) -> st.SearchStrategy[FixedGraph]:
    """Any layer that makes code, convolutions more often than the others."""
    conv = convolutions(element_bytes)
    return st.one_of(
        conv, conv, dense_layers(element_bytes), pools(element_bytes), pads(element_bytes),
        elementwise_layers(element_bytes),
    )  # fmt: skip
