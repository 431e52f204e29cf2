"""A planner's question as a graph that can run: one layer, or a convolution and the window behind
it, with random values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, log2
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, q_point_scales
from tvm_npu.codegen.layers import cascade_problem, conv_problem
from tvm_npu.codegen.ops import FixedCascade, FixedConv, FixedPool
from tvm_npu.codegen.passes.cascades import candidates, with_cascades
from tvm_npu.codegen.plan.layers import question_of
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision

Q_POINT = 8


def layer_on(problem: ConvProblem, machine: MachineDescription) -> tuple[FixedGraph, int]:
    """`single_layer` of what planners for ``machine`` are asked, and the bits of its inputs. The
    widths of ``problem`` are those in the machine's memories; where both precisions are stored so,
    it is the machine's default one. ValueError for widths that the machine does not have."""
    nearest = None
    for precision in dict.fromkeys((machine.default_precision, *get_args(Precision))):
        numbers = replace(
            problem, element_bytes=ELEMENT_BYTES[precision],
            accumulator_bytes=ConvProblem.accumulator_bytes,
        )  # fmt: skip
        if machine.stored_element_bytes(precision) != problem.element_bytes:
            continue
        bits = _bits_that_fit(numbers, 8 * problem.accumulator_bytes)
        graph = single_layer(numbers, bits=bits)
        nearest = asked(graph, machine)
        if nearest == problem:
            return graph, bits
    if nearest is not None and nearest.accumulator_bytes == problem.accumulator_bytes:
        raise ValueError(f"no single layer asks {problem}; the nearest asks {nearest}")
    raise ValueError(
        f"elements of {problem.element_bytes} bytes with sums of {problem.accumulator_bytes}: "
        f"machine {machine.name!r} has neither precision in these widths"
    )


def asked(graph: FixedGraph, machine: MachineDescription) -> ConvProblem:
    """What planners for ``machine`` are asked about a graph of `single_layer`."""
    problem = question_of(cascaded(graph).layers[-1], graph, machine)
    assert isinstance(problem, ConvProblem)
    return problem


def _bits_that_fit(problem: ConvProblem, accumulator_bits: int) -> int:
    """Bits of weights and inputs with which no sum overflows: all that elements have, wherever
    accumulators are as wide as random values need."""
    products = problem.channels // problem.groups * problem.kernel[0] * problem.kernel[1]
    most = (accumulator_bits - 3 - ceil(log2(products))) // 2 + 1
    return max(2, min(8 * problem.element_bytes, most))


def single_layer(problem: ConvProblem, seed: int = 0, bits: int | None = None) -> FixedGraph:
    """A graph whose only question to a planner is ``problem``, but for one with a window: its two
    layers, which `cascaded` makes one. Weights are over the whole range of the element type, and
    the results of random inputs as well; or weights (and inputs) have ``bits`` bits."""
    generator = np.random.default_rng(seed)
    size = problem.element_bytes
    low, high = element_limits(size)
    dtype = np.int8 if size == 1 else np.int16
    bits = 8 * size if bits is None else bits
    most = 1 << (bits - 1)

    def values(shape: tuple[int, ...]) -> NDArray[np.integer]:
        return generator.integers(-most, most, shape).astype(dtype)

    depth = problem.channels // problem.groups
    products = depth * problem.kernel[0] * problem.kernel[1]
    shift = _shift(size, products, bits)
    conv = FixedConv(
        "layer",
        ("x", "z") if problem.has_residual else ("x",),
        ("y",),
        shift=shift,
        low=low,
        high=high,
        weight=values((problem.filters, depth, *problem.kernel)),
        bias=_biases(problem.filters, shift + 8 * size - 4, generator),
        stride=problem.stride,
        padding=problem.padding,
        dilation=problem.dilation,
        groups=problem.groups,
        residual_shift=max(0, shift - 1) if problem.has_residual else 0,
        is_dense=problem.is_dense,
    )
    out: Shape = (problem.filters, problem.rows, problem.columns)
    shapes: dict[str, Shape] = {"x": (problem.channels, problem.in_rows, problem.in_columns)}
    if problem.is_dense:
        shapes["x"], out = (problem.channels,), (problem.filters,)
    if problem.has_residual:
        shapes["z"] = out
    shapes["y"] = out
    layers: tuple[FixedLayer, ...] = (conv,)
    if problem.window is not None:
        window = problem.window
        layers = (conv, _window_layer(problem, window, values, generator))
        shapes["v"] = (problem.filters, window.rows, window.columns)
    graph = FixedGraph(
        layers, shapes, tuple(dict.fromkeys(conv.inputs)), (layers[-1].output,),
        q_point_scales(dict.fromkeys(shapes, Q_POINT)), 1 if size == 1 else 2,
    )  # fmt: skip
    last = cascaded(graph).layers[-1]
    if isinstance(last, FixedCascade):
        found = cascade_problem(last, shapes, size)
    else:
        found = conv_problem(conv, shapes["x"], shapes["y"], size)
    if found != problem:
        raise ValueError(f"no single layer asks {problem}; the nearest asks {found}")
    return graph


