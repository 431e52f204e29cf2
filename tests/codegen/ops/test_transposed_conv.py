"""Transposed convolution against loops, and against a convolution of the expanded input."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.codegen.graph import NO_CLIP, Clip, Graph
from tvm_npu.codegen.ops import Conv2d, FixedTransposedConv, TransposedConv, operator_of
from tvm_npu.codegen.ops.registry import check_shapes, layer_macs
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_fixed, run_float


@st.composite
def layers(draw: st.DrawFn) -> tuple[TransposedConv, tuple[int, int, int], tuple[int, int, int]]:
    """(layer, input, output), drawn."""
    number = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    groups, depth, per_group = number(1, 2), number(1, 3), number(1, 3)
    kernel, stride = ((number(1, 4), number(1, 4)), (number(1, 3), number(1, 3)))
    padding = tuple(number(0, kernel[axis % 2]) for axis in range(4))
    more = tuple(number(0, stride[axis] - 1) for axis in range(2))
    extents = tuple(number(1, 5) for _ in range(2))
    out = tuple(
        (extents[i] - 1) * stride[i] + kernel[i] + more[i] - padding[i] - padding[i + 2]
        for i in range(2)
    )
    if min(out) < 1:
        padding = (0, 0, 0, 0)
        out = tuple((extents[i] - 1) * stride[i] + kernel[i] + more[i] for i in range(2))
    random = np.random.default_rng(number(0, 1 << 16))
    filters = groups * per_group
    layer = TransposedConv(
        "l", ("x",), ("y",), random.normal(size=(filters, depth, *kernel)).astype(np.float32),
        random.normal(size=filters).astype(np.float32), stride, padding, more, groups,
        draw(st.sampled_from((NO_CLIP, Clip(0.0, 1.5)))),
    )  # fmt: skip
    return layer, (depth * groups, *extents), (filters, *out)


def products(
    layer: Any, source: tuple[int, int, int], target: tuple[int, int, int]
) -> list[tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int, int]]]:
    """(output, input, weight) positions of every product that an output needs, by loops."""
    filters, depth, *kernel = layer.weight.shape
    found = []
    for m, n, y, z, i, j in product(
        range(filters), range(depth), *map(range, source[1:]), *map(range, kernel)
    ):
        r = y * layer.stride[0] + i - layer.padding[0]
        c = z * layer.stride[1] + j - layer.padding[1]
        if 0 <= r < target[1] and 0 <= c < target[2]:
            channel = m // (filters // layer.groups) * depth + n
            found.append(((m, r, c), (channel, y, z), (m, n, i, j)))
    return found


@settings(deadline=None, max_examples=examples(60))
@given(layers(), st.integers(0, 1000), st.sampled_from(("int16", "int8")))
def test_random_layers(drawn: Any, seed: int, precision: Any) -> None:
    layer, source, target = drawn
    graph = Graph((layer,), {"x": source, "y": target}, ("x",), ("y",))
    check_shapes(graph)
    x = np.random.default_rng(seed).normal(size=(2, *source)).astype(np.float32)
    terms = products(layer, source, target)
    assert layer_macs(layer, graph.shapes) == len(terms)

    expected = np.zeros(target) + layer.bias[:, None, None]
    for at, read, weight in terms:
        expected[at] += float(x[0][read]) * float(layer.weight[weight])
    made = run_float(graph, {"x": x})["y"]
    np.testing.assert_allclose(made[0], layer.activation.apply(expected), atol=1e-4)

    fixed = quantize(graph, calibrate(graph, [{"x": x}]), precision)
    (exact,) = fixed.layers
    assert isinstance(exact, FixedTransposedConv)
    assert layer_macs(exact, fixed.shapes) == len(terms)
    integers = fixed.scales["x"].quantize(x, fixed.element_bytes)
    sums = np.zeros(target, object) + exact.bias.astype(object)[:, None, None]
    for at, read, weight in terms:
        sums[at] += int(integers[1][read]) * int(exact.weight[weight])
    half = 1 << exact.shift - 1 if exact.shift > 0 else 0
    limit = 1 << 8 * fixed.element_bytes - 1
    wanted = [
        max(exact.low, min(exact.high, max(-limit, min(limit - 1, value))))
        for value in (
            (one + half) >> exact.shift if exact.shift > 0 else one << -exact.shift
            for one in sums.flat
        )
    ]
    assert run_fixed(fixed, {"x": integers})["y"][1].reshape(-1).tolist() == wanted


def test_it_is_the_convolution_of_the_expanded_input() -> None:
    random = np.random.default_rng(5)
    x = random.normal(size=(1, 3, 4, 5)).astype(np.float32)
    weight = random.normal(size=(2, 3, 3, 3)).astype(np.float32)
    bias = np.zeros(2, np.float32)
    layer = TransposedConv("l", ("x",), ("y",), weight, bias, (2, 2), (1, 1, 1, 1), (1, 1))
    expanded = np.zeros((1, 3, 4 + 3, 5 + 4), np.float32)
    expanded[:, :, ::2, ::2] = x
    flipped = np.ascontiguousarray(weight[:, :, ::-1, ::-1])
    conv = Conv2d("l", ("x",), ("y",), flipped, bias, padding=(1, 1, 2, 2))
    (made,) = operator_of(layer).run_float(layer, [x], [(2, 8, 10)])
    (other,) = operator_of(conv).run_float(conv, [expanded], [(2, 8, 10)])
    np.testing.assert_allclose(made, other, atol=1e-5)


def test_the_paper_s_layer_counts_no_zeros() -> None:
    """3x3, stride 2, 32x32x64, 64 filters: 4 phases of 4, 2, 2 and 1 taps; the border has less."""
    layer = TransposedConv(
        "l", ("x",), ("y",), np.ones((64, 64, 3, 3), np.float32), np.zeros(64, np.float32), (2, 2),
        (1, 1, 1, 1), (1, 1),
    )  # fmt: skip
    shapes = {"x": (64, 32, 32), "y": (64, 64, 64)}
    assert layer_macs(layer, shapes) == 64 * 64 * (32 + 32 + 31) ** 2
