"""Layers and graphs on Snowflake machines: compiled, simulated, and held against the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tvm_npu.codegen import ops
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, output_extent
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.passes.dilation import with_live_taps
from tvm_npu.codegen.plan import Planner
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.statistics import RunStatistics

MACHINES = ("snowflake-1cc", "snowflake-1cu", "snowflake-2cc", "snowflake-4cc")


@dataclass(frozen=True)
class Outcome:
    """What a run showed: numbers that differ from the reference, and what the checker said.
    ``planned_cycles`` are what the layers' plans alone promised."""

    wrong: int
    hazards: tuple[Any, ...]
    statistics: RunStatistics
    program: Program
    planned_cycles: tuple[float | None, ...] = ()


def machine(name: str) -> SnowflakeMachine:
    found = load_machine(name)
    assert isinstance(found, SnowflakeMachine)
    return found


def graph_of(layer: FixedLayer, shapes: dict[str, Shape]) -> FixedGraph:
    scales = q_point_scales({tensor: 8 for tensor in shapes})
    return FixedGraph((layer,), shapes, layer.inputs, layer.outputs, scales, 2)


def outcome(
    fixed: FixedGraph, on: SnowflakeMachine, planner: str | Planner = "snowflake", seed: int = 0,
    timing: bool = True, largest: int = 900,
) -> Outcome:  # fmt: skip
    """Compiles, runs twice and compares the second run: the first one leaves its data behind.
    Inputs are at most ``largest``."""
    assert backend_of(on)
    generated = generate(fixed, on, planner)
    program = Program.from_bytes(generated.program().to_bytes())
    session = Session(program, timing=timing)
    rng = np.random.default_rng(seed)
    dtype = np.dtype(f"i{fixed.element_bytes}")
    for _ in range(2):
        inputs = {
            name: rng.integers(-largest, largest, (1, *fixed.shapes[name])).astype(dtype)
            for name in fixed.inputs
        }
        results = session.run_fixed([inputs[name] for name in fixed.inputs])
    wanted = run_fixed(fixed, inputs)
    wrong = sum(
        int((result != wanted[name]).sum())
        for result, name in zip(results, fixed.outputs, strict=True)
    )
    assert session.statistics is not None
    hazards = tuple(session._used[0].hazards)  # type: ignore[attr-defined]
    planned = tuple(one.predicted_cycles for one in generated.planned.layers)
    return Outcome(wrong, hazards, session.statistics, program, planned)


@st.composite
def convolutions(draw: st.DrawFn, far: int = 0, dilated: bool = False) -> FixedGraph:
    """A layer of any kernel, stride, padding, dilation and groups, without taps that meet nothing
    but padding. With ``far`` padding is so many rows and columns wider than what leaves no window
    empty, and maps may be small. ``dilated``: taps are up to 40 apart; with ``far`` maps may be
    smaller than that, which leaves windows empty."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    depthwise = draw(st.sampled_from((False, False, True)))
    depth = draw(st.sampled_from((1, 3, 8, 16, 24, 32, 64)))
    filters = draw(st.sampled_from((1, 5, 16, 20, 48, 64, 80)))
    channels, outputs = depth * groups, filters * groups
    if depthwise:
        channels = outputs = groups = draw(st.sampled_from((4, 16, 40, 64, 96, 130)))
    kernel = (number(1, 5), number(1, 5))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (1, 3))))
    stride = (number(1, 3), number(1, 3))
    if dilated:
        kernel = (number(2, 5), number(2, 5))
        dilation = draw(
            st.one_of(
                st.tuples(st.integers(2, 40), st.integers(2, 40)),
                st.sampled_from(((1, 12), (12, 1), (4, 6))),
            )
        )
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [number(1 if far else extent, extent + 14) for extent in window]
    most = [(k - 1) // 2 * d for k, d in zip(kernel, dilation, strict=True)]
    least = [max(0, extent - held) for extent, held in zip(window, size, strict=True)]
    padding = tuple(
        number(least[axis % 2], most[axis % 2] + least[axis % 2] + far) for axis in range(4)
    )
    if dilated:
        size, padding = draw(_around(window, dilation, far > 0))
    rows, columns = (
        output_extent(size[i], kernel[i], stride[i], dilation[i], padding[i] + padding[i + 2])
        for i in range(2)
    )
    residual = draw(st.booleans())
    layer = ops.FixedConv(
        "conv", ("x", "r") if residual else ("x",), ("y",),
        rng.integers(-300, 300, (outputs, channels // groups, *kernel)).astype(np.int16),
        rng.integers(-(1 << 20), 1 << 20, outputs).astype(np.int32), stride,
        padding, dilation, groups,  # type: ignore[arg-type]
        accumulator_shift=number(0, 2) if residual else 0,
        residual_shift=number(0, 6) if residual else 0, shift=number(-1, 12), low=-30000,
        high=number(1000, 32767),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, *size), "y": (outputs, rows, columns)}  # type: ignore[dict-item]
    if residual:
        shapes["r"] = shapes["y"]
    return with_live_taps(graph_of(layer, shapes))


def near_and_far() -> st.SearchStrategy[FixedGraph]:
    """`convolutions`, dilated ones among them whose taps are far apart."""
    return st.one_of(convolutions(), convolutions(dilated=True))


@st.composite
def _around(
    draw: st.DrawFn, window: list[int], dilation: tuple[int, int], may_be_small: bool
) -> tuple[list[int], tuple[int, ...]]:
    """(rows and columns of a map, its padding) where windows of these extents have about 15 places
    along each axis at most."""
    size, before, behind = [], [], []
    for extent, step in zip(window, dilation, strict=True):
        size.append(draw(st.integers(1, 24) if may_be_small else st.integers(step, step + 8)))
        most = min(14, extent + size[-1] - 2)
        places = most - draw(st.integers(0, most))
        padding = max(0, extent + places - size[-1])
        most = padding if may_be_small else min(padding, extent - 1)
        before.append(draw(st.sampled_from((padding // 2, most, padding - most))))
        if draw(st.booleans()):
            before[-1] = draw(st.integers(padding - most, most))
        behind.append(padding - before[-1])
    return size, (*before, *behind)


@st.composite
def pools(draw: st.DrawFn) -> FixedGraph:
    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    channels = draw(st.sampled_from((1, 7, 16, 40, 64, 100, 256)))
    kernel, stride = (number(1, 4), number(1, 4)), (number(1, 3), number(1, 3))
    size = [number(k, k + 12) for k in kernel]
    padding = tuple(number(0, (kernel[axis % 2]) // 2) for axis in range(4))
    rows, columns = (
        output_extent(size[i], kernel[i], stride[i], 1, padding[i] + padding[i + 2])
        for i in range(2)
    )
    layer = ops.FixedPool(
        "pool", ("x",), ("y",), draw(st.sampled_from(("max", "avg"))), kernel, stride,
        padding, draw(st.booleans()), padding,  # type: ignore[arg-type]
        shift=0, low=number(-900, 0), high=number(0, 900),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, *size), "y": (channels, rows, columns)}  # type: ignore[dict-item]
    return graph_of(layer, shapes)