def cascaded(graph: FixedGraph) -> FixedGraph:
    """Two layers as the cascade that they can be; a graph of one layer as it is."""
    return with_cascades(graph, candidates(graph))


def random_inputs(
    graph: FixedGraph, seed: int = 0, bits: int | None = None
) -> dict[str, NDArray[np.integer]]:
    """Arrays [1, *shape] over the whole range of the element type, or of ``bits`` bits."""
    generator = np.random.default_rng(seed)
    most = 1 << ((8 * graph.element_bytes if bits is None else bits) - 1)
    dtype = np.int8 if graph.element_bytes == 1 else np.int16
    return {
        name: generator.integers(-most, most, (1, *graph.shapes[name])).astype(dtype)
        for name in graph.inputs
    }


def _shift(element_bytes: int, products: int, bits: int | None = None) -> int:
    """Brings a sum of products of random values, of ``bits`` bits, back to the range of the
    elements: its standard deviation is that of one product, 2^(2 bits - 2) / 3, times the root of
    their number."""
    range_bits = 8 * element_bytes
    bits = range_bits if bits is None else bits
    return max(0, round(2 * bits - 2 - log2(3) + log2(products) / 2 - (range_bits - 3)))


def _biases(number: int, bits: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Up to 2^bits, where a bias has so many."""
    largest = 1 << min(bits, 30)
    return generator.integers(-largest, largest, number).astype(np.int32)


def _window_layer(
    problem: ConvProblem,
    window: Window,
    values: Callable[[tuple[int, ...]], NDArray[np.integer]],
    generator: np.random.Generator,
) -> FixedConv | FixedPool:
    """The window behind, with as much padding behind the last row and column as it needs."""
    behind = [
        max(0, (count - 1) * stride + kernel - extent - front)
        for count, stride, kernel, extent, front in zip(
            (window.rows, window.columns), window.stride, window.kernel,
            (problem.rows, problem.columns), window.padding, strict=True,
        )
    ]  # fmt: skip
    padding = (*window.padding, behind[0], behind[1])
    low, high = element_limits(problem.element_bytes)
    if not window.has_weights:
        return FixedPool(
            "window", ("y",), ("v",), shift=0, low=low, high=high, kind="max", kernel=window.kernel,
            stride=window.stride, padding=padding, counted_padding=padding,
        )  # fmt: skip
    taps = window.kernel[0] * window.kernel[1]
    shift = _shift(problem.element_bytes, taps)
    return FixedConv(
        "window", ("y",), ("v",), shift=shift, low=low, high=high,
        weight=values((problem.filters, 1, *window.kernel)),
        bias=_biases(problem.filters, shift + 8 * problem.element_bytes - 4, generator),
        stride=window.stride, padding=padding, groups=problem.filters,
    )  # fmt: skip
