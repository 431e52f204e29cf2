"""Graphs of convolutions one behind the other, and programs of them run and compared."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from tvm_npu.codegen.graph import FixedGraph, Shape, output_extent, q_point_scales
from tvm_npu.codegen.graph.fixed import Width
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session

INTEGERS = {1: np.dtype(np.int8), 2: np.dtype(np.int16)}


class Graph:
    """Convolutions one behind the other, that keep the size of values; one may add a ``residual``:
    a tensor by its name, an input of the graph where no layer makes it."""

    def __init__(self, image: Shape, seed: int, element_bytes: Width = 1) -> None:
        self.shapes: dict[str, Shape] = {"x": image}
        self.layers: list[FixedConv] = []
        self.inputs, self.element_bytes = ["x"], element_bytes
        self.last, self.rng = "x", np.random.default_rng(seed)

    def conv(
        self, filters: int, kernel: int = 1, stride: int = 1, depthwise: bool = False,
        residual: str = "", padding: tuple[int, int, int, int] | None = None, apart: int = 1,
    ) -> None:  # fmt: skip
        """``padding`` keeps the extents unless it is given; taps are ``apart``."""
        channels, *extents = self.shapes[self.last]
        sides = (kernel // 2 * apart,) * 4 if padding is None else padding
        name = f"t{len(self.layers)}"
        out = [
            output_extent(size, kernel, stride, apart, before + behind)
            for size, before, behind in zip(extents, sides[:2], sides[2:], strict=True)
        ]
        self.shapes[name] = (filters, *out)
        depth, bits = 1 if depthwise else channels, 8 * self.element_bytes
        if residual and residual not in self.shapes:
            self.shapes[residual] = self.shapes[name]
            self.inputs.append(residual)
        shift = bits - 2 + (depth * kernel * kernel).bit_length() // 2
        half = 1 << (bits - 1)
        self.layers.append(
            FixedConv(
                name, (self.last, *([residual] if residual else [])), (name,),
                weight=self.rng.integers(
                    -half, half, (filters, depth, kernel, kernel), INTEGERS[self.element_bytes]
                ),
                bias=self.rng.integers(-(1 << 9), 1 << 9, filters).astype(np.int32),
                stride=(stride, stride), padding=sides, dilation=(apart, apart),
                groups=channels if depthwise else 1, shift=shift, residual_shift=shift - 1,
                low=-half if residual else 0, high=half - 1,
            )
        )  # fmt: skip
        self.last = name

    def fixed(self, outputs: Iterable[str] = ()) -> FixedGraph:
        """The graph whose outputs are ``outputs`` and the last tensor."""
        scales = q_point_scales(dict.fromkeys(self.shapes, 0))
        return FixedGraph(
            tuple(self.layers), self.shapes, tuple(self.inputs), (*outputs, self.last), scales,
            self.element_bytes, "chain",
        )  # fmt: skip


def draw_chain(draw: st.DrawFn, graph: Graph, own: str) -> None:
    """A chain of any kind behind what ``graph`` has: with an expansion or not; it adds its input, a
    tensor of its own, called ``own``, or nothing."""
    begin = graph.last
    channels, *_ = graph.shapes[begin]
    kind, stride = draw(st.sampled_from(("all", "plain", "depthwise"))), draw(st.integers(1, 2))
    middle = channels if kind == "depthwise" else draw(st.integers(1, 9))
    if kind == "depthwise":
        graph.conv(middle, 3, stride, depthwise=True)
    else:
        graph.conv(middle, draw(st.sampled_from((1, 3))), 1 if kind == "all" else stride)
    if kind == "all":
        graph.conv(middle, draw(st.sampled_from((3, 5))), stride, depthwise=True)
    residual = draw(st.sampled_from(("", "another", "input")))
    if residual == "input" and graph.shapes[begin][1:] == graph.shapes[graph.last][1:]:
        graph.conv(channels, residual=begin)
    else:
        graph.conv(draw(st.integers(1, 6)), residual=own if residual else "")


def bottleneck(channels: int, middle: int, size: int) -> FixedGraph:
    """MobileNetV2's."""
    graph = Graph((channels, size, size), 3)
    add_bottleneck(graph, middle, channels)
    return graph.fixed()


def add_bottleneck(graph: Graph, middle: int, filters: int, stride: int = 1) -> None:
    """MobileNetV2's behind what ``graph`` has, with its input for a residual where it can be."""
    begin = graph.last
    graph.conv(middle)
    graph.conv(middle, 3, stride, depthwise=True)
    same = graph.shapes[begin] == (filters, *graph.shapes[graph.last][1:])
    graph.conv(filters, residual=begin if same else "")


def run(fixed: FixedGraph, program: Program, seed: int) -> Session:
    """Simulated, and equal to the reference of ``fixed``."""
    rng = np.random.default_rng(seed)
    half = 1 << (8 * fixed.element_bytes - 1)
    kind = INTEGERS[fixed.element_bytes]
    images = {x: rng.integers(-half, half, (1, *fixed.shapes[x]), kind) for x in fixed.inputs}
    session = Session(program)
    found = session.run_fixed([images[name] for name in fixed.inputs])
    wanted = run_fixed(fixed, images)
    for name, one in zip(fixed.outputs, found, strict=True):
        np.testing.assert_array_equal(one, wanted[name], err_msg=name)
    return session
